"""Kafka Connect's own transforms and ours: the same configuration and records in, the same records or an error out."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from barnabas.spark.connectors.transforms.chain import compile_chain
from barnabas.spark.connectors.transforms.definitions import TRANSFORMS
from barnabas.spark.connectors.transforms.errors import RowFailure, TransformConfigError
from barnabas.spark.connectors.transforms.records import HEADERS_TYPE, json_field
from tests.interop.jars import kafka_classpath

SOURCE = Path(__file__).parent / "java" / "Transforms.java"
DATA = "org.apache.kafka.connect.data"
PACKAGE = "org.apache.kafka.connect.transforms."

NESTED = {
    "type": "struct",
    "optional": True,
    "field": "n",
    "fields": [
        {"type": "string", "optional": False, "field": "s"},
        {"type": "int64", "optional": True, "field": "l"},
    ],
}
SCHEMA: dict[str, Any] = {
    "type": "struct",
    "optional": True,
    "name": "shop.Order",
    "version": 3,
    "fields": [
        {"type": "int32", "optional": False, "field": "i"},
        {"type": "int64", "optional": True, "field": "l"},
        {"type": "double", "optional": True, "field": "d"},
        {"type": "float", "optional": True, "field": "f"},
        {"type": "boolean", "optional": True, "field": "b"},
        {"type": "string", "optional": True, "field": "s"},
        {"type": "bytes", "optional": True, "field": "y"},
        {"type": "int64", "optional": True, "name": f"{DATA}.Timestamp", "version": 1, "field": "ts"},
        {"type": "int32", "optional": True, "name": f"{DATA}.Date", "version": 1, "field": "day"},
        {"type": "array", "optional": True, "items": {"type": "int32", "optional": False}, "field": "a"},
        NESTED,
    ],
}  # fmt: skip
FULL = {
    "i": 7, "l": -1_700_000_000_123, "d": 12345678.9, "f": 0.1, "b": True, "s": "2024-02-29 12:34:56", "y": "AP8=",
    "ts": 1_709_210_096_789, "day": 19_782, "a": [1, 2], "n": {"s": "in", "l": 5},
}  # fmt: skip
EMPTY = {**dict.fromkeys(FULL), "i": -300}
KEY_SCHEMA = {"type": "struct", "optional": False, "fields": [{"type": "int32", "optional": False, "field": "id"}]}
PLAIN = {"i": 7, "l": -1_700_000_000_123, "d": 2.5, "b": False, "s": "12", "z": None, "n": {"s": "in", "m": {"x": 1}}}

CASES: list[tuple[str, dict[str, str]]] = [
    ("Cast$Value", {"spec": "i:int8,d:int32,f:string,b:int64,ts:string,l:float64,y:string,missing:int32"}),
    ("Cast$Value", {"spec": "s:int64"}),
    ("Cast$Value", {"spec": "d:boolean,ts:int64,day:int32,i:string"}),
    ("Cast$Value", {"spec": "string"}),
    ("Cast$Key", {"spec": "id:string"}),
    ("Cast$Value", {"spec": "n:string"}),
    ("DropHeaders", {"headers": "a,none"}),
    ("ExtractField$Value", {"field": "n"}),
    ("ExtractField$Value", {"field": "n.l", "field.syntax.version": "V2"}),
    ("ExtractField$Value", {"field": "missing"}),
    ("ExtractField$Key", {"field": "id"}),
    ("Filter", {}),
    ("Flatten$Value", {}),
    ("Flatten$Value", {"delimiter": "_"}),
    ("HeaderFrom$Value", {"fields": "i,s", "headers": "h1,h2", "operation": "move"}),
    ("HeaderFrom$Value", {"fields": "d,b,n", "headers": "h1,h2,h3", "operation": "copy"}),
    ("HeaderFrom$Value", {"fields": "missing", "headers": "h1", "operation": "copy"}),
    ("HoistField$Value", {"field": "wrapped"}),
    ("HoistField$Key", {"field": "k"}),
    ("InsertField$Value", {"topic.field": "topic!", "partition.field": "p", "offset.field": "o?"}),
    ("InsertField$Value", {"timestamp.field": "at", "static.field": "c", "static.value": "x"}),
    ("InsertField$Value", {"static.field": "c", "static.value": "x"}),
    ("InsertField$Key", {"static.field": "c!", "static.value": "x", "topic.field": "t"}),
    ("InsertField$Value", {"topic.field": "i"}),
    ("InsertHeader", {"header": "h", "value.literal": "text"}),
    ("MaskField$Value", {"fields": "i,l,d,b,s"}),
    ("MaskField$Value", {"fields": "i,l,d,s", "replacement": "42"}),
    ("MaskField$Value", {"fields": "b", "replacement": "1"}),
    ("MaskField$Value", {"fields": "n"}),
    ("MaskField$Value", {"fields": "a,missing"}),
    ("RegexRouter", {"regex": "(.*)-(\\d+)", "replacement": "$2_$1"}),
    ("RegexRouter", {"regex": "o|orders-1", "replacement": "X"}),
    ("RegexRouter", {"regex": "orders", "replacement": "never"}),
    ("ReplaceField$Value", {"exclude": "l,n", "renames": "i:id,s:name"}),
    ("ReplaceField$Value", {"include": "i,s"}),
    ("ReplaceField$Key", {"renames": "id:key"}),
    ("SetSchemaMetadata$Value", {"schema.name": "other", "schema.version": "9"}),
    ("TimestampConverter$Value", {"field": "l", "target.type": "string", "format": "yyyy-MM-dd HH:mm:ss.SSS"}),
    ("TimestampConverter$Value", {"field": "l", "target.type": "unix", "unix.precision": "seconds"}),
    ("TimestampConverter$Value", {"field": "ts", "target.type": "Date"}),
    ("TimestampConverter$Value", {"field": "ts", "target.type": "Time"}),
    ("TimestampConverter$Value", {"field": "s", "target.type": "Timestamp", "format": "yyyy-MM-dd HH:mm:ss"}),
    ("TimestampConverter$Value", {"field": "s", "target.type": "unix", "format": "yyyy-MM-dd HH:mm:ss"}),
    ("TimestampConverter$Value", {"field": "day", "target.type": "unix", "unix.precision": "microseconds"}),
    ("TimestampConverter$Value", {"field": "i", "target.type": "unix"}),
    ("TimestampRouter", {}),
    ("TimestampRouter", {"topic.format": "x-${timestamp}-${topic}", "timestamp.format": "yyyy.MM"}),
    ("ValueToKey", {"fields": "i,s"}),
    ("ValueToKey", {"fields": "missing"}),
]


def records(schemas: bool) -> list[dict[str, Any]]:
    values: list[Any] = [FULL, EMPTY, None] if schemas else [PLAIN, {}, None]
    keys: list[Any] = [{"id": 1}, {"id": 2}, {"id": 3}]
    if schemas:
        values = [None if value is None else {"schema": SCHEMA, "payload": value} for value in values]
        keys = [{"schema": KEY_SCHEMA, "payload": key} for key in keys]
    return [
        {"topic": "orders-1", "partition": 2, "offset": 10 + n, "timestamp": 1_709_210_096_789,
         "key": key, "value": value, "headers": [["a", "1x"], ["b", "two"], ["a", "3x"]]}
        for n, (key, value) in enumerate(zip(keys, values, strict=True))
    ]  # fmt: skip


_TYPES = {
    "boolean": pa.bool_(), "int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64(),
    "float": pa.float32(), "double": pa.float64(), "string": pa.string(), "bytes": pa.binary(),
}  # fmt: skip


def arrow_field(schema: dict[str, Any], name: str) -> Any:
    if schema["type"] == "struct":
        type_ = pa.struct([arrow_field(each, each["field"]) for each in schema["fields"]])
    elif schema["type"] == "array":
        type_ = pa.list_(arrow_field(schema["items"], "element"))
    else:
        type_ = _TYPES[schema["type"]]
    metadata = {f"connect.{word}": str(schema[word]) for word in ("name", "version") if word in schema}
    return pa.field(name, type_, schema["optional"], metadata or None)


def connect_schema(field: Any) -> dict[str, Any]:
    result: dict[str, Any] = {"optional": field.nullable}
    if pa.types.is_struct(field.type):
        result["type"] = "struct"
        result["fields"] = [{**connect_schema(each), "field": each.name} for each in field.type]
    elif pa.types.is_list(field.type):
        result |= {"type": "array", "items": connect_schema(field.type.value_field)}
    else:
        result["type"] = next(name for name, type_ in _TYPES.items() if type_ == field.type)
    for word, parse in (("name", str), ("version", int)):
        if (text := (field.metadata or {}).get(f"connect.{word}".encode())) is not None:
            result[word] = parse(text.decode())
    return result


def payload(value: Any, type_: Any, *, read: bool) -> Any:
    """A value of JsonConverter as Arrow takes it (`read`), or back."""
    if value is None:
        return None
    if pa.types.is_binary(type_):
        return base64.b64decode(value) if read else base64.b64encode(value).decode()
    if pa.types.is_struct(type_):
        return {each.name: payload(value.get(each.name), each.type, read=read) for each in type_}
    if pa.types.is_float32(type_) and not read:
        return pa.scalar(value, type_).cast(pa.string()).as_py() and float(
            str(pa.scalar(value, type_).cast(pa.string()))
        )
    return value


def column(cells: list[Any], name: str, schemas: bool) -> tuple[Any, Any]:
    if not schemas:
        return json_field(name), pa.array([None if cell is None else json.dumps(cell) for cell in cells], pa.string())
    field = arrow_field(next(cell["schema"] for cell in cells if cell is not None), name)
    values = [None if cell is None else payload(cell["payload"], field.type, read=True) for cell in cells]
    return field, pa.array(values, field.type)


def ours(type_: str, config: dict[str, str], rows: list[dict[str, Any]], *, schemas: bool) -> list[dict[str, Any]]:
    columns = [column([row[name] for row in rows], name, schemas) for name in ("key", "value")]
    headers = [[{"key": key, "value": text.encode()} for key, text in row["headers"]] for row in rows]
    columns.append((pa.field("headers", HEADERS_TYPE), pa.array(headers, HEADERS_TYPE)))
    for name, arrow in (("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())):
        columns.append((pa.field(name, arrow), pa.array([row[name] for row in rows], arrow)))
    stamp = pa.timestamp("ms", "UTC")
    columns.append((pa.field("timestamp", stamp), pa.array([row["timestamp"] for row in rows], stamp)))
    batch = pa.RecordBatch.from_arrays(
        [array for _, array in columns], schema=pa.schema([field for field, _ in columns])
    )
    keys = {"transforms": "t", "transforms.t.type": type_} | {
        f"transforms.t.{key}": text for key, text in config.items()
    }
    try:
        chain = compile_chain(keys)
    except TransformConfigError:
        return [{"error": True}] * len(rows)
    failures: list[RowFailure] = []
    results: list[dict[str, Any]] = [{} for _ in rows]
    for found in chain.apply(batch, failures):
        for offset, result in zip(found.column("offset").to_pylist(), shown(found), strict=True):
            results[offset - 10] = result
    for failure in failures:
        results[failure.row] = {"error": True}
    return results


def shown(batch: Any) -> list[dict[str, Any]]:
    parts: dict[str, list[Any]] = {"topic": batch.column("topic").to_pylist()}
    for name in ("key", "value"):
        field, cells = batch.schema.field(name), batch.column(name).to_pylist()
        if (field.metadata or {}).get(b"barnabas.format") == b"json" or pa.types.is_null(field.type):
            parts[name] = [None if cell is None else json.loads(cell) for cell in cells]
        else:
            schema = connect_schema(field)
            parts[name] = [
                None if cell is None else {"schema": schema, "payload": payload(cell, field.type, read=False)}
                for cell in cells
            ]
    parts["headers"] = [
        [[each["key"], None if each["value"] is None else each["value"].decode()] for each in row or ()]
        for row in batch.column("headers").to_pylist()
    ]
    return [dict(zip(parts, row, strict=True)) for row in zip(*parts.values(), strict=True)]


def theirs() -> list[list[dict[str, Any]]]:
    cases = [
        {"type": PACKAGE + type_, "config": config, "schemas": schemas, "records": records(schemas)}
        for schemas in (True, False)
        for type_, config in CASES
    ]
    return answers_of(cases, kafka_classpath())


def answers_of(cases: list[dict[str, Any]], classpath: str) -> list[list[dict[str, Any]]]:
    """What transforms of Java make of the records of each case."""
    done = subprocess.run(
        ["java", "-XX:TieredStopAtLevel=1", "-cp", classpath, str(SOURCE)],
        input="\n".join(map(json.dumps, cases)),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]


def comparable(result: dict[str, Any], theirs_too: dict[str, Any]) -> Any:
    if "error" in result:
        return {"error": True}
    found = dict(result)
    for name in ("key", "value"):
        cell, other = found.get(name), theirs_too.get(name)
        if isinstance(cell, dict) and set(cell) == {"schema", "payload"}:
            if cell["payload"] is None:
                found[name] = None  # a null with a schema is a tombstone here
            elif isinstance(other, dict) and other.get("schema") is None:
                found[name] = cell["payload"]  # HoistField wraps a tombstone, whose schema Connect does not know
    return found


def differences(one: Any, other: Any, path: str) -> list[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        names = dict.fromkeys([*one, *other])
        return [line for name in names for line in differences(one.get(name), other.get(name), f"{path}.{name}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [line for at, (a, b) in pairs for line in differences(a, b, f"{path}[{at}]")]
    return [] if one == other else [f"  {path}: ours {one!r}, theirs {other!r}"]


@pytest.fixture(scope="module")
def answers() -> list[list[dict[str, Any]]]:
    return theirs()


@pytest.mark.parametrize("schemas", [True, False], ids=["struct", "json"])
def test_transforms_give_what_those_of_kafka_connect_give(answers: list[list[dict[str, Any]]], schemas: bool) -> None:
    wrong = []
    for number, (type_, config) in enumerate(CASES):
        expected = answers[number if schemas else number + len(CASES)]
        found = ours(type_, config, records(schemas), schemas=schemas)
        for row, (one, other) in enumerate(zip(found, expected, strict=True)):
            if comparable(one, other) != comparable(other, other):
                wrong.append(f"{type_} {config} record {row}\n" + "\n".join(differences(one, other, "")))
    assert not wrong, "\n".join(wrong)


def test_the_cases_have_every_transform() -> None:
    assert {type_.partition("$")[0] for type_, _ in CASES} == {definition.name for definition in TRANSFORMS}
