"""Machine: checks from the column types whether and how a DataFrame can be written, before the first row is written.

    value       binary or string     required; null is a tombstone. Any type with the option valueFormat
    key         binary or string     optional. Any type with the option keyFormat
    timestamp   timestamp, or long (ms since 1970)     optional; null or no column is the time of writing
    topic       string               required unless the option `topic` is given, which overrides it
    partition   int                  optional; without it the key decides, as in Kafka's default partitioner
    headers     array<struct<key: string, value: binary>>   optional

The columns and the errors are those of Spark's own Kafka connector, which has no `timestamp` column, however.
`record_columns` then turns a table of rows into the columns of records, whose keys and values are bytes or strings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.spark.errors import SinkError
from barnabas.spark.records.formats import RecordFormat
from barnabas.spark.sink.options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

HEADERS_TYPE = "array<struct<key:string,value:binary>>"
_BYTES = ("binary", "string", "void")
_TIMESTAMPS = ("timestamp", "timestamp_ntz", "bigint", "void")

_ALLOWED: Mapping[str, tuple[str, ...]] = {
    "key": _BYTES,
    "value": _BYTES,
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": _TIMESTAMPS,
    "headers": (HEADERS_TYPE, "void"),
}


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The columns that the writer uses. `topic` is the fixed topic, or None if each row has its own."""

    topic: str | None
    has_key: bool
    has_partition: bool
    has_headers: bool
    has_timestamp: bool = False


def row_layout(columns: Mapping[str, str], options: SinkOptions) -> RowLayout:
    """The layout for these column names and Spark type names (`simpleString`). Raises SinkError.

    Other columns are rejected too: an explicit `select` is better than data that is silently left out.
    """
    by_name = {name.lower(): kind for name, kind in columns.items()}
    if len(by_name) != len(columns):
        raise SinkError(f"two columns have the same name: {', '.join(columns)}")
    unknown = [name for name in columns if name.lower() not in _ALLOWED]
    if "value" not in by_name:
        raise SinkError(
            "required column 'value' not found; give the record as one column, for example "
            "df.selectExpr('CAST(id AS STRING) AS key', 'to_json(struct(*)) AS value')"
        )
    if unknown:
        raise SinkError(
            f"a record has no column {unknown[0]!r}; put it into the value, for example with "
            f"to_json(struct(*)), or leave it out. The columns of a record are {', '.join(_ALLOWED)}"
        )
    if options.topic is None and "topic" not in by_name:
        raise SinkError("no topic: set the option topic, or give each row its own in a column 'topic'")
    typed = {part.part for part in options.formats.typed if part.format is not RecordFormat.STRING}
    for name, kind in by_name.items():
        if (name == "topic" and options.topic is not None) or name in typed:
            continue
        if _plain(kind) not in _ALLOWED[name]:
            allowed = " or ".join(kind for kind in _ALLOWED[name] if kind != "void")
            hint = f", or give the option {name}Format, for example avro or json" if name in ("key", "value") else ""
            raise SinkError(f"column {name!r} has type {kind}; it must be {allowed}{hint}")
    return RowLayout(
        topic=options.topic,
        has_key="key" in by_name,
        has_partition="partition" in by_name,
        has_headers="headers" in by_name and options.include_headers,
        has_timestamp="timestamp" in by_name,
    )


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Rows as records of one topic: the table, and the names of the columns that hold the parts of a record."""

    topic: str
    table: pa.Table
    key: str | None
    partition: str | None
    timestamp: str | None
    headers: str | None
    value: str = "value"


def record_columns(table: pa.Table, layout: RowLayout) -> Iterator[RecordColumns]:
    """The records of a table of rows, topic by topic, in their original order within a topic. The names of the table's
    columns are in lower case. Raises SinkError if a row has no topic."""
    for topic, part in _by_topic(table, layout):
        yield RecordColumns(
            topic,
            part,
            key="key" if layout.has_key else None,
            partition="partition" if layout.has_partition else None,
            timestamp="timestamp" if layout.has_timestamp else None,
            headers="headers" if layout.has_headers else None,
        )


def _by_topic(table: pa.Table, layout: RowLayout) -> Iterator[tuple[str, pa.Table]]:
    import pyarrow.compute as pc

    if layout.topic is not None:
        yield layout.topic, table
        return
    topics = table["topic"]
    if topics.null_count:
        raise SinkError("a row has no topic: its column 'topic' is null. Fill it in, or set the option topic")
    names = pc.unique(topics).to_pylist()
    for name in names:
        yield name, table if len(names) == 1 else table.filter(pc.equal(topics, name))


def _plain(kind: str) -> str:
    """Map Spark's `varchar(10)` and `char(3)` to string, their Arrow type."""
    return "string" if kind.startswith(("varchar", "char", "string")) else kind.replace(" ", "")
