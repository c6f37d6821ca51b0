"""Shells: the APIs of share groups (KIP-932): fetching, acknowledging, and the share coordinator, one file each."""
