"""Kafka's tools for configs, ACLs, users, quotas and tokens."""
