"""Shells: share partitions, the leader's side of share groups (KIP-932)."""
