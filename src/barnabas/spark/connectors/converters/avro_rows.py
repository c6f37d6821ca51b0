"""Codec: Avro values one by one: for unions of several types, for which there is no column, and to find bad rows."""

from __future__ import annotations

import decimal
import struct
from collections.abc import Callable
from typing import Any, Final

from barnabas.registry.columns.avro_types import FastavroSchema, nullable, type_name
from barnabas.spark.connectors.connect_schemas import DECIMAL_NAME, DECIMAL_SCALE, ConnectSchema, ConnectType
from barnabas.spark.connectors.converters.avro_schemas import UNION

_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
_VARINT_BITS: Final = 64


class AvroValueError(ValueError):
    """The bytes are no value of their schema."""


class AvroRowReader:
    """Reads values of one schema, as the Python values that Arrow takes for it."""

    def __init__(self, avro: FastavroSchema, schema: ConnectSchema) -> None:
        self._avro = avro
        self._schema = schema
        self._data = b""
        self._at = 0

    def read(self, payload: bytes) -> Any:
        """One value. Raises AvroValueError."""
        self._data = payload
        self._at = 0
        return self._value(self._avro.parsed, self._schema)

    def _take(self, size: int) -> bytes:
        if not 0 <= size <= len(self._data) - self._at:
            raise AvroValueError(f"the value ends before a field of {size} bytes at byte {self._at}")
        self._at += size
        return self._data[self._at - size : self._at]

    def _long(self) -> int:
        shift = number = 0
        while shift < _VARINT_BITS:
            byte = self._take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
            shift += 7
        raise AvroValueError(f"a number before byte {self._at} is longer than {_VARINT_BITS} bits")

    def _value(self, part: Any, schema: ConnectSchema) -> Any:
        part = self._avro.resolve(part)
        if isinstance(part, list):
            return self._branch(part, schema)
        kind = type_name(part)
        match kind:
            case "record" | "error":
                pairs = zip(part["fields"], schema.fields, strict=True)
                return {one.name: self._value(field["type"], one.schema) for field, one in pairs}
            case "array":
                if schema.type is ConnectType.MAP:
                    return self._items(lambda: self._entry(part["items"], schema))
                assert schema.items is not None
                items = schema.items
                return self._items(lambda: self._value(part["items"], items))
            case "map":
                assert schema.items is not None
                items = schema.items
                return self._items(lambda: (self._text(), self._value(part["values"], items)))
            case "enum":
                index = self._long()
                if not 0 <= index < len(part["symbols"]):
                    raise AvroValueError(f"the enum {part['name']} has no symbol {index}")
                return part["symbols"][index]
            case "bytes" | "fixed":
                raw = self._take(part["size"] if kind == "fixed" else self._long())
                return _decimal(raw, schema) if schema.name == DECIMAL_NAME else raw
            case "string":
                return self._text()
            case "boolean":
                return self._take(1) != b"\x00"
            case "float":
                return _FLOAT.unpack(self._take(4))[0]
            case "double":
                return _DOUBLE.unpack(self._take(8))[0]
            case "null":
                return None
            case _:
                return self._long()

    def _text(self) -> str:
        try:
            return self._take(self._long()).decode()
        except UnicodeDecodeError as error:
            raise AvroValueError(f"a text is not UTF-8: {error}") from None

    def _branch(self, part: list[Any], schema: ConnectSchema) -> Any:
        index = self._long()
        if not 0 <= index < len(part):
            raise AvroValueError(f"a union has {len(part)} types, and the value is of type {index}")
        chosen = part[index]
        if type_name(chosen) == "null":
            return None
        if nullable(part)[0] >= 0 or schema.name != UNION:
            return self._value(chosen, schema)
        place = [at for at, one in enumerate(part) if type_name(one) != "null"].index(index)
        field = schema.fields[place]
        return {one.name: None for one in schema.fields} | {field.name: self._value(chosen, field.schema)}

    def _entry(self, part: Any, schema: ConnectSchema) -> tuple[Any, Any]:
        assert schema.keys is not None
        assert schema.items is not None
        types = {"key": schema.keys, "value": schema.items}
        found = {
            one["name"]: self._value(one["type"], types[one["name"]]) for one in self._avro.resolve(part)["fields"]
        }
        return found["key"], found["value"]

    def _items(self, read: Callable[[], Any]) -> list[Any]:
        found: list[Any] = []
        while count := self._long():
            if count < 0:
                count = -count
                self._long()  # how many bytes the block has
            if count > len(self._data) - self._at:
                raise AvroValueError(f"an array at byte {self._at} has {count} items, more than the value has bytes")
            found += [read() for _ in range(count)]
        return found


def _decimal(raw: bytes, schema: ConnectSchema) -> decimal.Decimal:
    with decimal.localcontext(prec=100):
        return decimal.Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-int(schema.parameters[DECIMAL_SCALE]))


def with_branches(value: Any, avro: FastavroSchema, part: Any, schema: ConnectSchema) -> Any:
    """A value that fastavro writes: the struct of a union as a pair of the type's name and the value."""
    if value is None:
        return None
    part = avro.resolve(part)
    if isinstance(part, list) and schema.name == UNION:
        types = [one for one in part if type_name(one) != "null"]
        for one, field in zip(types, schema.fields, strict=True):
            if value[field.name] is not None:
                resolved = avro.resolve(one)
                inner = with_branches(value[field.name], avro, one, field.schema)
                named = isinstance(resolved, dict) and "name" in resolved
                return (resolved["name"] if named else type_name(resolved)), inner
        return None
    if isinstance(part, list):
        return with_branches(value, avro, nullable(part)[1], schema)
    match schema.type:
        case ConnectType.STRUCT:
            pairs = zip(part["fields"], schema.fields, strict=True)
            return {
                field["name"]: with_branches(value[one.name], avro, field["type"], one.schema) for field, one in pairs
            }
        case ConnectType.ARRAY:
            assert schema.items is not None
            return [with_branches(one, avro, part["items"], schema.items) for one in value]
        case ConnectType.MAP if type_name(part) == "map":
            assert schema.items is not None
            return {key: with_branches(one, avro, part["values"], schema.items) for key, one in value.items()}
        case ConnectType.MAP:
            entry = avro.resolve(part["items"])
            assert schema.keys is not None
            assert schema.items is not None
            inner = {"key": schema.keys, "value": schema.items}
            parts = [(each["name"], each["type"], inner[each["name"]]) for each in entry["fields"]]
            return [{name: with_branches(one[name], avro, kind, of) for name, kind, of in parts} for one in value]
        case _:
            return value
