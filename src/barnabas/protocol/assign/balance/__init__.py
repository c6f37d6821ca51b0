"""Plans that balance a cluster: which replicas move to which brokers. `planner.py` decides; nothing here does I/O."""
