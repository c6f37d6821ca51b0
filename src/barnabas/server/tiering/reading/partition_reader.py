"""Shell: reads a log below its local start: which remote segments have the records, and where the local log goes on.

A read that takes longer than remote.fetch.max.wait.ms gives no records yet. What it has requested from the store is
still fetched, so that the client's next request finds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Executor
from typing import Any, TypeVar

from msgspec import Struct

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import iter_batches
from barnabas.server.storage.log import Log
from barnabas.server.storage.lookups import CandidateBatch
from barnabas.server.storage.values import AbortedTxn, TimestampOffset
from barnabas.server.tiering.errors import RemoteStorageError
from barnabas.server.tiering.lineage import find_segment, segments_of
from barnabas.server.tiering.ports import RemoteLogMetadata
from barnabas.server.tiering.quotas import RemoteQuota
from barnabas.server.tiering.reading.config import RemoteReadConfig
from barnabas.server.tiering.reading.reader import RemoteReader
from barnabas.server.tiering.traffic import RemoteTraffic
from barnabas.server.tiering.values import RemotePartition, RemoteSegment

T = TypeVar("T")

FindRecord = Callable[[CandidateBatch], Awaitable[tuple[int, int] | None]]
"""`CandidateBatch.find`, off the event loop if the batch is large."""


class RemoteRange(Struct, frozen=True):
    """A read below the local start of a log."""

    offset: int
    upper_offset: int
    """The high watermark or the last stable offset: no record from this offset on may be read."""
    max_bytes: int
    min_one_batch: bool
    with_aborted: bool


class RemoteRecords(Struct, frozen=True):
    """The result of a read. Without records the read is to be repeated."""

    data: Buffer
    aborted: list[AbortedTxn] | None


class RemotePartitionReader:
    """Reads partitions whose logs this broker hosts."""

    def __init__(
        self,
        metadata: RemoteLogMetadata,
        reader: RemoteReader,
        disk: Executor,
        *,
        remote_fetch_max_wait_ms: int,
        remote_list_offsets_request_timeout_ms: int = 30_000,
        traffic: RemoteTraffic | None = None,
        quota: RemoteQuota | None = None,
    ) -> None:
        self.traffic = RemoteTraffic() if traffic is None else traffic
        self.quota = RemoteQuota() if quota is None else quota
        self._metadata = metadata
        self._reader = reader
        self._disk = disk
        self._max_wait_s = remote_fetch_max_wait_ms / 1000
        self._list_timeout_s = remote_list_offsets_request_timeout_ms / 1000

    def reconfigure(self, config: RemoteReadConfig) -> None:
        """The dynamic configs have changed."""
        self.quota.bytes_per_second = config.remote_log_manager_fetch_max_bytes_per_second
        self._max_wait_s = config.remote_fetch_max_wait_ms / 1000
        self._list_timeout_s = config.remote_list_offsets_request_timeout_ms / 1000

    def is_throttled(self) -> bool:
        """Whether the reads exceed remote.log.manager.fetch.max.bytes.per.second, so that none may begin now."""
        return self.quota.throttle_ms(_now_ms()) > 0

    async def read(self, partition: RemotePartition, log: Log, wanted: RemoteRange) -> RemoteRecords:
        """Batches from the one with the offset on. Raises RemoteStorageError, and KafkaError(OFFSET_OUT_OF_RANGE) if
        the offset lies below the log start by now."""
        counted = self.traffic.of(partition.topic)
        counted.remote_fetch_requests += 1
        try:
            records = await _within(self._max_wait_s, self._read(partition, log, wanted))
        except TimeoutError:
            return RemoteRecords(b"", [] if wanted.with_aborted else None)
        except RemoteStorageError:
            counted.remote_fetch_errors += 1
            raise
        counted.remote_fetch_bytes += len(records.data)
        self.quota.record(len(records.data), _now_ms())
        return records

    async def _read(self, partition: RemotePartition, log: Log, wanted: RemoteRange) -> RemoteRecords:
        data = await self._batches(partition, log, wanted)
        aborted = await self._aborted(partition, log, wanted.offset, data) if wanted.with_aborted else None
        return RemoteRecords(data, aborted)

    async def _batches(self, partition: RemotePartition, log: Log, wanted: RemoteRange) -> Buffer:
        """The records at the offset, or if there are none, the next ones above it."""
        offset = wanted.offset
        remote = self._metadata.remote_log(partition)
        while offset < log.local_log_start_offset:
            segment = find_segment(remote, log.epoch_entries, offset)
            if segment is None:
                raise _absent(partition, log, offset)
            found = await self._reader.read(segment, offset, wanted.max_bytes, min_one_batch=wanted.min_one_batch)
            if found.size or not wanted.min_one_batch:
                return found.data
            offset = segment.end_offset + 1  # the end of the segment had been compacted before it was tiered
        plan = log.plan_read(
            offset, wanted.max_bytes, upper_offset=wanted.upper_offset, min_one_batch=wanted.min_one_batch
        )
        return (await asyncio.get_running_loop().run_in_executor(self._disk, plan.run)).data

    async def _aborted(self, partition: RemotePartition, log: Log, start_offset: int, data: Buffer) -> list[AbortedTxn]:
        """The aborted transactions of the records that were read. Their markers may be far behind, also in the local
        segments, some of which have copies."""
        end_offset = start_offset
        for _, header in iter_batches(data):
            end_offset = header.next_offset
        remote = self._metadata.remote_log(partition)
        segments = segments_of(remote, log.epoch_entries, log.log_end_offset)
        found, complete = await self._reader.aborted_transactions(segments, start_offset, end_offset)
        if not complete:
            found = list(dict.fromkeys([*found, *log.aborted_transactions(start_offset, end_offset)]))
        return found

    async def find_timestamp(
        self, partition: RemotePartition, log: Log, timestamp: int, find: FindRecord
    ) -> TimestampOffset | None:
        """The first record below the local start whose timestamp is not less than `timestamp`, or None. Raises
        RemoteStorageError, and KafkaError(REQUEST_TIMED_OUT) after remote.list.offsets.request.timeout.ms."""
        return await self._search(log, self._below_local_start(partition, log), timestamp, find)

    async def find_max_timestamp(
        self, partition: RemotePartition, log: Log, local_max: int, find: FindRecord
    ) -> TimestampOffset | None:
        """The first record below the local start with the largest timestamp of the log; None if it is local, where the
        largest timestamp is `local_max`. Raises like `find_timestamp`."""
        segments = self._below_local_start(partition, log)
        largest = max((segment.max_timestamp for segment in segments), default=-1)
        if largest < local_max or largest < 0:
            return None
        return await self._search(log, segments, largest, find)

    def _below_local_start(self, partition: RemotePartition, log: Log) -> list[RemoteSegment]:
        remote = self._metadata.remote_log(partition)
        return [
            segment
            for segment in segments_of(remote, log.epoch_entries, log.log_end_offset)
            if segment.start_offset < log.local_log_start_offset
        ]

    async def _search(
        self, log: Log, segments: Sequence[RemoteSegment], timestamp: int, find: FindRecord
    ) -> TimestampOffset | None:
        try:
            return await _within(self._list_timeout_s, self._find(log, segments, timestamp, find))
        except TimeoutError:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"The object store has not answered for {self._list_timeout_s:.0f} s "
                "(remote.list.offsets.request.timeout.ms).",
            ) from None

    async def _find(
        self, log: Log, segments: Sequence[RemoteSegment], timestamp: int, find: FindRecord
    ) -> TimestampOffset | None:
        most = log.config.max_decompressed_message_bytes
        async for candidate in self._reader.candidates(segments, timestamp, log.log_start_offset, most):
            found = await find(candidate)
            if found is not None:
                return candidate.answer(found)
        return None

    def highest_copied(self, partition: RemotePartition, log: Log) -> TimestampOffset:
        """The answer to ListOffsets -5: the highest offset in the object store and its leader epoch; -1 without one.
        Raises RemoteStorageError."""
        remote = self._metadata.remote_log(partition)
        highest = remote.highest_copied(log.epoch_entries, log.log_end_offset)
        epoch = None if highest < 0 else log.epoch_for_offset(highest)
        return TimestampOffset(-1, highest, -1 if epoch is None else epoch)


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


async def _within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, in a task of its own: a request handler begins outside of any task, and only a task can
    have a timeout. Raises TimeoutError."""

    async def bounded() -> T:
        async with asyncio.timeout(seconds):
            return await work

    return await asyncio.ensure_future(bounded())


def _absent(partition: RemotePartition, log: Log, offset: int) -> KafkaError:
    """Why no segment has the offset. OFFSET_OUT_OF_RANGE would let consumers skip records, so it is the answer only if
    the log starts above; the leader raises the log start over segments that are gone."""
    if offset < log.log_start_offset:
        return KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Offset {offset} of {partition} lies below the log start offset {log.log_start_offset}.",
        )
    return RemoteStorageError(f"No readable remote segment has offset {offset} of {partition} at this moment.")
