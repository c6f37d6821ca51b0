"""Cluster links: topics of another Kafka cluster, mirrored byte for byte at the same offsets (`docs/adr`)."""
