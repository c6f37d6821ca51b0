"""Kafka's tools for nodes, replicas, logs and the quorum."""
