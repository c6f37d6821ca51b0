"""Kafka's tools for connectors and MirrorMaker."""
