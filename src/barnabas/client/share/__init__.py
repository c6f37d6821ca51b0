"""Share groups (queues)."""
