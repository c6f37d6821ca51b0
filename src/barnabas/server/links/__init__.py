"""Cluster links on the side that decides: their coordinators, requests to them, and what they copy besides records."""
