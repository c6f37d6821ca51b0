"""Machine: checks from the column types whether and how a DataFrame can be written, before the first row is written.

    value       binary or string     required
    key         binary or string     optional
    topic       string               required unless the option `topic` is given, which overrides it
    partition   int                  optional; without it the key decides, as in Kafka's default partitioner
    headers     array<struct<key: string, value: binary>>   optional

The columns and the errors are those of Spark's own Kafka connector.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.spark.errors import SinkError
from barnabas.spark.options import SinkOptions

HEADERS_TYPE = "array<struct<key:string,value:binary>>"
_BYTES = ("binary", "string")

_ALLOWED: Mapping[str, tuple[str, ...]] = {
    "key": _BYTES,
    "value": _BYTES,
    "topic": ("string",),
    "partition": ("int",),
    "headers": (HEADERS_TYPE,),
}


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The columns that the writer uses. `topic` is the fixed topic, or None if each row has its own."""

    topic: str | None
    has_key: bool
    has_partition: bool
    has_headers: bool


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
    for name, kind in by_name.items():
        if name == "topic" and options.topic is not None:
            continue
        if _plain(kind) not in _ALLOWED[name]:
            raise SinkError(f"column {name!r} has type {kind}; it must be {' or '.join(_ALLOWED[name])}")
    return RowLayout(
        topic=options.topic,
        has_key="key" in by_name,
        has_partition="partition" in by_name,
        has_headers="headers" in by_name and options.include_headers,
    )


def _plain(kind: str) -> str:
    """Map Spark's `varchar(10)` and `char(3)` to string, their Arrow type."""
    return "string" if kind.startswith(("varchar", "char", "string")) else kind.replace(" ", "")
