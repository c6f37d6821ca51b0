"""A data directory: lock, identity, checkpoints, and logs that move to another."""
