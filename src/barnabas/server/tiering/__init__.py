"""Tiered storage: closed segments in an object store (KIP-405)."""
