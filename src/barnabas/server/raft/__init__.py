"""Consensus after Kafka's KRaft: the machine decides, the driver does. See README.md."""
