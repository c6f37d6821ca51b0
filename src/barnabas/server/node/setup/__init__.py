"""Determines a node's topology, listeners, ids and log directories before the node starts."""
