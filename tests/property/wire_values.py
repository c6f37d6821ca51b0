"""Hypothesis strategies for wire messages, read off the schemas themselves."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from barnabas.protocol.wire.apis import APIS
from barnabas.protocol.wire.headers import RequestHeader, ResponseHeader
from barnabas.protocol.wire.messages import consumer_protocol, control_records, principal
from barnabas.protocol.wire.schema import NO_UUID, Message, MessageField, MessageStruct, schema_of


def all_messages() -> list[type[Message]]:
    """Every message the wire room defines."""
    found: list[type[Message]] = [RequestHeader, ResponseHeader]
    for api in APIS.values():
        found += (api.request, api.response)
    for module in (consumer_protocol, control_records, principal):
        found += [
            value
            for value in vars(module).values()
            if isinstance(value, type) and issubclass(value, Message) and value is not Message
        ]
    return found


def versions_of(cls: type[Message]) -> range:
    carried = schema_of(cls).versions
    return range(carried.low, carried.high + 1)


def _integers(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return st.one_of(st.sampled_from([low, -1 if signed else 1, 0, 1, high]), st.integers(low, high))


_LONG = 130
"""Long enough for a varint of two bytes."""

_TEXT = st.one_of(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), st.just("ü" * _LONG))
_BYTES = st.one_of(st.binary(max_size=6), st.just(b"\xff" * _LONG))

_KINDS: dict[str, st.SearchStrategy[Any]] = {
    "int8": _integers(8),
    "int16": _integers(16),
    "int32": _integers(32),
    "int64": _integers(64),
    "uint16": _integers(16, signed=False),
    "uint32": _integers(32, signed=False),
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "uuid": st.one_of(st.just(NO_UUID), st.uuids()),
    "string": _TEXT,
    "bytes": _BYTES,
    "records": _BYTES,
}


@cache
def messages(cls: type[MessageStruct], version: int) -> st.SearchStrategy[Any]:
    """Values of `cls` that `version` can carry: exactly its fields are set, the others keep their defaults."""
    fields = {f.name: _field(f, version) for f in schema_of(cls).fields if version in f.versions}
    return st.builds(cls, **fields)


def _field(field: MessageField, version: int) -> st.SearchStrategy[Any]:
    if field.kind == "array":
        element = _KINDS[field.element] if isinstance(field.element, str) else messages(_struct(field), version)
        values: st.SearchStrategy[Any] = st.lists(element, max_size=2)
    elif field.kind == "struct":
        values = messages(_struct(field), version)
    else:
        values = _KINDS[field.kind]
    return st.none() | values if version in field.null else values


def _struct(field: MessageField) -> type[MessageStruct]:
    assert field.element is not None
    assert not isinstance(field.element, str)
    return field.element


def full(cls: type[MessageStruct], version: int, size: int = 2) -> Any:
    """A value with every field that `version` carries set to something other than its default."""
    return cls(**{f.name: _full_field(f, version, size) for f in schema_of(cls).fields if version in f.versions})


def _full_field(field: MessageField, version: int, size: int) -> Any:
    if field.kind == "array":
        if not isinstance(field.element, str):
            return [full(_struct(field), version, size) for _ in range(size)]
        return [_sample(field.element, field.name, index) for index in range(size)]
    if field.kind == "struct":
        return full(_struct(field), version, size)
    return _sample(field.kind, field.name, 0)


def _sample(kind: str, name: str, index: int) -> Any:
    """A value that depends on the field's name, so that two fields changing places is noticed."""
    number = sum(name.encode()) % 97 + 7 + index
    match kind:
        case "bool":
            return True
        case "string":
            return f"{name}-{index}"
        case "bytes" | "records":
            return f"{name}-{index}".encode()
        case "uuid":
            return type(NO_UUID)(int=number << 64 | number)
        case "float64":
            return number + 0.25
        case _:
            return number
