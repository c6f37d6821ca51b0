"""Kafka's tools that write, read, count and delete records."""
