"""Shell: reads records of remote segments, as `storage/reading.py` and `storage/lookups.py` read those of local ones.

The batches are the bytes of the local log. A read ends with its segment, as a local read does. What is read was below
the last stable offset when it was copied, so neither the high watermark nor an open transaction limits the read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

from barnabas.core.objects.ports import ObjectStore
from barnabas.protocol.records.batch import HEADER_SIZE, BatchHeader, check_crc, read_header
from barnabas.protocol.records.errors import CorruptBatchError, LogFileError
from barnabas.protocol.records.log_files import (
    LOG,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    AbortedTxn,
    decode_aborted,
    overlapping,
    position_before,
)
from barnabas.server.storage.epochs import EpochEntry, LeaderEpochs
from barnabas.server.storage.errors import CorruptFileError
from barnabas.server.storage.lookups import CandidateBatch
from barnabas.server.storage.producers.snapshots import decode_snapshot
from barnabas.server.storage.producers.state import ProducerEntry
from barnabas.server.storage.segments.indexes import TimeIndex
from barnabas.server.storage.values import EMPTY_READ, ReadResult
from barnabas.server.tiering.errors import DamagedObjectError
from barnabas.server.tiering.reading.chunks import ChunkReader
from barnabas.server.tiering.reading.index_cache import IndexCache
from barnabas.server.tiering.store.names import LEADER_EPOCHS, object_name
from barnabas.server.tiering.values import RemoteSegment

_HEADERS_BYTES: Final = 64 * 1024
"""How much is read at a time to look for a batch: more than index.interval.bytes."""


class RemoteReader:
    """Reads remote segments. Every method raises RemoteStorageError if the store fails or an object is damaged."""

    def __init__(self, store: ObjectStore, chunks: ChunkReader, indexes: IndexCache, *, prefix: str = "") -> None:
        self._store = store
        self._chunks = chunks
        self._indexes = indexes
        self._prefix = prefix

    async def read(
        self, segment: RemoteSegment, offset: int, max_bytes: int, *, min_one_batch: bool = True
    ) -> ReadResult:
        """Batches from the one with `offset` on, about `max_bytes` of them; the last one may be incomplete. If the
        first batch is larger, the result is that batch with `min_one_batch`, and empty without."""
        found = await self._find(segment, offset)
        if found is None:
            return EMPTY_READ
        position, header = found
        length = max_bytes
        if header.size > max_bytes:
            if not min_one_batch:
                return EMPTY_READ
            length = header.size
        return ReadResult(await self._bytes(segment, position, position + length), header.base_offset)

    async def _find(self, segment: RemoteSegment, offset: int) -> tuple[int, BatchHeader] | None:
        """The position of the first batch whose last offset is not below `offset`, or None."""
        index = await self._indexes.get(segment)
        async for position, header in self._headers(segment, position_before(index, segment.start_offset, offset)):
            if header.last_offset >= offset:
                return position, header
        return None

    async def _headers(self, segment: RemoteSegment, position: int) -> AsyncIterator[tuple[int, BatchHeader]]:
        """The batches from `position` on. The records of large batches are skipped."""
        size = segment.size_bytes
        while size - position >= HEADER_SIZE:
            data = await self._bytes(segment, position, position + _HEADERS_BYTES)
            at = 0
            while at + HEADER_SIZE <= len(data):
                header = self._header(segment, data, at, position)
                yield position + at, header
                at += header.size
            position += at

    def _header(self, segment: RemoteSegment, data: bytes, at: int, position: int) -> BatchHeader:
        try:
            header = read_header(data, at)
        except CorruptBatchError as error:
            raise self._damaged(segment, LOG, f"at byte {position + at}: {error}") from error
        within = segment.start_offset <= header.base_offset <= header.last_offset <= segment.end_offset
        if not within or position + at + header.size > segment.size_bytes:
            raise self._damaged(segment, LOG, f"at byte {position + at}: {header} does not belong to the segment")
        return header

    async def _bytes(self, segment: RemoteSegment, start: int, end: int) -> bytes:
        return await self._chunks.read(object_name(segment, LOG, self._prefix), segment.size_bytes, start, end)

    async def candidates(
        self,
        segments: Sequence[RemoteSegment],
        timestamp: int,
        least_offset: int,
        max_decompressed_message_bytes: int,
    ) -> AsyncIterator[CandidateBatch]:
        """The batches that may contain the first record whose timestamp is not less than `timestamp` and whose offset
        is not less than `least_offset`, in order. `segments` are those of the log, by start offset."""
        for segment in segments:
            if segment.max_timestamp < timestamp or segment.end_offset < least_offset:
                continue
            times = await self._indexes.get(segment, TIME_INDEX)
            try:
                known = TimeIndex.decode(segment.start_offset, times).lookup(timestamp)
            except CorruptFileError as error:
                raise self._damaged(segment, TIME_INDEX, str(error)) from error
            offset = max(known.offset, least_offset)
            index = await self._indexes.get(segment)
            async for position, header in self._headers(segment, position_before(index, segment.start_offset, offset)):
                if header.last_offset >= offset and header.max_timestamp >= timestamp:
                    data = await self._bytes(segment, position, position + header.size)
                    self._check_crc(segment, data, header)
                    yield CandidateBatch(data, header, timestamp, least_offset, max_decompressed_message_bytes)

    def _check_crc(self, segment: RemoteSegment, data: bytes, header: BatchHeader) -> None:
        try:
            check_crc(data, 0, header)
        except CorruptBatchError as error:
            raise self._damaged(segment, LOG, str(error)) from error

    async def aborted_transactions(
        self, segments: Sequence[RemoteSegment], start_offset: int, end_offset: int
    ) -> tuple[list[AbortedTxn], bool]:
        """The aborted transactions with records in [start, end), of which the markers are in `segments`, and whether
        later segments, remote or local, contain none."""
        found: list[AbortedTxn] = []
        for segment in segments:
            if segment.end_offset < start_offset or segment.txn_index_empty:
                continue
            data = await self._indexes.get_optional(segment, TXN_INDEX)  # Kafka before 4.0 does not set the flag
            try:
                some, complete = overlapping(decode_aborted(data, segment.start_offset), start_offset, end_offset)
            except LogFileError as error:
                raise self._damaged(segment, TXN_INDEX, str(error)) from error
            found += some
            if complete:
                return found, True
        return found, False

    async def producers(self, segment: RemoteSegment) -> list[ProducerEntry]:
        """The state of all producers as of the segment's end. A follower that continues there needs it."""
        name = object_name(segment, SNAPSHOT, self._prefix)
        try:
            return decode_snapshot(await self._store.read(name), name)
        except CorruptFileError as error:
            raise DamagedObjectError(str(error)) from error

    async def leader_epochs(self, segment: RemoteSegment) -> tuple[EpochEntry, ...]:
        """The leader epochs of the log up to the segment's end."""
        name = object_name(segment, LEADER_EPOCHS, self._prefix)
        try:
            data = await self._store.read(name)
            return LeaderEpochs.decode(data, name).entries
        except CorruptFileError as error:
            raise DamagedObjectError(str(error)) from error

    def _damaged(self, segment: RemoteSegment, suffix: str, reason: str) -> DamagedObjectError:
        return DamagedObjectError(f"The object {object_name(segment, suffix, self._prefix)} is damaged: {reason}.")
