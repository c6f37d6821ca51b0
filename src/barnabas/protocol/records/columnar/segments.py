"""Codec: computes tables with the position of every record in fetched buffers.

A *segment* here is the uncompressed records of one batch in an array of bytes. Segments are collected in groups that
share one array: uncompressed batches are scanned in place, compressed ones are first decompressed into a new array.
Control batches, batches outside the requested offsets and batches of aborted transactions are omitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop
from typing import Any, Final

from msgspec import Struct

from barnabas.core.buffers import Buffer
from barnabas.protocol.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    BatchHeader,
    check_crc,
    iter_batches,
    iter_records,
    records_payload,
)
from barnabas.protocol.records.columnar._jit import np
from barnabas.protocol.records.columnar.kernels import OK, REASONS, scan
from barnabas.protocol.records.compression import (
    DECOMPRESSED_BYTES_MAX,
    DECOMPRESSED_RECORD_BYTES_MAX,
    CompressionType,
)
from barnabas.protocol.records.control import EndTxn, parse_control
from barnabas.protocol.records.errors import CorruptBatchError

OWN_TIME: Final = -(1 << 63)
RECORD_BYTES_MIN: Final = 7
"""The smallest size of a record: length, attributes, two deltas, two lengths and header count, one byte each."""
_GROUP_BYTES: Final = 8 * 1024 * 1024
_SEGMENT_WIDTH: Final = 6


class Selection(Struct, frozen=True):
    """Which records are requested, whether CRCs are checked, and how many bytes a batch may have when decompressed."""

    start_offset: int = 0
    end_offset: int = (1 << 63) - 1
    aborted: Sequence[tuple[int, int]] = ()
    """(producer id, first offset) of aborted transactions, as a read_committed fetch response lists them."""
    check_crcs: bool = True
    limit_bytes: int = DECOMPRESSED_BYTES_MAX
    max_decompressed_message_bytes: int = DECOMPRESSED_RECORD_BYTES_MAX


class RecordTable(Struct):
    """The positions of each record's parts in `data`; one row for each record. A length of -1 is null."""

    data: Any
    offsets: Any
    timestamps: Any
    timestamp_types: Any
    """A single number if all rows have the same type."""
    key_at: Any
    key_len: Any
    value_at: Any
    value_len: Any
    headers_at: Any
    headers_len: Any

    def __len__(self) -> int:
        return len(self.offsets)


class _Group:
    """Segments that share one array."""

    __slots__ = ("append_times", "bytes", "compressed", "fields", "pieces", "rows", "source")

    def __init__(self, source: Buffer, compressed: bool) -> None:
        self.source = source
        self.compressed = compressed
        self.pieces: list[bytes] = []
        self.fields: list[int] = []
        self.append_times: list[int] = []
        self.bytes = 0
        self.rows = 0

    def add_batch(self, buf: Buffer, pos: int, header: BatchHeader, wanted: Selection) -> None:
        if not self.compressed:
            self.add(pos + HEADER_SIZE, header.size - HEADER_SIZE, header)
            return
        payload = bytes(records_payload(buf, pos, header, wanted.limit_bytes, wanted.max_decompressed_message_bytes))
        self.add(self.bytes, len(payload), header)
        self.pieces.append(payload)

    def add(self, start: int, size: int, header: BatchHeader) -> None:
        count = header.record_count
        if count < 0 or count * RECORD_BYTES_MIN > size or (size and not count):
            raise CorruptBatchError(f"batch at {header.base_offset}: {count} records do not fit {size} bytes")
        by_append_time = header.attributes & LOG_APPEND_TIME_FLAG
        self.fields += (
            start,
            start + size,
            count,
            header.base_offset,
            header.last_offset_delta,
            header.base_timestamp,
        )
        self.append_times.append(header.max_timestamp if by_append_time else OWN_TIME)
        self.bytes += size
        self.rows += count

    def table(self, wanted: Selection) -> RecordTable:
        data = np.frombuffer(b"".join(self.pieces) if self.compressed else self.source, dtype=np.uint8)
        segments = np.array(self.fields, dtype=np.int64)
        append_times = np.array(self.append_times, dtype=np.int64)
        n = self.rows
        offsets, timestamps = np.empty(n, np.int64), np.empty(n, np.int64)
        key_at, value_at, headers_at = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
        key_len, value_len, headers_len = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
        segment_of = np.empty(n, np.int32)
        rows, code, at_fault = scan(
            data, segments, append_times, _SEGMENT_WIDTH, wanted.start_offset, wanted.end_offset,
            offsets, timestamps, segment_of, key_at, key_len, value_at, value_len, headers_at, headers_len,
        )  # fmt: skip
        if code != OK:
            base_offset = self.fields[at_fault * _SEGMENT_WIDTH + 3]
            raise CorruptBatchError(f"batch at {base_offset}, after {rows} records: {REASONS[code]}")
        types = (append_times != OWN_TIME).astype(np.int32)
        alike = not len(types) or (types == types[0]).all()
        kinds = (int(types[0]) if len(types) else 0) if alike else types[segment_of[:rows]]
        return RecordTable(
            data, offsets[:rows], timestamps[:rows], kinds, key_at[:rows], key_len[:rows],
            value_at[:rows], value_len[:rows], headers_at[:rows], headers_len[:rows],
        )  # fmt: skip


class AbortedFilter:
    """Finds the batches of aborted transactions, for read_committed consumers (Kafka's CompletedFetch)."""

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._ahead = [(first_offset, producer_id) for producer_id, first_offset in aborted]
        heapify(self._ahead)
        self._open: set[int] = set()
        self.active = bool(aborted)

    def drops(self, buf: Buffer, pos: int, header: BatchHeader) -> bool:
        """Whether the batch is one of an aborted transaction. Called for every batch, in order, also for markers."""
        if not header.has_producer_id:
            return False
        while self._ahead and self._ahead[0][0] <= header.last_offset:
            self._open.add(heappop(self._ahead)[1])
        if header.producer_id not in self._open:
            return False
        if header.is_control:
            marker = next(iter_records(buf, pos, header), None)
            value = parse_control(marker) if marker else None
            if isinstance(value, EndTxn) and not value.commit:
                self._open.discard(header.producer_id)
        return header.is_transactional


def batch_table(buf: Buffer, pos: int, header: BatchHeader, wanted: Selection) -> RecordTable:
    """The requested records of one batch of any kind. Raises CorruptBatchError. The CRC is not checked."""
    group = _Group(buf, header.codec is not CompressionType.NONE)
    group.add_batch(buf, pos, header, wanted)
    return group.table(wanted)


def iter_run_tables(
    buf: Buffer,
    batches: Sequence[tuple[int, BatchHeader]],
    max_decompressed_message_bytes: int = DECOMPRESSED_RECORD_BYTES_MAX,
) -> Iterator[tuple[Sequence[tuple[int, BatchHeader]], RecordTable]]:
    """Yield all records of consecutive batches of one buffer, a limited number of bytes at a time: some batches, and
    the table of their records. The batches must be all compressed or all uncompressed.

    Raises CorruptBatchError. CRCs are not checked.
    """
    wanted = Selection(max_decompressed_message_bytes=max_decompressed_message_bytes)
    group = _Group(buf, batches[0][1].codec is not CompressionType.NONE)
    first = 0
    for i, (pos, header) in enumerate(batches):
        assert (header.attributes & CODEC_MASK != 0) is group.compressed, "one table, one array of bytes"
        if group.bytes >= _GROUP_BYTES:
            yield batches[first:i], group.table(wanted)
            first, group = i, _Group(buf, group.compressed)
        group.add_batch(buf, pos, header, wanted)
    yield batches[first:], group.table(wanted)


def iter_tables(buffers: Sequence[Buffer], wanted: Selection) -> Iterator[RecordTable]:
    """Yield the requested records of consecutive buffers of batches, a limited number of bytes at a time.

    A partial batch at the end of a buffer is ignored. Raises CorruptBatchError.
    """
    aborted = AbortedFilter(wanted.aborted)
    for buf in buffers:
        group: _Group | None = None
        for pos, header in iter_batches(buf):
            if header.base_offset >= wanted.end_offset:
                break
            if header.last_offset_delta < 0:
                raise CorruptBatchError(f"the batch at offset {header.base_offset} ends before it starts")
            if header.last_offset < wanted.start_offset and not aborted.active:
                continue
            if wanted.check_crcs:
                check_crc(buf, pos, header)
            if (aborted.active and aborted.drops(buf, pos, header)) or header.is_control:
                continue
            if header.last_offset < wanted.start_offset or header.size == HEADER_SIZE:
                continue
            compressed = header.codec is not CompressionType.NONE
            if group is None or group.compressed is not compressed or group.bytes >= _GROUP_BYTES:
                if group is not None:
                    yield group.table(wanted)
                group = _Group(buf, compressed)
            group.add_batch(buf, pos, header, wanted)
        if group is not None:
            yield group.table(wanted)
