"""Queues (KIP-932): share partitions, read and written."""
