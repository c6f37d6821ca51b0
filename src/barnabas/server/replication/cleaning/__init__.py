"""Shells: the log cleaner (compaction) and its process."""
