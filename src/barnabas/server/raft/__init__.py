"""Consensus after Kafka's KRaft: a state machine, and the driver that does its I/O. See README.md."""
