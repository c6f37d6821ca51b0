"""Handlers of the metrics that clients push (KIP-714)."""
