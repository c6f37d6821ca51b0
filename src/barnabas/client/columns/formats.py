"""Port: converts columns of serialized keys or values into typed Arrow columns, and back.

    async for batch in consumer.arrow(value_format=AvroColumns(registry)):
        batch["value"]["total"]

The client has no formats of its own: any object with these methods is one. `barnabas.registry.columns` has formats for
JSON, Avro and Protobuf with a schema registry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class DecodedColumn:
    """A decoded column, with as many rows as the encoded one. `errors` is a string column, with null for each row that
    was decoded; it is None if no row failed, or if failures raise.
    """

    values: pa.Array
    errors: pa.Array | None = None


class ColumnDecoder(Protocol):
    """Reads whole columns."""

    def decode(self, column: pa.Array, topic: str) -> DecodedColumn:
        """Convert a binary column of one topic to a typed column; nulls stay nulls. Raises SerializationError."""
        ...


class ColumnEncoder(Protocol):
    """Writes whole columns."""

    def encode(self, column: pa.Array | pa.ChunkedArray, topic: str) -> pa.Array:
        """Convert a typed column to a binary column for one topic; nulls stay nulls. Raises SerializationError."""
        ...


def decode_columns(
    batch: pa.RecordBatch,
    topic: str,
    *,
    key_format: ColumnDecoder | None = None,
    value_format: ColumnDecoder | None = None,
) -> pa.RecordBatch:
    """The batch of one topic with its `key` and `value` columns decoded, if they exist.

    If a format collects failures instead of raising them, the column `key_error` or `value_error` is added.
    """
    if key_format is None and value_format is None:
        return batch
    import pyarrow as pa

    columns: dict[str, Any] = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name, column_format in (("key", key_format), ("value", value_format)):
        if column_format is not None and name in columns:
            decoded = column_format.decode(columns[name], topic)
            columns[name] = decoded.values
            if decoded.errors is not None:
                columns[f"{name}_error"] = decoded.errors
    return pa.RecordBatch.from_pydict(columns)


def encode_formats(
    table: pa.Table | pa.RecordBatch,
    topic: str,
    key: tuple[str | None, ColumnEncoder | None],
    value: tuple[str | None, ColumnEncoder | None],
) -> tuple[pa.Table, str | None, str | None]:
    """Encode the key and value columns of a table with their formats; `key` and `value` are (column name, format).

    Encoded columns are added to the table. Returns the table and the names of the columns with the keys and values.
    """
    import pyarrow as pa

    encoded = pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table
    names: list[str | None] = []
    for part, (name, column_format) in (("key", key), ("value", value)):
        if name is not None and column_format is not None:
            column = column_format.encode(table[name], topic)
            name = f"{part} of {name}, encoded"  # one column may be both key and value
            encoded = encoded.append_column(name, column)
        names.append(name)
    return encoded, names[0], names[1]
