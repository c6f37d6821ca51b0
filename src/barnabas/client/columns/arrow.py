"""Codec: converts between record batches and Arrow columns. Imported on first use, because numpy and pyarrow are
large."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from barnabas.client.values import FetchedBatches, IsolationLevel
from barnabas.core.buffers import Buffer
from barnabas.protocol.records.columnar import (
    COLUMNS,
    DecodeOptions,
    EncodeOptions,
    iter_arrow,
    partitions_for_keys,
    rows_by_partition,
)
from barnabas.protocol.records.columnar._jit import np, pa
from barnabas.protocol.records.columnar.encode import BatchLayout, lay_out, rows_from_arrow, write_batches
from barnabas.protocol.records.columnar.segments import Selection
from barnabas.protocol.records.compression import CompressionType

WITHOUT_HEADERS: Final = tuple(name for name in COLUMNS if name != "headers")
ROWS_MAX: Final = 1_000_000
FETCH_BYTES: Final = 4 * 1024 * 1024
"""The bytes that a fetch of columns requests of each partition, so that many rows share the cost of one RecordBatch."""
BYTES_MAX: Final = 256 * 1024 * 1024


def decode_batches(
    batches: FetchedBatches,
    start: int,
    end: int,
    *,
    isolation: IsolationLevel,
    columns: Sequence[str] | None = None,
    include_headers: bool = False,
    check_crcs: bool = True,
    rows_max: int = ROWS_MAX,
) -> Iterator[Any]:
    """The records of fetched batches with offsets in [start, end), as RecordBatches.

    Without `columns`, a RecordBatch has all columns, but `headers` only with `include_headers`. Markers are omitted,
    and so are records of aborted transactions under READ_COMMITTED.
    """
    if columns is None:
        columns = COLUMNS if include_headers else WITHOUT_HEADERS
    aborted = batches.aborted if isolation is IsolationLevel.READ_COMMITTED else ()
    selection = Selection(start, end, aborted, check_crcs)
    partition = batches.partition
    options = DecodeOptions(partition.topic, partition.partition, columns, selection, rows_max, BYTES_MAX)
    return iter_arrow([batches.buffer], options)


def decode_fetch(
    batches: FetchedBatches,
    *,
    isolation: IsolationLevel,
    columns: Sequence[str] | None = None,
    include_headers: bool = False,
    check_crcs: bool = True,
) -> Any:
    """The records of one fetch of a partition, from its position on, as one RecordBatch; None if there are none."""
    decoded = list(
        decode_batches(
            batches,
            batches.position,
            (1 << 63) - 1,
            isolation=isolation,
            columns=columns,
            include_headers=include_headers,
            check_crcs=check_crcs,
            rows_max=1 << 30,
        )
    )
    if len(decoded) <= 1:
        return decoded[0] if decoded else None
    import pyarrow as pa

    return pa.Table.from_batches(decoded).combine_chunks().to_batches()[0]


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """The names of the columns that have the parts of the records; None for a part without a column."""

    value: str | None = "value"
    key: str | None = None
    partition: str | None = None
    timestamp: str | None = None
    headers: str | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """How rows without an explicit partition get one of the topic's `partitions`: by the hash of the key, or, without a
    key or with `ignore_keys`, the `default_partition`."""

    partitions: int
    default_partition: int
    ignore_keys: bool = False


def encode_columns(
    table: Any,
    names: ColumnNames,
    placement: Placement,
    *,
    now_ms: int,
    batch_bytes: int,
    codec: CompressionType,
    level: int | None,
) -> Iterator[tuple[int, Buffer, int]]:
    """Yield (partition, encoded batch, record count) for the rows of a Table or RecordBatch, partition by partition;
    the rows of one partition keep their order.

    A batch is encoded on demand, without its CRC, which is computed when the producer's ids are written. Errors of the
    table are raised at once: KeyError for a missing column, TypeError for a wrong type, ValueError for a partition that
    does not exist.
    """
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    count = table.num_rows
    if not count:
        return iter(())
    key = None if names.key is None else _bytes_column(table[names.key])
    values = pa.nulls(count, pa.binary()) if names.value is None else _bytes_column(table[names.value])
    options = EncodeOptions(batch_bytes_max=batch_bytes, codec=codec, level=level, with_crc=False)
    rows = rows_from_arrow(
        values,
        key,
        None if names.timestamp is None else table[names.timestamp],
        None if names.headers is None else table[names.headers],
        now_ms,
    )
    placed = _place(table, names, placement, key)
    if placed is None:
        return _encoded([(placement.default_partition, lay_out(rows, options))], options)
    by_partition = enumerate(rows_by_partition(placed, placement.partitions))
    layouts = [(partition, lay_out(rows.take(chosen), options)) for partition, chosen in by_partition if len(chosen)]
    return _encoded(layouts, options)


def _encoded(layouts: Sequence[tuple[int, BatchLayout]], options: EncodeOptions) -> Iterator[tuple[int, Buffer, int]]:
    for partition, layout in layouts:
        for batch in write_batches(layout, options):
            yield partition, batch.data, batch.record_count


def _place(table: Any, names: ColumnNames, placement: Placement, key: Any) -> Any:
    """The partition of every row as an array; None if all rows go to the default partition."""
    count, default = placement.partitions, placement.default_partition
    placed = None
    if key is not None and not placement.ignore_keys:
        placed = partitions_for_keys(key, count)
        placed[placed < 0] = default
    if names.partition is not None:
        column = table[names.partition].cast(pa.int32())
        named = column.drop_null().to_numpy()
        wrong = named[(named < 0) | (named >= count)]
        if wrong.size:
            raise ValueError(
                f"column {names.partition!r} names partition {wrong[0]}; the topic has {count} partitions, numbered"
                " from 0. Use null in rows whose partition the key decides."
            )
        own = column.fill_null(-1).to_numpy()
        others = np.full(len(own), default, np.int32) if placed is None else placed
        placed = np.where(own >= 0, own, others).astype(np.int32)
    return placed


def _bytes_column(column: Any) -> Any:
    """A binary or string column unchanged, or a dictionary column as a plain column. Raises TypeError for other types,
    which must be serialized first."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    known = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string, pa.types.is_large_string)
    if pa.types.is_null(kind):
        return column.cast(pa.binary())
    if not any(is_kind(kind) for is_kind in known):
        raise TypeError(
            f"a column of {kind} cannot be a key or a value: cast or serialize it to binary or string first"
        )
    return column
