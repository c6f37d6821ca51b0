"""Kafka's wire protocol: message classes and codecs, without I/O."""
