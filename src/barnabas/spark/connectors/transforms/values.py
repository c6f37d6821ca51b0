"""Machine: the transforms that change the values of fields: Cast and MaskField.

Source: the classes of these names in org.apache.kafka.connect.transforms.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute

from barnabas.spark.connectors.transforms.casting import CAST_TYPES, cast_column, cast_values, check_cast
from barnabas.spark.connectors.transforms.errors import TransformDataError, TransformPlanError
from barnabas.spark.connectors.transforms.records import (
    SCHEMA_NAME,
    Part,
    build_struct,
    children,
    decode_objects,
    is_schemaless,
    json_column,
    logical_column,
    logical_type,
    object_or_null,
    part_field,
    refuse_nulls,
    replace_column,
    require_object,
    require_struct,
    struct_of,
)
from barnabas.spark.connectors.transforms.settings import Settings, Transform
from barnabas.spark.connectors.transforms.texts import is_bytes, is_texts

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time


def build_cast(settings: Settings, part: Part) -> Transform:
    """Cast: fields in other types, or the whole key or value. Nulls stay null."""
    casts = _parse_spec(settings)
    if casts[0][0] is None:
        return _cast_whole(casts[0][1], part)
    targets = {name: target for name, target in casts if name is not None}

    def apply(batch: Any) -> Any:
        field, column = part_field(batch.schema, part), batch.column(part)
        if is_schemaless(field):
            rows = [object_or_null(row, part, "Cast") for row in decode_objects(column, field)]
            for name, target in targets.items():
                present = [row for row in rows if row is not None]
                cells = cast_values([row.get(name) for row in present], target, f"the field {name}")
                for row, cell in zip(present, cells, strict=True):
                    row[name] = cell
            return json_column(batch, field, rows)
        if column.null_count == len(column):
            return batch
        require_struct(field, "Cast")
        fields, arrays = [], []
        for inner, cells in zip(field.type, children(column), strict=True):
            target = targets.get(inner.name)
            fields.append(inner if target is None else pa.field(inner.name, target, inner.nullable))
            arrays.append(cells if target is None else _cast(cells, inner, target, f"the field {inner.name}"))
        new = struct_of(field, fields, "Cast")
        return replace_column(batch, new, build_struct(arrays, new.type, column))

    return apply


def _cast_whole(target: Any, part: Part) -> Transform:
    def apply(batch: Any) -> Any:
        field, column = part_field(batch.schema, part), batch.column(part)
        if is_schemaless(field):
            return json_column(batch, field, cast_values(decode_objects(column, field), target, f"the {part}"))
        if column.null_count == len(column):
            return batch
        return replace_column(batch, field.with_type(target), _cast(column, field, target, f"the {part}"))

    return apply


def _cast(array: Any, field: Any, target: Any, where: str) -> Any:
    if array.null_count == len(array):
        return pa.nulls(len(array), target)
    array = logical_column(array, field)
    check_cast(array.type, target, where)
    return cast_column(array, target, where)


def _parse_spec(settings: Settings) -> list[tuple[str | None, Any]]:
    casts: list[tuple[str | None, Any]] = []
    for pair in settings.list("spec"):
        name, colon, word = pair.rpartition(":")
        target = CAST_TYPES.get(word.strip().lower())
        if target is None or ":" in name or (colon and not name.strip()):
            raise settings.refuse("spec", f"field:type pairs or one type, with the types {', '.join(CAST_TYPES)}")
        casts.append((name.strip() if colon else None, target))
    if len(casts) > 1 and any(name is None for name, _ in casts):
        raise settings.refuse("spec", "either field:type pairs, or one type for the whole key or value")
    return casts


def build_mask_field(settings: Settings, part: Part) -> Transform:
    """MaskField: 0, false, an empty text or list, or the replacement, in place of values that are not null."""
    names = settings.list("fields")
    replacement = settings.optional("replacement")
    if replacement == "":
        raise settings.refuse("replacement", "a text that is not empty")

    def apply(batch: Any) -> Any:
        field, column = part_field(batch.schema, part), batch.column(part)
        if is_schemaless(field):
            rows = [require_object(row, part, "MaskField") for row in decode_objects(column, field)]
            for row in rows:
                for name in names:
                    row[name] = _masked_value(row.get(name), replacement, name)
            return json_column(batch, field, rows)
        refuse_nulls(column, part, "MaskField")
        require_struct(field, "MaskField")
        arrays = children(column)
        for index, inner in enumerate(field.type):
            if inner.name in names:
                arrays[index] = _masked_column(arrays[index], inner, replacement)
        return replace_column(batch, field, build_struct(arrays, field.type, column))

    return apply


def _masked_column(array: Any, field: Any, replacement: str | None) -> Any:
    if array.null_count == len(array):
        return array
    zero = _zero(field) if replacement is None else _replacement(field, replacement)
    try:
        cell = pa.scalar(zero, array.type)
    except (pa.ArrowInvalid, OverflowError):
        raise TransformPlanError(
            f"MaskField cannot put {zero!r} into the field {field.name} of type {field.type}"
        ) from None
    return _pc.if_else(array.is_valid(), cell, pa.scalar(None, array.type))


def _zero(field: Any) -> Any:
    type_, name = field.type, (field.metadata or {}).get(SCHEMA_NAME, b"").decode()
    if pa.types.is_boolean(type_):
        return False
    if is_texts(type_):
        return ""
    if is_bytes(type_) and logical_type(field) is not None:
        return b"\x00"
    if pa.types.is_list(type_) or pa.types.is_map(type_):
        return []
    if pa.types.is_struct(type_) or is_bytes(type_):
        kind = f"{type_} {name}".strip()
        raise TransformPlanError(
            f"MaskField cannot mask the field {field.name} of type {kind}; drop it with ReplaceField"
        )
    return 0


def _replacement(field: Any, text: str) -> Any:
    type_, logical = field.type, logical_type(field)
    if is_texts(type_):
        return text
    number = pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)
    if not number or logical not in (None, "org.apache.kafka.connect.data.Decimal"):
        raise TransformPlanError(
            f"MaskField can replace numbers and texts only, and the field {field.name} has the type {type_}; leave "
            "replacement out to mask it with a value like 0"
        )
    return _number(text, field.name, type_)


def _number(text: str, name: str, type_: Any) -> Any:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise TransformPlanError(f"MaskField cannot put {text!r} into the field {name}: it is no number") from None
    if pa.types.is_integer(type_):
        bits = type_.bit_width
        low = int(number) & ((1 << bits) - 1)
        return low - (1 << bits) if low >> (bits - 1) else low
    return float(number) if pa.types.is_floating(type_) else number


def _masked_value(value: Any, replacement: str | None, name: str) -> Any:
    kind: Any
    zero: Any
    match value:
        case None:
            return None
        case bool():
            kind, zero = pa.bool_(), False
        case int():
            kind, zero = pa.int64(), 0
        case float():
            kind, zero = pa.float64(), 0.0
        case str():
            return "" if replacement is None else replacement
        case _:
            kind, zero = None, type(value)()
    if replacement is None:
        return zero
    if kind is None or pa.types.is_boolean(kind):
        raise TransformDataError(
            f"MaskField can replace numbers and texts only, and the field {name} is a {type(value).__name__}; leave "
            "replacement out to mask it with an empty value"
        )
    return _number(replacement, name, kind)
