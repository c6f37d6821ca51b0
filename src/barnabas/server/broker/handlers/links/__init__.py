"""Shells: the APIs of cluster links (keys from 10003 on, of Barnabas, not of Kafka)."""
