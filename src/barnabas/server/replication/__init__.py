"""Partitions on this node: who leads, what is committed, who waits. Records stay bytes; storage keeps them."""
