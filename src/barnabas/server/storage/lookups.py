"""Shell: finds records by timestamp (ListOffsets), and the aborted transactions in a range of offsets (Fetch).

The search by timestamp reads batch headers, and decodes the records of the batches that reach the timestamp. A batch
may have millions of records: `TimestampSearch` reads a batch on the event loop, and the caller may search it elsewhere.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from barnabas.core.buffers import Buffer
from barnabas.protocol.records.batch import BatchHeader
from barnabas.protocol.records.compression import CompressionType
from barnabas.protocol.records.scan import find_timestamp
from barnabas.server.storage.segments.batches import walk_headers
from barnabas.server.storage.segments.segment import Segment
from barnabas.server.storage.state import LogState
from barnabas.server.storage.values import AbortedTxn, TimestampOffset

_LIGHT_RECORDS: Final = 2_000
_LIGHT_COMPRESSED_BYTES: Final = 4_096


class CandidateBatch(Struct, frozen=True):
    """A batch that may contain the record of a search."""

    data: bytes
    header: BatchHeader
    timestamp: int
    """The least timestamp of the record."""
    least_offset: int
    """The least offset of the record: the start of the log."""
    max_decompressed_message_bytes: int

    @property
    def is_light(self) -> bool:
        """Whether `find` takes less than some milliseconds."""
        header = self.header
        compressed = header.codec is not CompressionType.NONE
        return header.record_count <= _LIGHT_RECORDS and not (compressed and header.size > _LIGHT_COMPRESSED_BYTES)

    def find(self) -> tuple[int, int] | None:
        """The timestamp and offset of the first record that the search wants. Raises CorruptBatchError."""
        return find_timestamp(*self.arguments)

    @property
    def arguments(self) -> tuple[Buffer, BatchHeader, int, int, int]:
        """The arguments of `records.scan.find_timestamp`."""
        return self.data, self.header, self.timestamp, self.least_offset, self.max_decompressed_message_bytes

    def answer(self, found: tuple[int, int]) -> TimestampOffset:
        """The result of the search, from the result of `find`."""
        return TimestampOffset(*found, self.header.partition_leader_epoch)


class TimestampSearch:
    """One search: look through each batch that `next_batch` returns, until a record is found.

    Between two calls the log may change: each call starts from the offset behind the last batch.
    """

    def __init__(self, state: LogState, timestamp: int | None) -> None:
        """`timestamp` is the least timestamp of the record; None for the largest timestamp of the log (KIP-734)."""
        self._state = state
        self._timestamp = timestamp
        self._from_offset = 0

    def next_batch(self) -> CandidateBatch | None:
        """The next batch that may contain the record, or None. Raises CorruptBatchError and StorageError."""
        state = self._state
        with state.guarded():
            if self._timestamp is None:
                segment = max(state.segments, key=lambda s: (s.max_timestamp, -s.base_offset))
                found = segment.find(segment.offset_of_max_timestamp) if segment.max_timestamp >= 0 else None
                return None if found is None else self._next(segment, found.position, segment.max_timestamp)
            for segment in list(state.segments):
                if segment.max_timestamp < self._timestamp:
                    continue
                known = segment.time_index.lookup(self._timestamp)
                position = segment.lookup(max(known.offset, state.log_start_offset, self._from_offset))
                candidate = self._next(segment, position, self._timestamp)
                if candidate is not None:
                    return candidate
            return None

    def _next(self, segment: Segment, position: int, timestamp: int) -> CandidateBatch | None:
        file = segment.file()
        start = self._state.log_start_offset if self._timestamp is not None else 0
        for at, header in walk_headers(file, position, segment.size):
            if header.max_timestamp >= timestamp and header.last_offset >= max(start, self._from_offset):
                self._from_offset = header.next_offset
                return CandidateBatch(
                    segment.read_batch(file, at, header),
                    header,
                    timestamp,
                    start,
                    self._state.config.max_decompressed_message_bytes,
                )
        return None


def find_first(search: TimestampSearch) -> TimestampOffset | None:
    """The record of a search, found in the calling thread."""
    while (batch := search.next_batch()) is not None:
        found = batch.find()
        if found is not None:
            return batch.answer(found)
    return None


def aborted_transactions(state: LogState, start_offset: int, end_offset: int) -> list[AbortedTxn]:
    """The aborted transactions with records in [start_offset, end_offset). Raises StorageError."""
    with state.guarded():
        found: list[AbortedTxn] = []
        for segment in state.segments.starting_from(start_offset):
            some, complete = segment.txn_index.collect(start_offset, end_offset)
            found += some
            if complete:
                break
        return found
