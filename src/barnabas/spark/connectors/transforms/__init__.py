"""Kafka Connect's single message transforms and predicates as pure functions on Arrow record batches."""
