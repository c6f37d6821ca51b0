"""Shells: maintenance of the logs, by a schedule and on demand: retention, compaction, checkpoints, file deletion."""
