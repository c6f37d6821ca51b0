"""Kafka Streams' own exactly-once system test, run against a broker that dies."""
