"""Table: the columns of the source and of the sink, with their Spark and Arrow types.

The Arrow schema must equal Spark's exactly, in names, order, types and nullability: Spark checks only the first batch
of each task, and passes the buffers of the others to the JVM unchecked. All columns are nullable, as in Spark's own
connector.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from barnabas.spark.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa

DDL: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
"""All columns of the source, in order, with their Spark types."""

CHANGE_TYPE: Final = "changeType"
"""The column that tables have in addition (readAs=table): `upsert` if the key's newest record has a value, `delete` if
that record is a tombstone, a record with a null value.
"""
UPSERT: Final = "upsert"
DELETE: Final = "delete"

TABLE_DDL: Final = {**DDL, CHANGE_TYPE: "string"}
"""All columns of the source with readAs=table."""

DEFAULT_COLUMNS: Final = tuple(name for name in DDL if name != "headers")


def check_columns(columns: tuple[str, ...]) -> tuple[str, ...]:
    """The same columns in their correct spelling. Raises OptionError for unknown, repeated or no columns."""
    spelling = {name.lower(): name for name in TABLE_DDL}
    unknown = [name for name in columns if name.lower() not in spelling]
    if unknown:
        raise OptionError(f"there is no column {unknown[0]!r}; the columns of the source are {', '.join(TABLE_DDL)}")
    proper = tuple(spelling[name.lower()] for name in columns)
    if not proper or len(set(proper)) != len(proper):
        raise OptionError(f"columns must name each column once, and at least one, got {','.join(columns)!r}")
    return proper


def spark_schema(columns: tuple[str, ...], typed: Mapping[str, str] | None = None) -> str:
    """The DDL text for `DataSource.schema()`; `typed` has the types of keys and values that are not raw."""
    types = {**TABLE_DDL, **(typed or {})}
    return ", ".join(f"`{name}` {types[name]}" for name in columns)


def arrow_schema(columns: tuple[str, ...]) -> pa.Schema:
    """The Arrow schema that Spark expects of each batch."""
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(pa.field("element", header)),
        CHANGE_TYPE: pa.string(),
    }
    return pa.schema([pa.field(name, types[name]) for name in columns])
