"""Machines of replication: leader, follower, ISR, high watermark, share partitions. No clock, no disk, no sockets."""
