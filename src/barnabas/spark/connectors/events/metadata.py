"""Machine: the records beside change events: transactions (provide.transaction.metadata), and heartbeats.

    topic prefix.transaction             {id}: {status: BEGIN or END, id, ts_ms, event_count, data_collections}
    topic __debezium-heartbeat.prefix    {serverName}: {ts_ms}

Source: io.debezium.pipeline.txmetadata.TransactionStructMaker, io.debezium.heartbeat.HeartbeatImpl.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from barnabas.client.columns.byte_column import pa
from barnabas.spark.connectors.arrow_fields import record_field
from barnabas.spark.connectors.connect_schemas import ConnectSchema, ConnectType, struct_schema
from barnabas.spark.connectors.events.changes import ChangedTransaction
from barnabas.spark.connectors.events.envelope import HEADERS_TYPE
from barnabas.spark.connectors.events.options import EventOptions

_COMMON: Final = "io.debezium.connector.common."
_TEXT: Final = ConnectSchema(ConnectType.STRING)
_INT64: Final = ConnectSchema(ConnectType.INT64)
_TRANSACTION_KEY: Final = struct_schema(_COMMON + "TransactionMetadataKey", {"id": _TEXT}, version=1)
_TRANSACTION_VALUE: Final = struct_schema(
    _COMMON + "TransactionMetadataValue",
    {
        "status": _TEXT,
        "id": _TEXT,
        "ts_ms": _INT64,
        "event_count": _INT64.as_optional(),
        "data_collections": ConnectSchema(
            ConnectType.ARRAY,
            True,
            items=struct_schema("event.collection", {"data_collection": _TEXT, "event_count": _INT64}, version=1),
        ),
    },
    version=1,
)
_HEARTBEAT_KEY: Final = struct_schema(_COMMON + "ServerNameKey", {"serverName": _TEXT}, version=1)
_HEARTBEAT_VALUE: Final = struct_schema(_COMMON + "Heartbeat", {"ts_ms": _INT64}, version=1)


def transaction_records(transactions: Sequence[ChangedTransaction], options: EventOptions) -> Any:
    """Two records for each transaction: BEGIN and END."""
    keys, values, times = [], [], []
    for one in transactions:
        collections = [{"data_collection": name, "event_count": count} for name, count in one.event_counts]
        begin = {"status": "BEGIN", "id": one.id, "ts_ms": one.ts_us // 1000}
        total = sum(count for _, count in one.event_counts)
        keys += [{"id": one.id}] * 2
        values += [begin, {**begin, "status": "END", "event_count": total, "data_collections": collections}]
        times += [one.ts_us] * 2
    topic = f"{options.topic_prefix}.transaction"
    return _records(topic, (_TRANSACTION_KEY, keys), (_TRANSACTION_VALUE, values), times)


def heartbeat_records(time_ms: int, options: EventOptions) -> Any:
    """The heartbeat of this time."""
    key, value = {"serverName": options.topic_prefix}, {"ts_ms": time_ms}
    topic = f"__debezium-heartbeat.{options.topic_prefix}"
    return _records(topic, (_HEARTBEAT_KEY, [key]), (_HEARTBEAT_VALUE, [value]), [time_ms * 1000])


def _records(
    topic: str, keys: tuple[ConnectSchema, list[Any]], values: tuple[ConnectSchema, list[Any]], times_us: list[int]
) -> Any:
    rows = len(times_us)
    key_field, value_field = record_field("key", keys[0]), record_field("value", values[0])
    columns = [
        pa.array(keys[1], key_field.type),
        pa.array(values[1], value_field.type),
        pa.nulls(rows, HEADERS_TYPE),
        pa.repeat(pa.scalar(topic), rows),
        pa.nulls(rows, pa.int32()),
        pa.array(times_us, pa.timestamp("us", "UTC")),
    ]
    names = ["headers", "topic", "partition", "timestamp"]
    fields = [key_field, value_field, *(pa.field(n, c.type) for n, c in zip(names, columns[2:], strict=True))]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
