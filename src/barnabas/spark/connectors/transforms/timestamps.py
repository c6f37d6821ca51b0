"""Machine: TimestampConverter, which changes how a time is written: text, number, or Connect's Date, Time, Timestamp.

All times pass through milliseconds since 1970. Source: transforms.TimestampConverter of Kafka Connect.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from msgspec import Struct

from barnabas.spark.connectors.transforms.date_patterns import (
    DateToken,
    format_ms,
    parse_pattern,
    parse_texts,
    pattern_reads,
)
from barnabas.spark.connectors.transforms.errors import TransformDataError, TransformPlanError
from barnabas.spark.connectors.transforms.records import (
    Logical,
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
    replace_column,
    require_struct,
    stored_field,
    struct_of,
)
from barnabas.spark.connectors.transforms.settings import Settings, Transform
from barnabas.spark.connectors.transforms.texts import is_texts, milliseconds

_DAY_MS: Final = 86_400_000
_UNITS_OF_SECOND: Final = {"seconds": 1, "milliseconds": 1_000, "microseconds": 1_000_000, "nanoseconds": 1_000_000_000}
_TARGETS: Final = {"Date": Logical.DATE, "Time": Logical.TIME, "Timestamp": Logical.TIMESTAMP}
_INT64: Final = np.iinfo(np.int64)


class TimestampOptions(Struct, frozen=True):
    """The configuration of TimestampConverter. `pattern` is None if no format is given."""

    field: str
    target: str
    pattern: tuple[DateToken, ...] | None
    format: str
    units: int


def build_timestamp_converter(settings: Settings, part: Part) -> Transform:
    """TimestampConverter for one field, or for the whole key or value. Nulls stay null."""
    options = _options(settings)

    def apply(batch: Any) -> Any:
        field, column = part_field(batch.schema, part), batch.column(part)
        if is_schemaless(field):
            return json_column(batch, field, _schemaless(decode_objects(column, field), options, part))
        if not options.field:
            new, array = _convert(field, column, options)
            return replace_column(batch, new, array)
        if column.null_count == len(column):
            return batch
        require_struct(field, "TimestampConverter")
        fields, arrays = list(field.type), children(column)
        for index, inner in enumerate(fields):
            if inner.name == options.field:
                fields[index], arrays[index] = _convert(inner, arrays[index], options)
        new = struct_of(field, fields, "TimestampConverter")
        return replace_column(batch, new, build_struct(arrays, new.type, column))

    return apply


def _options(settings: Settings) -> TimestampOptions:
    text, target = settings.text("format"), settings.text("target.type")
    if target == "string" and not text.strip():
        raise settings.refuse("format", "a pattern of java.text.SimpleDateFormat, because target.type is string")
    pattern = None
    if text.strip():
        try:
            pattern = parse_pattern(text)
        except ValueError as error:
            raise settings.refuse("format", f"a pattern of java.text.SimpleDateFormat ({error})") from None
    units = _UNITS_OF_SECOND[settings.text("unix.precision")]
    return TimestampOptions(settings.text("field"), target, pattern, text, units)


def _convert(field: Any, array: Any, options: TimestampOptions) -> tuple[Any, Any]:
    """The field and the column in the target type."""
    return _to_target(_to_ms(field, array, options), field, options)


def _to_ms(field: Any, array: Any, options: TimestampOptions) -> Any:
    if logical_type(field) in (Logical.DATE, Logical.TIME, Logical.TIMESTAMP):
        return milliseconds(logical_column(array, field))
    if is_texts(field.type):
        return _parsed(array, options, f"the field {field.name}")
    if pa.types.is_int64(field.type):
        return _scaled(array, options.units, 1_000)
    raise TransformPlanError(
        f"TimestampConverter cannot read a time from {field.name} of type {field.type}; it reads texts, int64, and "
        "Connect's Date, Time and Timestamp"
    )


def _to_target(ms: Any, field: Any, options: TimestampOptions) -> tuple[Any, Any]:
    name, nullable = field.name, field.nullable
    if options.target == "string":
        assert options.pattern is not None  # `_options`
        return pa.field(name, pa.string(), nullable), format_ms(ms, options.pattern)
    if options.target == "unix":
        return pa.field(name, pa.int64(), nullable), _scaled(ms, 1_000, options.units)
    kind = _TARGETS[options.target]
    new = stored_field(name, kind, nullable)
    values = ms.fill_null(0).to_numpy(zero_copy_only=False)
    if kind is Logical.DATE:
        values = values // _DAY_MS
    elif kind is Logical.TIME:
        values = values % _DAY_MS
    mask = ms.is_null().to_numpy(zero_copy_only=False)
    return new, pa.array(values, pa.int64(), mask=mask).cast(new.type)


def _scaled(array: Any, units: int, target: int) -> Any:
    """Numbers of one unit as numbers of another: as Java's TimeUnit, towards zero, and at most the largest int64."""
    if units == target:
        return array
    values = array.fill_null(0).to_numpy(zero_copy_only=False)
    mask = array.is_null().to_numpy(zero_copy_only=False)
    if target > units:
        factor = target // units
        limit = _INT64.max // factor
        scaled = np.clip(values, -limit, limit) * factor
        scaled = np.where(values > limit, _INT64.max, np.where(values < -limit, _INT64.min, scaled))
    else:
        divisor = units // target
        scaled = np.where(values < 0, -(-values // divisor), values // divisor)
    return pa.array(scaled, pa.int64(), mask=mask)


def _parsed(texts: Any, options: TimestampOptions, where: str) -> Any:
    if options.pattern is None:
        raise TransformPlanError(f"TimestampConverter cannot read the text of {where}: set format to its pattern")
    try:
        pattern_reads(options.pattern)
    except ValueError as error:
        raise TransformPlanError(
            f"TimestampConverter cannot read texts with the format {options.format!r}: {error}"
        ) from None
    texts = texts.cast(pa.string())
    try:
        return parse_texts(texts, options.pattern)
    except ValueError as error:
        text = texts[error.args[0]].as_py()
        raise TransformDataError(
            f"TimestampConverter cannot read {where}: {text!r} does not match the pattern {options.format!r}"
        ) from None


def _schemaless(rows: list[Any], options: TimestampOptions, part: Part) -> list[Any]:
    if not options.field:
        return _values(rows, options, f"the {part}")
    found = [object_or_null(row, part, "TimestampConverter") for row in rows]
    present = [row for row in found if row is not None]
    cells = _values([row.get(options.field) for row in present], options, f"the field {options.field}")
    for row, cell in zip(present, cells, strict=True):
        row[options.field] = cell
    return found


def _values(cells: list[Any], options: TimestampOptions, where: str) -> list[Any]:
    """Values of one field without a schema: texts, and integers as numbers since 1970."""
    result: list[Any] = [None] * len(cells)
    texts = [row for row, cell in enumerate(cells) if isinstance(cell, str)]
    numbers = [row for row, cell in enumerate(cells) if isinstance(cell, int) and not isinstance(cell, bool)]
    if len(texts) + len(numbers) + sum(cell is None for cell in cells) != len(cells):
        raise TransformDataError(f"TimestampConverter reads texts and integers, and {where} is neither")
    for rows, type_ in ((texts, pa.string()), (numbers, pa.int64())):
        if not rows:
            continue
        if options.target in _TARGETS:
            raise TransformPlanError(
                f"TimestampConverter cannot write a {options.target} without a schema; set target.type to string or "
                "unix, or the converter to one with schemas"
            )
        try:
            array = pa.array([cells[row] for row in rows], type_)
        except (OverflowError, pa.ArrowInvalid):
            raise TransformDataError(
                f"TimestampConverter cannot read {where}: an integer does not fit into 64 bits"
            ) from None
        _, converted = _convert(pa.field(where, type_), array, options)
        for row, cell in zip(rows, converted.to_pylist(), strict=True):
            result[row] = cell
    return result
