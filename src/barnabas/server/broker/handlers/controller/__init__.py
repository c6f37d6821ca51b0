"""Shells: the APIs that only controllers serve, on their own listener."""
