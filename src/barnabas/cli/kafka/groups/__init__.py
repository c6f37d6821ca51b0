"""Kafka's tools for groups and transactions."""
