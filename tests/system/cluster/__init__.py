"""Clusters of real processes: what users see of them, and what is left of it when they are killed and cut off."""
