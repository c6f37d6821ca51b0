"""What a node settles before it starts: its place in the cluster, its addresses, its identity, its directories."""
