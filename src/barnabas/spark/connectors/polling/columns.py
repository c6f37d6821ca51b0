"""Machine: what the columns of a table must be so that it can be polled, and the types that its rows get.

numeric.mapping, with Connect's rules. p is the number of digits of a decimal, s that of its fraction:

    none                   decimals stay
    precision_only         s = 0 and p < 19: the smallest integer that holds all values
    best_fit               p < 19: s = 0 an integer, else double
    best_fit_eager_double  s = 0 and p < 19: an integer; s > 0: double
Source: io.confluent.connect.jdbc.source.NumericMapping, ColumnMapping.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

import pyarrow.compute
from msgspec import structs

from barnabas.client.columns.byte_column import pa
from barnabas.spark.connectors.events.changes import TableSchema
from barnabas.spark.connectors.polling.errors import PolledTableError
from barnabas.spark.connectors.polling.options import NumericMapping, PollingOptions
from barnabas.spark.connectors.polling.ports import PolledColumns
from barnabas.spark.connectors.sql.dialects import Dialect, quote_for_display
from barnabas.spark.connectors.sql.polling import PolledTable, Position, TimeForm

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time

_DIGITS_64: Final = 18
_INTEGERS: Final = ((2, pa.int8()), (4, pa.int16()), (9, pa.int32()), (_DIGITS_64, pa.int64()))


def table_name(table: PolledTable) -> str:
    """The table for messages."""
    return "the query" if table.query is not None else ".".join(table.path)


def check_columns(table: PolledTable, columns: PolledColumns, *, checks_nulls: bool) -> None:
    """Raise PolledTableError if the mode cannot use the columns that it names."""
    found = {column.name: column for column in columns.schema.columns}
    named = [*table.timestamp_columns, *([table.incrementing_column] if table.incrementing_column else [])]
    for name in named:
        if name not in found:
            option = "incrementing.column.name" if name == table.incrementing_column else "timestamp.column.name"
            raise PolledTableError(
                f"{table_name(table)} has no column {name}, which {option} names: its columns are"
                f" {', '.join(found) or 'none'}. Correct the option, or leave the table out"
            )
    number = table.incrementing_column
    if number is not None and not _can_increment(found[number].type):
        raise PolledTableError(
            f"the column {number} of {table_name(table)} is of the type {found[number].type}, whose values cannot"
            " increment: name a column of whole numbers in incrementing.column.name, or use mode=timestamp"
        )
    for name in table.timestamp_columns:
        if name not in columns.forms and name not in columns.unknown:
            raise PolledTableError(
                f"the column {name} of {table_name(table)} is of the type {found[name].type}, which is no time: name"
                " a timestamp in timestamp.column.name, or use mode=incrementing"
            )
    if checks_nulls and table.query is None:
        _check_nulls(table, found)


def _check_nulls(table: PolledTable, found: dict[str, Any]) -> None:
    number = table.incrementing_column
    loose = [number] if number is not None and found[number].nullable else []
    times = table.timestamp_columns
    if times and all(found[name].nullable for name in times):
        loose.append(times[0])
    if not loose:
        return
    raise PolledTableError(
        f"the column {loose[0]} of {table_name(table)} allows null, and a row with null is never read."
        f" {_not_null(table, loose[0])}, or set validate.non.null=false if all rows have a value"
    )


def _not_null(table: PolledTable, column: str) -> str:
    path = ".".join(quote_for_display(table.dialect, part) for part in table.path)
    name = quote_for_display(table.dialect, column)
    match table.dialect:
        case Dialect.MYSQL:
            return f"Declare it NOT NULL (ALTER TABLE {path} MODIFY {name} .. NOT NULL)"
        case Dialect.SQLITE:
            return f"Create {path} with {name} as NOT NULL (SQLite cannot change that of a table)"
        case _:
            return f"Run ALTER TABLE {path} ALTER COLUMN {name} SET NOT NULL"


def _can_increment(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0))


def time_form(table: PolledTable, columns: PolledColumns) -> TimeForm:
    """The form of the times of the mode. Raises PolledTableError if two columns have different ones."""
    forms = {columns.forms[name] for name in table.timestamp_columns if name in columns.forms}
    if len(forms) > 1:
        raise PolledTableError(
            f"the columns {', '.join(table.timestamp_columns)} of {table_name(table)} store times as"
            f" {' and '.join(sorted(forms))}, which cannot be compared: name columns of one type"
        )
    return forms.pop() if forms else TimeForm.ISO_TEXT


def has_local_time(table: PolledTable, columns: PolledColumns) -> bool:
    """Whether times of the mode are those of db.timezone. Raises PolledTableError if only some of them are."""
    local = {name not in columns.zoned for name in table.timestamp_columns}
    if len(local) > 1:
        raise PolledTableError(
            f"some of the columns {', '.join(table.timestamp_columns)} of {table_name(table)} have a time zone and some"
            " have none: name columns of one type"
        )
    return local == {True}


def in_zone(limit: Any, zone: str) -> Any:
    """A limit in UTC, as the database printed it, in another zone. Numbers stay."""
    if zone == "UTC" or not isinstance(limit, str):
        return limit
    return _printed(datetime.fromisoformat(limit).replace(tzinfo=UTC), zone)


def like_sample(limit: Any, sample: Any) -> Any:
    """A limit in the form in which SQLite's rows have their times: with T between date and time, if they have that, and
    with their digits (see `truncated`).
    """
    if not isinstance(limit, str) or not isinstance(sample, str):
        return limit
    written = _WRITTEN.match(sample)
    if written is None:
        return limit
    if written[1] is None:
        return limit[:10]
    text: str = truncated(limit, len(written[2] or ""))
    return text.replace(" ", "T") if sample[10:11] == "T" else text


def truncated(limit: Any, digits: int) -> Any:
    """A limit with as many digits of a second's fraction as the rows keep. So rows of a second (or of its part) that is
    not over are left out, because more of them may come.
    """
    if not isinstance(limit, str):
        return limit
    time, plus, zone = limit.partition("+")
    whole, _, fraction = time.partition(".")
    return whole + (f".{fraction[:digits]}" if digits and fraction else "") + plus + zone


def time_digits(table: PolledTable, columns: PolledColumns) -> int:
    """How many digits of a second's fraction all times of the mode keep."""
    found = {column.name: column.digits for column in columns.schema.columns}
    known = [found[name] for name in table.timestamp_columns]
    return min((_DIGITS if digits is None else digits for digits in known), default=_DIGITS)


def initial_position(table: PolledTable, moment_ms: int, zone: str, sample: Any = None) -> Position:
    """The position after which rows are newer than a time in milliseconds since 1970."""
    time: Any
    match table.time_form:
        case TimeForm.SECONDS:
            time = moment_ms // 1000
        case TimeForm.MILLISECONDS:
            time = moment_ms
        case _:
            moment = datetime.fromtimestamp(moment_ms / 1000, UTC)
            time = like_sample(_printed(moment, zone), sample)
            if table.time_form is TimeForm.TIMESTAMPTZ or table.dialect is Dialect.POSTGRES:
                time += "+00"  # PostgreSQL ignores it for columns without a zone
    return Position(time, _BEFORE_NUMBERS if table.uses_number else None)


_WRITTEN: Final = re.compile(r"\d{4}-\d\d-\d\d(?:([ T]\d\d:\d\d(?::\d\d)?)(?:\.(\d+))?)?")
_DIGITS: Final = 6
_BEFORE_NUMBERS: Final = -(1 << 63)


def _printed(moment: datetime, zone: str) -> str:
    digits = "microseconds" if moment.microsecond % 1000 else "milliseconds"
    return moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None).isoformat(" ", digits)


def mapped_schema(schema: TableSchema, options: PollingOptions) -> TableSchema:
    """The table with the types of numeric.mapping."""
    columns = tuple(
        structs.replace(column, type=mapped_type(column.type, options.numbers)) for column in schema.columns
    )
    return structs.replace(schema, columns=columns)


def mapped_type(kind: Any, mapping: NumericMapping) -> Any:
    """The type that a column gets by numeric.mapping."""
    if mapping is NumericMapping.NONE or not pa.types.is_decimal(kind):
        return kind
    if kind.scale == 0 and kind.precision <= _DIGITS_64:
        return next(integer for digits, integer in _INTEGERS if kind.precision <= digits)
    if kind.scale > 0 and (
        mapping is NumericMapping.BEST_FIT_EAGER_DOUBLE
        or (mapping is NumericMapping.BEST_FIT and kind.precision <= _DIGITS_64)
    ):
        return pa.float64()
    return kind


def mapped_batch(batch: Any, schema: TableSchema) -> Any:
    """The rows in the types of the schema."""
    arrays = [
        array if array.type == column.type else array.cast(column.type, safe=not pa.types.is_floating(column.type))
        for array, column in zip(batch.columns, schema.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in schema.columns])
