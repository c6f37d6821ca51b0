"""Avro compatibility against fastavro: what the checker allows can be read, and what cannot be read it refuses."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from barnabas.registry.formats.avro import AvroSchema, parse_avro

PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
NAMES = ["a", "b", "c", "d"]
SYMBOLS = ["X", "Y", "Z"]


@st.composite
def schemas(draw: st.DrawFn, depth: int = 0, taken: list[int] | None = None) -> Any:
    """A schema; named types are called R0, E0, F0, ... in the order of their appearance, so that pairs often match."""
    counter = [0] if taken is None else taken
    kinds = ["primitive", "primitive", "enum", "fixed"]
    if depth < 3:
        kinds += ["record", "record", "array", "map", "union"]
    if depth == 0:
        kinds = ["record", "record", "record", "union", "array", "primitive"]
    match draw(st.sampled_from(kinds)):
        case "primitive":
            return draw(st.sampled_from(PRIMITIVES))
        case "enum":
            counter[0] += 1
            symbols = draw(st.lists(st.sampled_from(SYMBOLS), min_size=1, unique=True))
            enum: dict[str, Any] = {"type": "enum", "name": f"E{counter[0]}", "symbols": symbols}
            if draw(st.booleans()):
                enum["default"] = draw(st.sampled_from(symbols))
            return enum
        case "fixed":
            counter[0] += 1
            return {"type": "fixed", "name": f"F{counter[0]}", "size": draw(st.integers(1, 2))}
        case "array":
            return {"type": "array", "items": draw(schemas(depth + 1, counter))}
        case "map":
            return {"type": "map", "values": draw(schemas(depth + 1, counter))}
        case "union":
            branches = draw(st.lists(schemas(depth + 1, counter), min_size=1, max_size=3))
            labels: dict[str, Any] = {}
            for branch in branches:
                if not isinstance(branch, list):
                    label = branch if isinstance(branch, str) else branch.get("name", branch["type"])
                    labels.setdefault(label, branch)
            return list(labels.values()) or ["null"]
    counter[0] += 1
    name = f"R{counter[0]}"
    fields = []
    for field_name in draw(st.lists(st.sampled_from(NAMES), max_size=3, unique=True)):
        field: dict[str, Any] = {"name": field_name, "type": draw(schemas(depth + 1, counter))}
        if draw(st.booleans()):
            default = default_of(field["type"])
            if default is not None:
                field["default"] = default[0]
        if draw(st.integers(0, 5)) == 0:
            field["aliases"] = [draw(st.sampled_from(NAMES))]
        fields.append(field)
    return {"type": "record", "name": name, "fields": fields}


def default_of(schema: Any) -> list[Any] | None:
    """A default of the type, in a list; None for records, whose fields may have none."""
    if isinstance(schema, list):
        return default_of(schema[0])
    kind = schema if isinstance(schema, str) else schema["type"]
    simple: dict[str, Any] = {
        "null": None, "boolean": True, "int": 1, "long": 2, "float": 1.5, "double": 2.5, "bytes": "b", "string": "s",
        "array": [], "map": {},
    }  # fmt: skip
    if kind in simple:
        return [simple[kind]]
    if kind == "enum":
        return [schema["symbols"][0]]
    return ["x" * schema["size"]] if kind == "fixed" else None


def values_of(schema: Any) -> st.SearchStrategy[Any]:
    """Values to write with a schema."""
    if isinstance(schema, list):
        return st.one_of([values_of(branch) for branch in schema])
    kind = schema if isinstance(schema, str) else schema["type"]
    match kind:
        case "null":
            return st.none()
        case "boolean":
            return st.booleans()
        case "int":
            return st.integers(-(2**31), 2**31 - 1)
        case "long":
            return st.integers(-(2**63), 2**63 - 1)
        case "float" | "double":
            return st.floats(width=32, allow_nan=False)
        case "bytes":
            return st.binary(max_size=4).filter(lambda value: value.isascii())
        case "string":
            return st.text(max_size=4)
        case "array":
            return st.lists(values_of(schema["items"]), max_size=2)
        case "map":
            return st.dictionaries(st.text(max_size=2), values_of(schema["values"]), max_size=2)
        case "enum":
            return st.sampled_from(schema["symbols"])
        case "fixed":
            return st.binary(min_size=schema["size"], max_size=schema["size"])
        case "record":
            return st.fixed_dictionaries({field["name"]: values_of(field["type"]) for field in schema["fields"]})
    raise AssertionError(kind)


def mutate(draw: st.DrawFn, schema: Any) -> Any:
    """The schema with a small change somewhere: what evolution looks like."""
    changed = json.loads(json.dumps(schema))
    todo, records = [changed], []
    while todo:
        one = todo.pop()
        if isinstance(one, list):
            todo += one
        elif isinstance(one, dict):
            if one.get("type") == "record":
                records.append(one)
            todo += [one[key] for key in ("items", "values", "type", "fields") if key in one]
    if not records:
        return draw(schemas())
    record = draw(st.sampled_from(records))
    names = [field["name"] for field in record["fields"]]
    match draw(st.sampled_from(["add", "drop", "promote", "widen"])):
        case "add" if len(names) < len(NAMES):
            name = next(name for name in NAMES if name not in names)
            field = {"name": name, "type": draw(st.sampled_from(["int", "string"]))}
            if draw(st.booleans()):
                field["default"] = default_of(field["type"])[0]  # type: ignore[index]
            record["fields"].append(field)
        case "drop" if names:
            record["fields"].pop()
        case "promote":
            for field in record["fields"]:
                field["type"] = {"int": "long", "long": "double", "string": "bytes"}.get(
                    str(field["type"]), field["type"]
                )
                field.pop("default", None)
        case "widen":
            for field in record["fields"]:
                if isinstance(field["type"], str) and field["type"] != "null":
                    field["type"] = ["null", field["type"]]
                    field.pop("default", None)
    return changed


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Any, Any]:
    writer = draw(schemas())
    reader = draw(st.just(writer) | schemas()) if draw(st.booleans()) else mutate(draw, writer)
    return writer, reader


def read(writer: Any, reader: Any, value: Any) -> Any:
    out = io.BytesIO()
    parsed = fastavro.parse_schema(json.loads(json.dumps(writer)))
    fastavro.schemaless_writer(out, parsed, value)
    out.seek(0)
    return fastavro.schemaless_reader(out, parsed, fastavro.parse_schema(json.loads(json.dumps(reader))))


def understood(schema: Any) -> AvroSchema:
    return parse_avro(json.dumps(schema))


def names_twice(schema: Any) -> bool:
    """Aliases that are also names, or twice: fastavro and Java resolve those differently; nobody should write them."""
    text = json.dumps(schema)
    return '"aliases"' in text and any(len(used) != len(set(used)) for used in _names_used(json.loads(text)))


def _names_used(schema: Any) -> list[list[str]]:
    found: list[list[str]] = []
    todo = [schema]
    while todo:
        one = todo.pop()
        if isinstance(one, list):
            todo += one
        elif isinstance(one, dict):
            if one.get("type") == "record":
                found.append([name for f in one["fields"] for name in (f["name"], *f.get("aliases", ()))])
            todo += list(one.values())
    return found


SLOW = settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


@SLOW
@given(st.data())
def test_what_is_compatible_is_read(data: st.DataObject) -> None:
    writer, reader = data.draw(pairs())
    if names_twice(writer) or names_twice(reader):
        return
    if understood(reader).read_problems(understood(writer)):
        event("refused")
        return
    event("the same" if reader == writer else "compatible")
    value = data.draw(values_of(writer))
    read(writer, reader, value)


@SLOW
@given(st.data())
def test_what_is_refused_has_a_value_that_cannot_be_read(data: st.DataObject) -> None:
    """The converse, for records whose fields are primitives: one value decides."""
    names = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True)
    kinds = st.sampled_from(PRIMITIVES)

    def record() -> Any:
        fields = [{"name": name, "type": data.draw(kinds)} for name in data.draw(names)]
        for field in fields:
            if data.draw(st.booleans()):
                field["default"] = default_of(field["type"])[0]  # type: ignore[index]
        return {"type": "record", "name": "R", "fields": fields}

    writer, reader = record(), record()
    value = data.draw(values_of(writer))
    problems = understood(reader).read_problems(understood(writer))
    try:
        read(writer, reader, value)
    except (fastavro.read.SchemaResolutionError, ValueError, KeyError):
        assert problems
    else:
        assert not problems


@SLOW
@given(schemas())
def test_the_canonical_text_is_canonical(schema: Any) -> None:
    parsed = understood(schema)
    again = parse_avro(parsed.canonical)
    assert again.canonical == parsed.canonical
    assert again.normalized == parsed.normalized
    assert parsed.read_problems(again) == again.read_problems(parsed) == []
    fastavro.parse_schema(json.loads(parsed.canonical))
