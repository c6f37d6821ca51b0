"""The coordinator of cluster links: their definitions, and the states of their mirror partitions."""
