"""Machine: the offsets of connectors, which are in Spark's checkpoints, read and changed through Connect's API."""
