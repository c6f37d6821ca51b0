"""Shell: `python -m bench.registry_columns`: records per second of registry values, as columns and record by record.

Each row is the best of a few runs in memory on one core; the registry answers from memory. Budget on a 2-core machine:
Avro of flat records 2 M/s (fastavro one by one: tens of thousands), JSON 1 M/s.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from barnabas.registry import (
    AvroDeserializer,
    AvroSerializer,
    JsonDeserializer,
    JsonSerializer,
    RegisteredSchema,
    Schema,
)
from barnabas.registry.columns import AvroColumns, JsonColumns
from bench.records_columnar import best_seconds

BATCH = 100_000
FEW = 5_000
FLAT = {
    "type": "record",
    "name": "Ride",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "city", "type": "string"},
        {"name": "rider", "type": ["null", "string"]},
        {"name": "km", "type": "double"},
        {"name": "seats", "type": "int"},
        {"name": "paid", "type": "boolean"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
NESTED = {
    **FLAT,
    "fields": [*FLAT["fields"], {"name": "stops", "type": {"type": "array", "items": "string"}}],
}
KIND = pa.schema({"id": pa.int64(), "city": pa.string(), "rider": pa.string(), "km": pa.float64(), "paid": pa.bool_()})


class OneSchema:
    """As much of a registry's client as one schema needs."""

    def __init__(self) -> None:
        self._schema = Schema("{}")

    def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> RegisteredSchema:
        self._schema = schema
        return RegisteredSchema(subject, 1, 1, schema)

    def latest(self, subject: str) -> RegisteredSchema:
        return RegisteredSchema(subject, 1, 1, self._schema)

    def schema(self, schema_id: int, *, subject: str = "") -> Schema:
        return self._schema

    def dependencies(self, schema: Schema) -> dict[str, Schema]:
        return {}


def ride(n: int) -> dict[str, Any]:
    rider = None if n % 5 == 0 else f"rider-{n % 999}"
    return {"id": n, "city": ("Oslo", "Turin")[n % 2], "rider": rider, "km": n / 7, "seats": n % 4, "paid": n % 3 == 0}


def values(nested: bool) -> list[dict[str, Any]]:
    stops = {"stops": ["a", "b"]} if nested else {}
    return [ride(n) | {"at": 1_700_000_000_000 + n} | stops for n in range(BATCH)]


def avro(nested: bool) -> Iterator[tuple[str, float]]:
    """(what, records per second)"""
    registry: Any = OneSchema()
    schema = json.dumps(NESTED if nested else FLAT)
    serializer, deserializer = AvroSerializer(registry, schema), AvroDeserializer(registry)
    rides = values(nested)
    rows = [serializer.serialize("t", (), one) for one in rides]
    column = pa.array(rows, pa.binary())
    columns = AvroColumns(registry, schema)
    typed = columns.decode(column, "t").values
    yield "read: AvroDeserializer", rate(FEW, lambda: [deserializer.deserialize("t", (), row) for row in rows[:FEW]])
    yield "read: AvroColumns", rate(BATCH, lambda: columns.decode(column, "t"))
    yield "write: AvroSerializer", rate(FEW, lambda: [serializer.serialize("t", (), one) for one in rides[:FEW]])
    few = typed.slice(0, FEW) if nested else typed
    yield "write: AvroColumns", rate(len(few), lambda: columns.encode(few, "t"))


def json_values() -> Iterator[tuple[str, float]]:
    registry: Any = OneSchema()
    serializer = JsonSerializer(registry, '{"type": "object"}')
    rows = [serializer.serialize("t", (), one) for one in values(nested=True)]
    column = pa.array(rows, pa.binary())
    for checked in (True, False):
        read = JsonDeserializer(registry, validate=checked).deserialize
        label = "read: JsonDeserializer" + ("" if checked else ", not validating")
        yield label, rate(FEW, lambda read=read: [read("t", (), row) for row in rows[:FEW]])  # type: ignore[misc]
    for label, kind in (("of a given type", KIND), ("of the type found", None)):
        columns = JsonColumns(registry, kind)
        yield f"read: JsonColumns {label}", rate(BATCH, lambda columns=columns: columns.decode(column, "t"))  # type: ignore[misc]


def rate(count: int, work: Callable[[], Any]) -> float:
    return count / best_seconds(work, 0.5)


def main() -> None:
    console = Console()
    for title, rows in (
        ("Avro, 7 flat fields", avro(nested=False)),
        ("Avro with an array (no program)", avro(nested=True)),
        ("JSON, 8 fields", json_values()),
    ):
        table = Table("", "records/s", title=title)
        for name, found in rows:
            table.add_row(name, f"{found:,.0f}")
        console.print(table)


if __name__ == "__main__":
    main()
