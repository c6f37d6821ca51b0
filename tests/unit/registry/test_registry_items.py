"""Arrays, maps and decimals in Avro columns, read by programs, including unusual and invalid rows."""

from __future__ import annotations

import json
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from barnabas.registry import AvroDeserializer, AvroSerializer, Schema
from barnabas.registry.columns import AvroColumns
from barnabas.registry.columns.avro_program import NoProgramError, compile_avro
from barnabas.registry.columns.avro_types import load_avro
from tests.unit.registry.memory_registry import memory_registry


def record(**fields: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t in fields.items()]})


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def mapping(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


def decimal(precision: int, scale: int, **base: Any) -> dict[str, Any]:
    return {"type": "bytes", **base, "logicalType": "decimal", "precision": precision, "scale": scale}


LINE = {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}, {"name": "n", "type": "int"}]}
ORDER = record(
    tags=array("string"),
    attributes=["null", mapping(["null", "double"])],
    lines=array(LINE),
    grid=array(array("long")),
    price=decimal(12, 2),
    weight=["null", decimal(5, 3, type="fixed", name="W", size=4)],
    last="string",
)
ORDERS: list[Any] = [
    {
        "tags": ["a", "", "c\u00e9"],
        "attributes": {"x": 1.5, "y": None},
        "lines": [{"sku": "s1", "n": 1}, {"sku": "s2", "n": -2}],
        "grid": [[1, 2], [], [3]],
        "price": Decimal("-12345.67"),
        "weight": Decimal("-0.001"),
        "last": "end",
    },
    {"tags": [], "attributes": None, "lines": [], "grid": [], "price": Decimal(0), "weight": None, "last": ""},
    None,
    {
        "tags": [str(n) for n in range(300)],
        "attributes": {},
        "lines": [],
        "grid": [[n] * n for n in range(12)],
        "price": Decimal("9999999999.99"),
        "weight": Decimal("99.999"),
        "last": "z",
    },
]


def rows_of(column: Any) -> list[Any]:
    rows: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    return rows


def frame(payload: str) -> bytes:
    return b"\0" + struct.pack(">i", 1) + bytes.fromhex(payload)


def columns(schema: str, **options: Any) -> AvroColumns:
    """Columns of a registry in which `schema` has the id 1."""
    registry = memory_registry()
    registry.register("t-value", Schema(schema))
    return AvroColumns(registry, schema, **options)


def test_programs_and_fastavro_read_the_same_values() -> None:
    registry = memory_registry()
    serializer = AvroSerializer(registry, ORDER)
    schema = load_avro(registry, Schema(ORDER))
    compile_avro(schema, schema)  # does not raise NoProgramError
    written = [None if row is None else serializer.serialize("t", (), row) for row in ORDERS]
    assert rows_of(AvroColumns(registry, ORDER).decode(pa.array(written, pa.binary()), "t").values) == ORDERS
    reader = AvroDeserializer(registry)
    assert [None if row is None else reader.deserialize("t", (), row) for row in written] == ORDERS


def test_fields_that_the_reader_does_not_have_are_skipped() -> None:
    registry = memory_registry()
    serializer = AvroSerializer(registry, ORDER)
    written = pa.array([None if row is None else serializer.serialize("t", (), row) for row in ORDERS], pa.binary())
    reader = record(lines=array({**LINE, "fields": LINE["fields"][1:]}), last="string")
    expected = [row and {"lines": [{"n": line["n"]} for line in row["lines"]], "last": row["last"]} for row in ORDERS]
    assert rows_of(AvroColumns(registry, reader).decode(written, "t").values) == expected


@pytest.mark.parametrize(
    ("payload", "items"),
    [
        ("00", []),
        ("04020400", [1, 2]),
        ("020204040600", [1, 2, 3]),  # two blocks
        ("03040204020600", [1, 2, 3]),  # a block of two items with its size in bytes, then a block of one
    ],
)
def test_array_blocks_are_read(payload: str, items: list[int]) -> None:
    ours = columns(record(a=array("long")))
    assert rows_of(ours.decode(pa.array([frame(payload)], pa.binary()), "t").values) == [{"a": items}]
    assert AvroDeserializer(ours._registry).deserialize("t", (), frame(payload)) == {"a": items}


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        ("", "the row ends before its last field"),
        ("02", "the length of a field is larger than the rest of the row"),
        ("0204", "the row ends before its last field"),  # one item, and no end marker
        ("feffffffff0f02", "the length of a field is larger than the rest of the row"),  # 2 ** 35 items
        ("01", "the row ends before its last field"),  # a negative count needs a size
        ("ffffffffffffffffff01", "the row ends before its last field"),
    ],
)
def test_only_truncated_or_invalid_rows_fail(payload: str, problem: str) -> None:
    ours = columns(record(a=array("long")), on_error="null")
    decoded = ours.decode(pa.array([frame("020200"), frame(payload), frame("020400")], pa.binary()), "t")
    assert rows_of(decoded.values) == [{"a": [1]}, None, {"a": [2]}]
    assert decoded.errors is not None
    assert decoded.errors.to_pylist() == [None, problem, None]


def test_only_rows_with_too_large_decimals_fail() -> None:
    ours = columns(record(d=decimal(4, 1)), on_error="null")
    long, wide = f"28{'00' * 18}7fff", f"22{'01' * 17}"
    payloads = ["04270f", "04d8f1", "042710", "00", long, wide]
    decoded = ours.decode(pa.array([frame(payload) for payload in payloads], pa.binary()), "t")
    values = [row and row["d"] for row in rows_of(decoded.values)]
    assert values == [Decimal("999.9"), Decimal("-999.9"), None, Decimal("0.0"), None, None]
    assert decoded.errors is not None
    assert [error is None for error in decoded.errors.to_pylist()] == [True, True, False, True, False, False]


@pytest.mark.parametrize(
    "items",
    [
        "null",
        {"type": "record", "name": "Empty", "fields": []},
        {"type": "fixed", "name": "F0", "size": 0},
        ["null", "int", "string"],
    ],
)
def test_zero_byte_items_have_no_program(items: Any) -> None:
    """Items of zero bytes have no program, because a row of three bytes could declare any number of them."""
    schema = load_avro(memory_registry(), Schema(record(a=array(items))))
    with pytest.raises((NoProgramError, ValueError)):
        compile_avro(schema, schema)


def test_nested_arrays_have_programs_up_to_a_depth() -> None:
    deep: Any = "long"
    for _ in range(16):
        deep = array(deep)
    schema = load_avro(memory_registry(), Schema(record(a=deep)))
    compile_avro(schema, schema)
    schema = load_avro(memory_registry(), Schema(record(a=array(deep))))
    with pytest.raises(NoProgramError, match="too deep"):
        compile_avro(schema, schema)


def test_a_recursive_field_that_the_reader_lacks_is_read_row_by_row() -> None:
    """The program would skip the field within the field within the field, without an end."""
    node = json.dumps(
        {
            "type": "record",
            "name": "Node",
            "fields": [
                {"name": "id", "type": "long"},
                {"name": "next", "type": ["null", "Node"]},
                {"name": "children", "type": array("Node")},
            ],
        }
    )
    flat = json.dumps({"type": "record", "name": "Node", "fields": [{"name": "id", "type": "long"}]})
    registry = memory_registry()
    value = {
        "id": 1,
        "next": {"id": 2, "next": None, "children": []},
        "children": [{"id": 3, "next": None, "children": []}],
    }
    written = AvroSerializer(registry, node).serialize("t", (), value)
    with pytest.raises(NoProgramError, match="contains itself"):
        compile_avro(load_avro(registry, Schema(node)), load_avro(registry, Schema(flat)))
    with pytest.raises(NoProgramError, match="contains itself"):
        compile_avro(load_avro(registry, Schema(node)), load_avro(registry, Schema(node)))
    assert rows_of(AvroColumns(registry, flat).decode(pa.array([written]), "t").values) == [{"id": 1}]


def test_a_short_schema_with_a_million_fields_has_no_program() -> None:
    """Each record has the next one twice: 2 to the power of 20 fields in a schema of 20 records."""
    kind: Any = {"type": "record", "name": "R0", "fields": [{"name": "x", "type": "int"}]}
    for n in range(1, 21):
        name = kind["name"]
        kind = {"type": "record", "name": f"R{n}", "fields": [{"name": "a", "type": kind}, {"name": "b", "type": name}]}
    writer = json.dumps(
        {"type": "record", "name": "T", "fields": [{"name": "big", "type": kind}, {"name": "id", "type": "int"}]}
    )
    reader = json.dumps({"type": "record", "name": "T", "fields": [{"name": "id", "type": "int"}]})
    registry = memory_registry()
    with pytest.raises(NoProgramError, match="too many fields"):
        compile_avro(load_avro(registry, Schema(writer)), load_avro(registry, Schema(reader)))
