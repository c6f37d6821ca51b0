"""The demo: a year of flights through a topic, a Spark streaming job over it, and the result checked. `make demo`."""
