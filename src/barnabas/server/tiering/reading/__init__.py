"""Reads of remote segments: records, records by timestamp, aborted transactions, producers and leader epochs."""
