"""Value: the soak of a broker: mixed load for a long time, while nothing in the broker may grow."""
