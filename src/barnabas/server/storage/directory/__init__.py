"""A data directory: lock, identity, checkpoints, and copies of logs that move to another directory."""
