"""Shells: queues (KIP-932): members' fetches and acknowledgements, and the share coordinator."""
