"""Shell: what this node asks of other nodes: fills the ports of replication, coordination and the broker."""
