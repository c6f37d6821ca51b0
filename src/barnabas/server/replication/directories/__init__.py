"""Shells: the log directory of each replica, and moves between directories (KIP-113, KIP-858)."""
