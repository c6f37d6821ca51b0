"""Codec: encodes Arrow columns as record batches, with the same bytes as `build.build_batch` for the same records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from msgspec import Struct

from barnabas.core.buffers import Buffer
from barnabas.protocol.records.batch import (
    CRC_START,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)
from barnabas.protocol.records.build import seal
from barnabas.protocol.records.columnar._jit import np, pa
from barnabas.protocol.records.columnar.byte_column import ByteColumn, from_arrow, nulls
from barnabas.protocol.records.columnar.encode_kernels import header_sizes, plan, sizes, write, write_headers
from barnabas.protocol.records.compression import CompressionType, compress
from barnabas.protocol.records.crc import crc32c

_SEQUENCE_MASK: Final = 0x7FFFFFFF


class EncodeOptions(Struct, frozen=True):
    """The options for encoding records as batches."""

    batch_bytes_max: int = 1_000_000
    """The largest size of a batch, header included, before compression. A larger record gets a batch of its own."""
    records_max: int = 1 << 30
    codec: CompressionType = CompressionType.NONE
    level: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    """The sequence number of the first record; later batches continue from it."""
    transactional: bool = False
    with_crc: bool = True
    """Whether the CRC is computed; False if the caller modifies the batches' headers and computes it afterwards."""


_DEFAULTS: Final = EncodeOptions()


class EncodedBatch(NamedTuple):
    """One batch, with the records of `record_count` rows from `first_row` on."""

    data: Buffer
    first_row: int
    record_count: int


class RowColumns(NamedTuple):
    """The columns as the kernels need them."""

    timestamps: Any
    key: ByteColumn
    value: ByteColumn
    headers: ByteColumn
    """Each row's encoded headers, with their count in front. A row without headers has length 0."""

    def take(self, rows: Any) -> RowColumns:
        return RowColumns(self.timestamps[rows], self.key.take(rows), self.value.take(rows), self.headers.take(rows))


def encode_from_arrow(
    *,
    value: Any,
    key: Any = None,
    timestamp: Any = None,
    headers: Any = None,
    rows: Any = None,
    default_timestamp_ms: int = NO_TIMESTAMP,
    options: EncodeOptions = _DEFAULTS,
) -> list[EncodedBatch]:
    """Encode the rows of these columns as batches, in order; `rows` selects and orders rows without a copy of the
    columns.

    `key` and `value` are binary or string columns, `timestamp` is int64 milliseconds or any Arrow timestamp (null means
    `default_timestamp_ms`), `headers` is list<struct<key, value>>. Raises TypeError for other types and ValueError when
    columns differ in length or a header key is null.
    """
    table = rows_from_arrow(value, key, timestamp, headers, default_timestamp_ms)
    if rows is not None:
        table = table.take(np.asarray(rows, dtype=np.int64))
    return list(write_batches(lay_out(table, options), options))


def rows_from_arrow(value: Any, key: Any, timestamp: Any, headers: Any, default_timestamp_ms: int) -> RowColumns:
    """The columns as `RowColumns`, checked for equal length."""
    values = from_arrow(value)
    count = len(values)
    keys = nulls(count) if key is None else from_arrow(key)
    times = (
        np.full(count, default_timestamp_ms, np.int64)
        if timestamp is None
        else _milliseconds(timestamp, default_timestamp_ms)
    )
    encoded_headers = _no_headers(count) if headers is None else _encode_headers(headers)
    for name, column in (("key", keys), ("timestamp", times), ("headers", encoded_headers)):
        if len(column) != count:
            raise ValueError(f"column {name} has {len(column)} rows, value has {count}")
    return RowColumns(times, keys, values, encoded_headers)


class BatchLayout(NamedTuple):
    """Which rows each batch has, and the sizes and deltas that encoding them needs.

    `records_bytes` and `max_times` have one value per batch: the bytes of its records, and their largest timestamp.
    `bodies` (the bytes of a record without its length prefix) and the deltas have one value per row.
    """

    table: RowColumns
    bounds: list[int]
    """The first row of each batch, and the end of the last one."""
    records_bytes: list[int]
    max_times: list[int]
    bodies: Any
    offset_deltas: Any
    timestamp_deltas: Any


def lay_out(table: RowColumns, options: EncodeOptions) -> BatchLayout:
    """Divide the rows into batches, and compute the sizes that encoding needs.

    Raises ValueError for a record that no batch can hold.
    """
    times, key, value, headers = table
    count = len(times)
    if not count:
        return BatchLayout(table, [0], [], [], times, times, times)
    first_rows, records_bytes = np.empty(count, np.int64), np.empty(count, np.int64)
    limit = max(options.batch_bytes_max - HEADER_SIZE, 1)
    batches = plan(
        key.length, value.length, headers.length, times, limit, options.records_max, first_rows, records_bytes
    )
    first_rows = first_rows[:batches]
    bounds = [*first_rows.tolist(), count]
    starts = np.repeat(first_rows, np.diff(np.array(bounds, np.int64)))
    offset_deltas = np.arange(count, dtype=np.int64) - starts
    timestamp_deltas = times - times[starts]
    max_times = np.maximum.reduceat(times, first_rows).tolist()
    bodies = np.empty(count, np.int64)
    if sizes(offset_deltas, timestamp_deltas, key.length, value.length, headers.length, bodies) < 0:
        raise ValueError("a record is larger than 2 GiB, which no batch can hold")
    return BatchLayout(
        table, bounds, records_bytes[:batches].tolist(), max_times, bodies, offset_deltas, timestamp_deltas
    )


def write_batches(layout: BatchLayout, options: EncodeOptions) -> Iterator[EncodedBatch]:
    """Yield the batches, each encoded on demand.

    Each batch has its own memory from Arrow's pool, which reuses memory of released batches. That saves as much time as
    the encoding takes. Raises ValueError when a column's offsets point outside of its data.
    """
    table, bounds, records_bytes, max_times, bodies, offset_deltas, timestamp_deltas = layout
    _, key, value, headers = table
    for low, high, size, max_time in zip(bounds, bounds[1:], records_bytes, max_times, strict=False):
        out = np.frombuffer(pa.allocate_buffer(HEADER_SIZE + size), np.uint8)
        end = write(
            out, HEADER_SIZE, low, high, bodies, offset_deltas, timestamp_deltas,
            key.data, key.at, key.length, value.data, value.at, value.length, headers.data, headers.at, headers.length,
        )  # fmt: skip
        if end < 0:
            raise ValueError("the columns' offsets point outside their data: validate the Arrow arrays")
        assert end == len(out), "plan and write agree on the sizes"
        yield EncodedBatch(_seal(memoryview(out), table, low, high, max_time, options), low, high - low)


def _seal(batch: memoryview, table: RowColumns, low: int, high: int, max_time: int, options: EncodeOptions) -> Buffer:
    """Write the header before the records, in place unless the records are compressed."""
    sequence = options.base_sequence
    header = BatchHeader(
        base_offset=0,
        batch_length=len(batch) - LOG_OVERHEAD,
        partition_leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=options.codec | (TRANSACTIONAL_FLAG if options.transactional else 0),
        last_offset_delta=high - low - 1,
        base_timestamp=int(table.timestamps[low]),
        max_timestamp=max(max_time, NO_TIMESTAMP),
        producer_id=options.producer_id,
        producer_epoch=options.producer_epoch,
        base_sequence=sequence if sequence < 0 else (sequence + low) & _SEQUENCE_MASK,
        record_count=high - low,
    )
    if options.codec is not CompressionType.NONE:
        return seal(header, compress(options.codec, batch[HEADER_SIZE:], options.level))
    batch[:HEADER_SIZE] = header.pack()
    if options.with_crc:
        batch[:HEADER_SIZE] = header._replace(crc=crc32c(batch[CRC_START:])).pack()
    return batch


def _milliseconds(column: Any, default_ms: int) -> Any:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False)
    if column.null_count:
        column = column.cast(pa.int64()).fill_null(default_ms)
    return column.cast(pa.int64()).to_numpy().astype(np.int64, copy=False)


def _no_headers(count: int) -> ByteColumn:
    return ByteColumn(np.zeros(0, np.uint8), np.zeros(count, np.int64), np.zeros(count, np.int32))


def _encode_headers(column: Any) -> ByteColumn:
    """Encode each row's headers."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    count = len(column)
    if not count or pa.types.is_null(column.type) or column.null_count == count:
        return _no_headers(count)
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        raise TypeError(f"headers are list<struct<key: string, value: binary>>, not {column.type}")
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    entries = column.flatten()  # without the entries of null lists
    list_offsets = np.zeros(count + 1, np.int64)
    np.cumsum(lengths, out=list_offsets[1:])
    keys, values = from_arrow(entries.field(0)), from_arrow(entries.field(1))
    at, length = np.empty(count, np.int64), np.empty(count, np.int32)
    total = header_sizes(list_offsets, keys.length, values.length, at, length)
    if total < 0:
        raise ValueError("a record header has a null key")
    out = np.empty(total, np.uint8)
    if write_headers(list_offsets, keys.data, keys.at, keys.length, values.data, values.at, values.length, at, out) < 0:
        raise ValueError("the headers' offsets point outside their data: validate the Arrow arrays")
    return ByteColumn(out, at, length)
