"""Codec: Protobuf messages as Arrow types, and as values of these types.

A field without presence (proto3's plain fields) has its default value if it was not written. A field with presence
(messages, `optional`, members of a oneof) is then null. Enums are the names of their values, or the number as a string
if it has no name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor

from barnabas.client.columns.byte_column import pa

Getter = Callable[[Any], Any]

_KINDS: Final = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.uint32(),
    FieldDescriptor.CPPTYPE_UINT64: pa.uint64(),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
}


def arrow_type(descriptor: Any, within: tuple[str, ...] = ()) -> Any:
    """The struct type of a message. Raises ValueError if the message contains itself."""
    if descriptor.full_name in within:
        raise ValueError(f"{descriptor.full_name} contains itself and has no column type: use ProtobufDeserializer")
    inner = (*within, descriptor.full_name)
    return pa.struct([pa.field(one.name, _field_type(one, inner)) for one in descriptor.fields])


def read_message(descriptor: Any) -> Getter:
    """The function that converts a message to a dictionary for its struct. The message may be of another schema
    version.
    """
    readers = [(one.name, _reader(one)) for one in descriptor.fields]

    def read(message: Any) -> dict[str, Any]:
        known = message.DESCRIPTOR.fields_by_name
        return {name: get(message) if name in known else None for name, get in readers}

    return read


def _field_type(one: Any, within: tuple[str, ...]) -> Any:
    if _is_map(one):
        key, value = one.message_type.fields
        return pa.map_(_field_type(key, within), _field_type(value, within))
    kind = _value_type(one, within)
    return pa.list_(kind) if one.is_repeated else kind


def _value_type(one: Any, within: tuple[str, ...]) -> Any:
    if one.message_type is not None:
        return arrow_type(one.message_type, within)
    if one.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return pa.binary() if one.type == FieldDescriptor.TYPE_BYTES else pa.string()
    return _KINDS[one.cpp_type]


def _reader(one: Any) -> Getter:
    name, convert = one.name, _converter(one)
    if _is_map(one):
        convert = _converter(one.message_type.fields[1])
        return lambda message: [(key, convert(value)) for key, value in getattr(message, name).items()]
    if one.is_repeated:
        return lambda message: [convert(value) for value in getattr(message, name)]
    if one.has_presence:
        return lambda message: convert(getattr(message, name)) if message.HasField(name) else None
    return lambda message: convert(getattr(message, name))


def _converter(one: Any) -> Getter:
    if one.message_type is not None and not _is_map(one):
        return read_message(one.message_type)
    if one.enum_type is not None:
        names = {number: value.name for number, value in one.enum_type.values_by_number.items()}
        return lambda number: names.get(number) or str(number)
    return lambda value: value


def _is_map(one: Any) -> bool:
    return one.message_type is not None and bool(one.message_type.GetOptions().map_entry)
