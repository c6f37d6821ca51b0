"""Codec: applies options. Options that protobuf defines become fields of the options message; others are stored
uninterpreted.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor

from barnabas.registry.errors import InvalidSchemaError
from barnabas.registry.formats.protobuf.lexer import Token, integer_value

_INTEGERS = (
    FieldDescriptor.CPPTYPE_INT32,
    FieldDescriptor.CPPTYPE_INT64,
    FieldDescriptor.CPPTYPE_UINT32,
    FieldDescriptor.CPPTYPE_UINT64,
)


def apply_option(options: Any, name: list[tuple[str, bool]], constant: Token) -> None:
    """Set `name = constant` on an options message of descriptor.proto."""
    target = options
    for index, (part, is_extension) in enumerate(name):
        field = None if is_extension else target.DESCRIPTOR.fields_by_name.get(part)
        if field is None:
            _keep(options, name, constant)
            return
        if index == len(name) - 1:
            _set(target, field, constant)
            return
        if field.message_type is None or field.is_repeated:
            raise InvalidSchemaError(f"Line {constant.line} of the .proto: the option {part!r} has no fields.")
        target = getattr(target, part)


def _set(target: Any, field: FieldDescriptor, constant: Token) -> None:
    kind, text = constant.kind, constant.text
    value: Any = None
    try:
        match field.cpp_type:
            case FieldDescriptor.CPPTYPE_BOOL:
                value = {"true": True, "false": False}.get(text) if kind == "name" else None
            case FieldDescriptor.CPPTYPE_STRING:
                value = text if kind == "value-text" else None
                if value is not None and field.type == FieldDescriptor.TYPE_BYTES:
                    value = text.encode("latin-1")
            case FieldDescriptor.CPPTYPE_ENUM:
                found = field.enum_type.values_by_name.get(text) if field.enum_type is not None else None
                value = None if found is None else found.number
            case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
                value = float(text) if kind in ("int", "float", "name") else None
            case number if number in _INTEGERS:
                value = integer_value(text) if kind == "int" else None
            case _ if kind == "aggregate":
                inner = getattr(target, field.name)
                text_format.Parse(text, inner.add() if field.is_repeated else inner)
                return
    except (ValueError, text_format.ParseError):
        value = None
    if value is None:
        raise InvalidSchemaError(
            f"Line {constant.line} of the .proto: {text!r} is not a value of option {field.name!r}."
        )
    if field.is_repeated:
        getattr(target, field.name).append(value)
    else:
        setattr(target, field.name, value)


def _keep(options: Any, name: list[tuple[str, bool]], constant: Token) -> None:
    kept = options.uninterpreted_option.add()
    for part, is_extension in name:
        kept.name.add(name_part=part, is_extension=is_extension)
    text = constant.text
    match constant.kind:
        case "name":
            kept.identifier_value = text
        case "value-text":
            kept.string_value = text.encode("utf-8")
        case "aggregate":
            kept.aggregate_value = text
        case "float":
            kept.double_value = float(text.rstrip("fF"))
        case _ if text.startswith("-"):
            kept.negative_int_value = _kept_integer(constant)
        case _:
            kept.positive_int_value = _kept_integer(constant)


def _kept_integer(constant: Token) -> int:
    try:
        return integer_value(constant.text)
    except ValueError:
        raise InvalidSchemaError(f"Line {constant.line} of the .proto: {constant.text!r} is not a number.") from None
