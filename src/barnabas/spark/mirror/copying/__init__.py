"""Copies the records of one pair of clusters, in Spark tasks: fetched batches become batches of the target topics."""
