"""Codec: decodes columns of framed keys and values into typed Arrow columns, in whole batches, and encodes them.

async for batch in consumer.arrow(value_format=AvroColumns(registry)): ...
await producer.send_arrow("orders", table, value="order", value_format=AvroColumns(registry, ORDER_SCHEMA))
"""

from __future__ import annotations

from barnabas.registry.columns.avro import AvroColumns
from barnabas.registry.columns.json import JsonColumns
from barnabas.registry.columns.protobuf import ProtobufColumns

__all__ = ["AvroColumns", "JsonColumns", "ProtobufColumns"]
