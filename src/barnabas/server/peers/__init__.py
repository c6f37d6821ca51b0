"""Shell: requests to other nodes; implements ports of the packages replication, coordination and broker."""
