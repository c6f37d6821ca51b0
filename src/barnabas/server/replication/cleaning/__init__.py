"""Compaction: what is due, and the process that does it."""
