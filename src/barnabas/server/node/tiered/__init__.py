"""Tiered storage on this node: its settings, the topic of events over the peers, and the partitions that take part."""
