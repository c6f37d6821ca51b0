"""Columns are what record-by-record deserializing gives, for any schema that columns know and any bytes."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.registry import AvroDeserializer, AvroSerializer, JsonSerializer
from barnabas.registry.columns import AvroColumns, JsonColumns
from tests.unit.registry.memory_registry import memory_registry

LEAVES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=20),
    "string": st.text(max_size=20),
}
WIDER = {"int": ["long", "double"], "long": ["double"], "float": ["double"]}


@st.composite
def shapes(draw: st.DrawFn, depth: int, names: list[int]) -> tuple[Any, st.SearchStrategy[Any]]:
    """(a schema, its values)"""
    kinds = ["leaf"] * 4 + ["enum", "fixed"] + (["record", "record", "array", "map"] if depth < 2 else [])
    kind = draw(st.sampled_from(kinds))
    names[0] += 1
    schema: Any
    values: st.SearchStrategy[Any]
    if kind == "leaf":
        schema = draw(st.sampled_from(sorted(LEAVES)))
        values = LEAVES[schema]
    elif kind == "enum":
        schema, values = {"type": "enum", "name": f"E{names[0]}", "symbols": ["X", "Y"]}, st.sampled_from("XY")
    elif kind == "fixed":
        size = draw(st.integers(1, 4))
        schema = {"type": "fixed", "name": f"F{names[0]}", "size": size}
        values = st.binary(min_size=size, max_size=size)
    elif kind == "record":
        schema, values = draw(records(depth + 1, names))
    elif kind == "array":
        items, each = draw(shapes(depth + 1, names))
        schema, values = {"type": "array", "items": items}, st.lists(each, max_size=3)
    else:
        items, each = draw(shapes(depth + 1, names))
        schema = {"type": "map", "values": items}
        values = st.dictionaries(st.text(max_size=3), each, max_size=3)
    match draw(st.sampled_from(["never", "never", "first", "second"])):
        case "first":
            return ["null", schema], st.none() | values
        case "second":
            return [schema, "null"], st.none() | values
    return schema, values


@st.composite
def records(draw: st.DrawFn, depth: int, names: list[int]) -> tuple[Any, st.SearchStrategy[Any]]:
    name = f"R{names[0]}"
    fields = {f"f{n}": draw(shapes(depth, names)) for n in range(draw(st.integers(1, 5)))}
    schema = {"type": "record", "name": name, "fields": [{"name": n, "type": s} for n, (s, _) in fields.items()]}
    return schema, st.fixed_dictionaries({n: v for n, (_, v) in fields.items()})


def evolved(draw: st.DrawFn, schema: Any) -> Any:
    """A reader's schema for a record: fields gone, moved, new, wider, nullable."""
    fields = []
    for one in schema["fields"]:
        kind = one["type"]
        match draw(st.sampled_from(["keep", "keep", "drop", "widen", "nullable"])):
            case "drop":
                continue
            case "widen" if isinstance(kind, str) and kind in WIDER:
                kind = draw(st.sampled_from(WIDER[kind]))
            case "nullable" if not isinstance(kind, list):
                kind = ["null", kind]
        fields.append({"name": one["name"], "type": kind})
    fields.append({"name": "new", "type": ["null", "string"], "default": None})
    fields.append({"name": "more", "type": "long", "default": 7})
    return {**schema, "fields": draw(st.permutations(fields))}


def as_dictionaries(kind: Any, value: Any) -> Any:
    """Arrow's pairs of a map as a dictionary."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: as_dictionaries(field.type, value[field.name]) for field in kind}
    if pa.types.is_list(kind):
        return [as_dictionaries(kind.value_type, one) for one in value]
    if pa.types.is_map(kind):
        return {key: as_dictionaries(kind.item_type, one) for key, one in value}
    return value


@given(st.data())
@settings(max_examples=120, deadline=None)
def test_avro_columns_are_the_records(data: st.DataObject) -> None:
    registry = memory_registry()
    schema, values = data.draw(records(0, [0]))
    write = AvroSerializer(registry, json.dumps(schema))
    rows = [write.serialize("t", (), value) for value in data.draw(st.lists(st.none() | values, max_size=6))]
    reader = data.draw(st.composite(lambda draw: evolved(draw, schema))()) if data.draw(st.booleans()) else schema
    columns = AvroColumns(registry, json.dumps(reader))
    column = columns.decode(pa.array(rows, pa.binary()), "t").values
    column.validate(full=True)
    read = AvroDeserializer(registry, json.dumps(reader))
    expected = [read.deserialize("t", (), row) for row in rows]
    assert [as_dictionaries(column.type, value) for value in column.to_pylist()] == expected
    if reader is schema:
        again = AvroColumns(registry, json.dumps(schema)).encode(column, "t")
        assert [read.deserialize("t", (), row) for row in again.to_pylist()] == expected


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_foreign_bytes_are_read_alike_or_fail(data: st.DataObject) -> None:
    registry = memory_registry()
    schema, values = data.draw(records(0, [0]))
    text = json.dumps(schema)
    good = AvroSerializer(registry, text).serialize("t", (), data.draw(values))
    assert good is not None
    rows = [good[:5] + noise for noise in data.draw(st.lists(st.binary(max_size=40), max_size=5))]
    rows += [good[:cut] for cut in data.draw(st.lists(st.integers(0, len(good)), max_size=5))] + [good]
    decoded = AvroColumns(registry, text, on_error="null").decode(pa.array(rows, pa.binary()), "t")
    decoded.values.validate(full=True)
    assert decoded.errors is not None
    read = AvroDeserializer(registry, text)
    for row, value, problem in zip(rows, decoded.values.to_pylist(), decoded.errors.to_pylist(), strict=True):
        assert (value is None) == (problem is not None)
        if problem is None:
            expected = read.deserialize("t", (), row)
            assert repr(as_dictionaries(decoded.values.type, value)) == repr(expected)  # repr: NaN is itself


@given(
    st.lists(
        st.none()
        | st.fixed_dictionaries(
            {"n": st.none() | st.integers(-(2**53), 2**53), "t": st.text(), "l": st.lists(st.booleans(), max_size=3)},
            optional={"more": st.text()},
        ),
        max_size=8,
    ),
    st.sampled_from([None, 1]),
)
@settings(max_examples=100, deadline=None)
def test_json_columns_are_the_documents(documents: list[Any], indent: int | None) -> None:
    registry = memory_registry()
    schema_id = JsonSerializer(registry, "{}").prepare("t").id
    start = b"\0" + schema_id.to_bytes(4, "big")
    rows = [None if one is None else start + json.dumps(one, indent=indent).encode() for one in documents]
    kind = pa.struct({"n": pa.int64(), "t": pa.string(), "l": pa.list_(pa.bool_())})
    column = JsonColumns(registry, kind).decode(pa.array(rows, pa.binary()), "t").values
    assert column.to_pylist() == [
        None if one is None else {name: one[name] for name in ("n", "t", "l")} for one in documents
    ]
