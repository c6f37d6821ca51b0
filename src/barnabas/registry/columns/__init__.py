"""Codec: columns of keys and values in the wire format of schema registries: whole batches to typed Arrow, and back.

async for batch in consumer.arrow(value_format=AvroColumns(registry)): ...
await producer.send_arrow("orders", table, value="order", value_format=AvroColumns(registry, ORDER_SCHEMA))
"""

from __future__ import annotations

from barnabas.registry.columns.avro import AvroColumns
from barnabas.registry.columns.json import JsonColumns
from barnabas.registry.columns.protobuf import ProtobufColumns

__all__ = ["AvroColumns", "JsonColumns", "ProtobufColumns"]
