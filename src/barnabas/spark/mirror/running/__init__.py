"""Runs pairs of clusters: the clients, the internal topics, the jobs at their intervals, and the copier."""
