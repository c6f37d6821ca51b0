"""Codec: the record batches of a fetch -> batches for the target topic, with the same records.

    whole batch      its bytes stay as they are, compressed or not; only the header gets other offsets and ids
    decoded records  positions of keys, values and headers are found by compiled loops, and written into new batches

A batch is copied whole if its offsets have no gap (compaction leaves gaps), its timestamps are its own (CreateTime),
and it keeps its codec. Small batches are decoded and written together, because every request to a broker has one batch
of a partition. Markers are left out, and so are batches of aborted transactions. There is no Python object per record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from barnabas.core.buffers import Buffer
from barnabas.protocol.records.batch import (
    CODEC_MASK,
    DELETE_HORIZON_FLAG,
    LOG_APPEND_TIME_FLAG,
    BatchHeader,
    check_crc,
    iter_batches,
)
from barnabas.protocol.records.build import varint
from barnabas.protocol.records.columnar._jit import np
from barnabas.protocol.records.columnar.byte_column import ByteColumn
from barnabas.protocol.records.columnar.encode import EncodeOptions, RowColumns, lay_out, write_batches
from barnabas.protocol.records.columnar.segments import (
    AbortedFilter,
    RecordTable,
    Selection,
    batch_table,
    iter_run_tables,
)
from barnabas.protocol.records.compression import CompressionType
from barnabas.spark.mirror.copying.header_kernels import DROP, append_header, judge_headers, measure_headers
from barnabas.spark.mirror.copying.runs import Upstream
from barnabas.spark.mirror.copying.values import Provenance

MERGED_BELOW_BYTES: Final = 128 * 1024
"""Smaller uncompressed batches are written together. Decoding and encoding them costs less than a request for each."""
MERGED_BELOW_COMPRESSED_BYTES: Final = 16 * 1024
"""The same for compressed batches, which have to be decompressed and compressed again."""
BATCH_BYTES: Final = 1_000_000
"""The largest size of a new batch before compression; a larger record gets a batch of its own."""
GROUP_BYTES: Final = 4 * 1024 * 1024
"""About this many bytes of batches are decoded at a time."""

_BASE_OFFSET: Final = Struct(">q")
_LEADER_EPOCH: Final = Struct(">i")
_LEADER_EPOCH_AT: Final = 12


class CopiedBatch(NamedTuple):
    """A batch for the target topic, without producer id, sequence and CRC. `upstream` has the offsets of its records
    in the source topic."""

    data: Buffer
    records: int
    upstream: Sequence[Upstream]


class FetchedPart(NamedTuple):
    """The batches of one fetch: all from offset `start` on are copied."""

    buffer: Buffer
    start: int
    aborted: Sequence[tuple[int, int]] = ()
    check_crcs: bool = True


def copy_batches(
    part: FetchedPart, codec: CompressionType | None = None, provenance: Provenance | None = None
) -> Iterator[CopiedBatch]:
    """The batches for the target topic, in order. `codec` is theirs; None keeps that of the source. Raises
    CorruptBatchError."""
    group = _Group(part.buffer, codec, provenance)
    for pos, header in _records_of(part):
        if header.base_offset < part.start:
            table = batch_table(part.buffer, pos, header, Selection(start_offset=part.start, check_crcs=False))
            yield from _encode(table, header.codec if codec is None else codec, provenance)
        elif group.takes_whole(header) and header.size >= _merged_below(header):
            yield from group.flush()
            yield _whole(part.buffer, pos, header)
        else:
            if not group.fits(header):
                yield from group.flush()
            group.add(pos, header)
    yield from group.flush()


def _records_of(part: FetchedPart) -> Iterator[tuple[int, BatchHeader]]:
    """The batches with records from the start of the part on, without markers and aborted batches."""
    aborted = AbortedFilter(part.aborted)
    for pos, header in iter_batches(part.buffer):
        passed = header.last_offset < part.start
        if passed and not aborted.active:
            continue
        if part.check_crcs:
            check_crc(part.buffer, pos, header)
        dropped = aborted.active and aborted.drops(part.buffer, pos, header)
        if not dropped and not passed and not header.is_control and header.record_count > 0:
            yield pos, header


def _merged_below(header: BatchHeader) -> int:
    return MERGED_BELOW_COMPRESSED_BYTES if header.attributes & CODEC_MASK else MERGED_BELOW_BYTES


def _whole(buffer: Buffer, pos: int, header: BatchHeader) -> CopiedBatch:
    data = bytearray(memoryview(buffer)[pos : pos + header.size])
    _BASE_OFFSET.pack_into(data, 0, 0)
    _LEADER_EPOCH.pack_into(data, _LEADER_EPOCH_AT, -1)
    return CopiedBatch(data, header.record_count, ((header.base_offset, header.record_count),))


class _Group:
    """Consecutive batches that are decoded together: all compressed, or all uncompressed."""

    def __init__(self, buffer: Buffer, codec: CompressionType | None, provenance: Provenance | None) -> None:
        self._buffer = buffer
        self._codec = codec
        self._provenance = provenance
        self._batches: list[tuple[int, BatchHeader]] = []
        self._bytes = 0

    def takes_whole(self, header: BatchHeader) -> bool:
        """Whether the batch may be copied without decoding its records."""
        return (
            self._provenance is None
            and header.record_count == header.last_offset_delta + 1
            and not header.attributes & (LOG_APPEND_TIME_FLAG | DELETE_HORIZON_FLAG)
            and (self._codec is None or self._codec is header.codec)
        )

    def fits(self, header: BatchHeader) -> bool:
        if not self._batches:
            return True
        alike = (self._batches[0][1].attributes ^ header.attributes) & CODEC_MASK == 0
        return alike and self._bytes < GROUP_BYTES

    def add(self, pos: int, header: BatchHeader) -> None:
        self._batches.append((pos, header))
        self._bytes += header.size

    def flush(self) -> Iterator[CopiedBatch]:
        """The batches of the group, which is then empty."""
        batches, self._batches, self._bytes = self._batches, [], 0
        if not batches:
            return
        pos, first = batches[0]
        if len(batches) == 1 and self.takes_whole(first):
            yield _whole(self._buffer, pos, first)
            return
        for _, table in iter_run_tables(self._buffer, batches):
            yield from _encode(table, first.codec if self._codec is None else self._codec, self._provenance)


def _encode(table: RecordTable, codec: CompressionType, provenance: Provenance | None) -> Iterator[CopiedBatch]:
    """The records of the table in new batches."""
    offsets = table.offsets
    rows = RowColumns(
        table.timestamps,
        ByteColumn(table.data, table.key_at, table.key_len),
        ByteColumn(table.data, table.value_at, table.value_len),
        ByteColumn(table.data, table.headers_at, table.headers_len),
    )
    if provenance is not None:
        rows, offsets = _with_provenance(rows, offsets, provenance)
    options = EncodeOptions(batch_bytes_max=BATCH_BYTES, codec=codec, with_crc=False)
    for batch in write_batches(lay_out(rows, options), options):
        upstream = offsets[batch.first_row : batch.first_row + batch.record_count]
        yield CopiedBatch(batch.data, batch.record_count, consecutive(upstream))


def _with_provenance(rows: RowColumns, offsets: Any, provenance: Provenance) -> tuple[RowColumns, Any]:
    """The rows with the header, and their offsets. Rows that come from the target cluster are left out."""
    name, alias = provenance.header.encode(), provenance.source_alias.encode()
    entry = np.frombuffer(varint(len(name)) + name + varint(len(alias)) + alias, np.uint8)
    refused = np.frombuffer(provenance.target_alias.encode(), np.uint8)
    headers = rows.headers
    verdicts = np.empty(len(headers), np.int32)
    kept = judge_headers(headers.data, headers.at, headers.length, np.frombuffer(name, np.uint8), refused, verdicts)
    if kept < len(headers):
        chosen = np.flatnonzero(verdicts != DROP)
        rows, offsets, verdicts = rows.take(chosen), offsets[chosen], verdicts[chosen]
        headers = rows.headers
    at, length = np.empty(kept, np.int64), np.empty(kept, np.int32)
    size = measure_headers(headers.data, headers.at, headers.length, verdicts, entry, at, length)
    out = np.empty(size, np.uint8)
    append_header(headers.data, headers.at, headers.length, verdicts, entry, at, out)
    return rows._replace(headers=ByteColumn(out, at, length)), offsets


def consecutive(offsets: Any) -> list[Upstream]:
    """The runs of consecutive numbers in an array of ascending offsets."""
    if not len(offsets):
        return []
    first = np.concatenate(([0], np.flatnonzero(np.diff(offsets) != 1) + 1))
    counts = np.diff(np.append(first, len(offsets)))
    return list(zip(offsets[first].tolist(), counts.tolist(), strict=True))
