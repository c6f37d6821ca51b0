"""Replication: the partitions that this broker hosts, as leader or follower. Start reading at `partition.py`."""
