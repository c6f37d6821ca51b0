"""Kafka Connect's converters, for whole columns: keys and values as structs, and as bytes. `making.py` chooses one."""
