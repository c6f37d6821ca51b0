"""Codec: decoding record batches to Arrow, with the columns and types of Spark's Kafka source.

key binary | value binary | topic string | partition int32 | offset int64 | timestamp timestamp[us, UTC] |
timestampType int32 | headers list<struct<key string, value binary>> (null if a record has no headers)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct, field

from barnabas.core.buffers import Buffer
from barnabas.protocol.records.columnar._jit import np, pa
from barnabas.protocol.records.columnar.kernels import count_headers, find_headers, gather, measure
from barnabas.protocol.records.columnar.segments import RecordTable, Selection, iter_tables
from barnabas.protocol.records.errors import CorruptBatchError

_HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(_HEADER_TYPE),
}
COLUMNS: Final = tuple(_TYPES)
"""All columns, in Spark's order."""
_OFFSETS_MAX: Final = (1 << 31) - 1
_REPEATED_ROWS_MAX: Final = 1 << 16
_NO_BITMAP: Final = np.zeros(0, np.uint8)


class DecodeOptions(Struct, frozen=True):
    """The selection of records and columns, and the size of the Arrow batches."""

    topic: str
    partition: int
    columns: Sequence[str] = COLUMNS
    selection: Selection = field(default_factory=Selection)
    rows_max: int = 10_000
    bytes_max: int = 1 << 20
    """The maximum size of keys and values in a RecordBatch. A larger single record gets a RecordBatch of its own."""


def schema(columns: Sequence[str] = COLUMNS) -> Any:
    """The Arrow schema of these columns. Raises ValueError for an unknown column."""
    unknown = [name for name in columns if name not in _TYPES]
    if unknown:
        raise ValueError(f"unknown column: {', '.join(unknown)}; the columns are {', '.join(COLUMNS)}")
    return pa.schema([pa.field(name, _TYPES[name]) for name in columns])


def iter_arrow(buffers: Sequence[Buffer], options: DecodeOptions) -> Iterator[Any]:
    """The selected records as `pyarrow.RecordBatch`es of about `rows_max` rows or `bytes_max` bytes, in offset order.

    Raises CorruptBatchError. Batches that were yielded before the error are valid.
    """
    for table in iter_tables(buffers, options.selection):
        yield from table_to_arrow(table, options)


def table_to_arrow(table: RecordTable, options: DecodeOptions) -> Iterator[Any]:
    """The records of a table as `pyarrow.RecordBatch`es of about `rows_max` rows or `bytes_max` bytes."""
    arrow_schema = schema(options.columns)
    for low, high in _row_ranges(table, options):
        yield _record_batch(table, low, high, options, arrow_schema)


def decode_to_arrow(buffers: Sequence[Buffer], options: DecodeOptions) -> Any:
    """All selected records as one `pyarrow.Table`, in chunks of the configured size."""
    return pa.Table.from_batches(iter_arrow(buffers, options), schema=schema(options.columns))


def _row_ranges(table: RecordTable, options: DecodeOptions) -> Iterator[tuple[int, int]]:
    """Divide the rows of `table` into ranges (first row, end).

    A range has at most `rows_max` rows, and keys and values of at most about `bytes_max` bytes. A larger row has a
    range of its own.
    """
    rows = len(table)
    if 0 < rows <= options.rows_max and len(table.data) <= min(options.bytes_max, _OFFSETS_MAX):
        yield 0, rows
        return
    # a null has length -1; adding one byte per field avoids more vector operations
    ends = np.cumsum(table.key_len.astype(np.int64) + table.value_len + 2)
    limit = max(min(options.bytes_max, _OFFSETS_MAX), 1)
    low = 0
    while low < rows:
        before = int(ends[low - 1]) if low else 0
        high = int(np.searchsorted(ends, before + limit, side="right"))
        high = max(low + 1, min(high, low + max(options.rows_max, 1), rows))
        yield low, high
        low = high


def _record_batch(table: RecordTable, low: int, high: int, options: DecodeOptions, arrow_schema: Any) -> Any:
    rows = slice(low, high)
    arrays = []
    for name in options.columns:
        match name:
            case "key":
                arrays.append(_binary(table.data, table.key_at[rows], table.key_len[rows]))
            case "value":
                arrays.append(_binary(table.data, table.value_at[rows], table.value_len[rows]))
            case "topic":
                arrays.append(_repeat(options.topic, high - low))
            case "partition":
                arrays.append(_repeat(options.partition, high - low))
            case "offset":
                arrays.append(_fixed(table.offsets[rows], pa.int64()))
            case "timestamp":
                arrays.append(_fixed(table.timestamps[rows] * 1000, _TYPES["timestamp"]))
            case "timestampType":
                arrays.append(_timestamp_types(table.timestamp_types, rows))
            case _:
                arrays.append(_headers(table.data, table.headers_at[rows], table.headers_len[rows]))
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema)


def _fixed(values: Any, arrow_type: Any) -> Any:
    """A column that shares the memory of a contiguous numpy array."""
    return pa.Array.from_buffers(arrow_type, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))], 0)


def _repeat(value: str | int, rows: int) -> Any:
    """A column with the same value in all rows. It is a slice of a cached array, because a fetch returns many batches
    of one partition."""
    if rows > _REPEATED_ROWS_MAX:
        return pa.repeat(pa.scalar(value, pa.string() if isinstance(value, str) else pa.int32()), rows)
    return _repeated(value, 1 << (rows - 1).bit_length()).slice(0, rows)


@lru_cache(maxsize=32)
def _repeated(value: str | int, rows: int) -> Any:
    return pa.repeat(pa.scalar(value, pa.string() if isinstance(value, str) else pa.int32()), rows)


def _timestamp_types(types: Any, rows: slice) -> Any:
    if isinstance(types, int):
        return _repeat(types, rows.stop - rows.start)
    return _fixed(types[rows], pa.int32())


def _binary(data: Any, at: Any, lengths: Any) -> Any:
    """A binary column with a copy of the byte strings at these positions.

    The memory is allocated from Arrow's pool, which reuses freed memory, whereas malloc returns blocks of such sizes to
    the kernel.
    """
    rows = len(at)
    total, nulls = measure(lengths)
    if total > _OFFSETS_MAX:
        raise CorruptBatchError(f"{total} bytes of record headers exceed one Arrow array: decode fewer rows at a time")
    if nulls == rows:
        return pa.nulls(rows, pa.binary())
    offsets = np.empty(rows + 1, np.int32)
    out = np.frombuffer(pa.allocate_buffer(total), np.uint8)
    validity = np.zeros((rows + 7) // 8, np.uint8) if nulls else _NO_BITMAP
    done = gather(data, at, lengths, offsets, out, validity)
    assert done == 0, "scan checked these positions"
    buffers = [pa.py_buffer(validity) if nulls else None, pa.py_buffer(offsets), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers, nulls)


def _headers(data: Any, at: Any, lengths: Any) -> Any:
    """The headers column. A record without headers has null, as in Spark's source."""
    rows = len(at)
    total = count_headers(data, at, lengths)
    if total == 0:
        return pa.nulls(rows, _TYPES["headers"])
    list_offsets = np.zeros(rows + 1, np.int32)
    key_at, value_at = np.empty(total, np.int64), np.empty(total, np.int64)
    key_len, value_len = np.empty(total, np.int32), np.empty(total, np.int32)
    found = find_headers(data, at, lengths, list_offsets, key_at, key_len, value_at, value_len)
    assert found == total, "scan checked these headers"
    keys = _text(_binary(data, key_at, key_len))
    values = _binary(data, value_at, value_len)
    entries = pa.StructArray.from_arrays([keys, values], fields=list(_HEADER_TYPE))
    has_any = np.diff(list_offsets) > 0
    validity = pa.py_buffer(np.packbits(has_any, bitorder="little"))
    return pa.Array.from_buffers(
        _TYPES["headers"],
        rows,
        [validity, pa.py_buffer(list_offsets)],
        rows - int(has_any.sum()),
        children=[entries],
    )


def _text(keys: Any) -> Any:
    """Header keys as strings. Invalid UTF-8 becomes the replacement character, as in Java."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())
