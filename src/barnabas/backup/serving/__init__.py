"""A backup as a read-only Kafka cluster of one broker, from which brokers mirror it."""
