"""Shell: reads of one partition's log: record batches, offsets of timestamps, end offsets of leader epochs.

The functions take a replica whose role has been checked already (`Partition.require_log`). Consumers read below the
high watermark, or below the last stable offset with read_committed; other replicas read up to the log end offset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from enum import IntEnum
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.batch import BatchHeader
from barnabas.server.replication.local_replica import LocalReplica
from barnabas.server.replication.ports import TieredReplicas
from barnabas.server.storage.errors import StorageError
from barnabas.server.storage.log import Log
from barnabas.server.storage.lookups import CandidateBatch, TimestampSearch
from barnabas.server.storage.reading import LogReadPlan
from barnabas.server.storage.values import AbortedTxn, EpochEndOffset, TimestampOffset
from barnabas.server.tiering.reading.partition_reader import RemoteRange

FindInBatch = Callable[[Buffer, BatchHeader, int, int, int], Awaitable[tuple[int, int] | None]]
"""`records.scan.find_timestamp`, off the event loop."""


class Isolation(IntEnum):
    """The `isolation.level` of a reader, as Fetch and ListOffsets requests carry it."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class SpecialTimestamp(IntEnum):
    """The negative timestamps of ListOffsets."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


class PartitionRead(Struct, frozen=True):
    """The part of a Fetch response that one partition contributes."""

    data: Buffer
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[AbortedTxn] | None = None
    diverging: EpochEndOffset | None = None
    pending: LogReadPlan | None = None
    """Set if the bytes are not in the page cache; `Partition.read_from_disk` then reads them in an executor."""
    remote: RemoteRange | None = None
    """Set if the records are in the object store only; `Partition.read_remote` then reads them."""
    preferred_read_replica: int = -1
    """The replica that the consumer should read from instead (KIP-392); `data` is then empty."""


_NO_DATA = b""


def read_batches(
    replica: LocalReplica,
    log: Log,
    fetch_offset: int,
    max_bytes: int,
    *,
    upper_offset: int,
    min_one_batch: bool,
    last_fetched_epoch: int,
    with_aborted: bool = False,
) -> PartitionRead:
    """Batches from `fetch_offset` up to `upper_offset` (exclusive), at most about `max_bytes`.

    `with_aborted` adds the aborted transactions of the range. An empty result is not an error. Below the local start of
    a tiered log, the result is a `remote` read. Raises KafkaError OFFSET_OUT_OF_RANGE.
    """
    watermark = replica.high_watermark
    stable = log.last_stable_offset(watermark)
    start = log.log_start_offset
    if last_fetched_epoch >= 0:
        diverging = _diverging(replica.name, log, fetch_offset, last_fetched_epoch)
        if diverging is not None:
            return PartitionRead(_NO_DATA, watermark, stable, start, diverging=diverging)
    if fetch_offset < start or fetch_offset > log.log_end_offset:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Offset {fetch_offset} of {replica.name} is not within {start} and {log.log_end_offset}.",
        )
    if fetch_offset >= upper_offset or (max_bytes <= 0 and not min_one_batch):
        return PartitionRead(_NO_DATA, watermark, stable, start, [] if with_aborted else None)
    try:
        plan = log.plan_read(fetch_offset, max_bytes, upper_offset=upper_offset, min_one_batch=min_one_batch)
    except KafkaError as error:
        if error.code != ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
            raise
        wanted = RemoteRange(fetch_offset, upper_offset, max_bytes, min_one_batch, with_aborted)
        return PartitionRead(_NO_DATA, watermark, stable, start, [] if with_aborted else None, remote=wanted)
    try:
        result = plan.try_run()
        aborted = log.aborted_transactions(fetch_offset, upper_offset) if with_aborted else None
    except StorageError as error:
        log.fail(error)
        raise
    if result is None:
        return PartitionRead(_NO_DATA, watermark, stable, start, aborted, pending=plan)
    return PartitionRead(result.data, watermark, stable, start, aborted)


async def read_from_disk(log: Log | None, read: PartitionRead, executor: Executor) -> PartitionRead:
    """Run a pending read in an executor, where it may block on the device. Raises KafkaError on a disk error."""
    assert read.pending is not None
    try:
        result = await asyncio.get_running_loop().run_in_executor(executor, read.pending.run)
    except StorageError as error:
        if log is not None:
            log.fail(error)
        raise
    return replace(read, data=result.data, pending=None)


async def read_remote(replica: LocalReplica, log: Log, read: PartitionRead) -> PartitionRead:
    """Read from the object store what `read.remote` describes. The result may be empty: then the store was slow, and
    the client repeats its request. Raises KafkaError."""
    assert read.remote is not None
    found = await _tiered(replica).reader.read(replica.remote, log, read.remote)
    return replace(read, data=found.data, aborted=found.aborted, remote=None)


def is_remote_throttled(replica: LocalReplica) -> bool:
    """Whether the object store must not be read now, because of remote.log.manager.fetch.max.bytes.per.second."""
    tiered = replica.context.tiered
    return tiered is not None and tiered.reader.is_throttled()


def _tiered(replica: LocalReplica) -> TieredReplicas:
    tiered = replica.context.tiered
    if tiered is None:
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"Records of {replica.name} are in an object store, and this broker has none: set "
            "remote.log.storage.system.enable=true.",
        )
    return tiered


def _diverging(name: TopicPartition, log: Log, fetch_offset: int, last_fetched_epoch: int) -> EpochEndOffset | None:
    """The point at which the reader's log diverges from this log (KIP-595), or None if the logs agree."""
    end = log.epoch_end_offset(last_fetched_epoch)
    if fetch_offset < log.log_start_offset:
        return None  # out of range, whatever the epochs say
    if end.end_offset < 0:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Leader epoch {last_fetched_epoch} of {name} is unknown: offset {fetch_offset} cannot be compared.",
        )
    if end.leader_epoch < last_fetched_epoch or end.end_offset < fetch_offset:
        return end
    return None


async def list_offset(
    replica: LocalReplica,
    log: Log,
    timestamp: int,
    *,
    isolation: int | None,
    is_latest_known: bool,
    find: FindInBatch | None,
) -> TimestampOffset:
    """The answer to ListOffsets for one timestamp. The offset is -1 if no readable record matches.

    A batch of many records is searched by `find`; None stands for a thread of the event loop's own executor.

    `isolation` is None if the request comes from another replica. `is_latest_known` is False on a new leader whose high
    watermark has not reached the start of its leader epoch: a previous leader may have returned a higher offset. If the
    answer then depends on the high watermark, this raises KafkaError OFFSET_NOT_AVAILABLE (KIP-207).
    """
    if isolation is None:
        upper = log.log_end_offset
    elif isolation == Isolation.READ_COMMITTED:
        upper = log.last_stable_offset(replica.high_watermark)
    else:
        upper = replica.high_watermark
    unsure = isolation is not None and not is_latest_known
    match timestamp:
        case SpecialTimestamp.LATEST:
            if unsure:
                raise _not_available(replica.name)
            return TimestampOffset(-1, upper, replica.leader_epoch)
        case SpecialTimestamp.EARLIEST:
            return _at(log, log.log_start_offset)
        case SpecialTimestamp.EARLIEST_LOCAL:
            return _at(log, log.local_log_start_offset)
        case SpecialTimestamp.LATEST_TIERED:
            if not log.config.tiered:
                return _UNKNOWN
            return _tiered(replica).reader.highest_copied(replica.remote, log)
        case SpecialTimestamp.EARLIEST_PENDING_UPLOAD:
            return _first_without_copy(replica, log)
        case _:
            found = await _find_record(replica, log, timestamp, find)
    if found is None or found.offset >= upper:
        if found is not None and unsure:
            raise _not_available(replica.name)
        return _UNKNOWN
    return found


_UNKNOWN = TimestampOffset(-1, -1, -1)


def _at(log: Log, offset: int) -> TimestampOffset:
    epoch = log.epoch_for_offset(offset)
    return TimestampOffset(-1, offset, -1 if epoch is None else epoch)


def _first_without_copy(replica: LocalReplica, log: Log) -> TimestampOffset:
    """The answer to ListOffsets -6 (KIP-1023): the first offset that is not in the object store."""
    if not log.config.tiered:
        return _UNKNOWN
    highest = _tiered(replica).reader.highest_copied(replica.remote, log).offset
    if highest >= 0:
        return _at(log, max(highest + 1, log.log_start_offset))
    is_all_local = log.local_log_start_offset == log.log_start_offset
    return _at(log, log.log_start_offset) if is_all_local else _UNKNOWN


async def _find_record(
    replica: LocalReplica, log: Log, timestamp: int, find: FindInBatch | None
) -> TimestampOffset | None:
    """The first record with a timestamp that is not less, or with the largest one for MAX_TIMESTAMP. A tiered log is
    searched in the object store first, as far as it has no local segments."""
    of_maximum = timestamp == SpecialTimestamp.MAX_TIMESTAMP
    if log.local_log_start_offset > log.log_start_offset and log.config.tiered:
        reader, search = _tiered(replica).reader, partial(_search_batch, find=find)
        if of_maximum:
            largest = max(segment.max_timestamp for segment in log.segments)
            found = await reader.find_max_timestamp(replica.remote, log, largest, search)
        else:
            found = await reader.find_timestamp(replica.remote, log, timestamp, search)
        if found is not None:
            return found
    return await _find(log.search_timestamp(None if of_maximum else timestamp), find)


async def _find(search: TimestampSearch, find: FindInBatch | None) -> TimestampOffset | None:
    while (batch := search.next_batch()) is not None:
        found = await _search_batch(batch, find=find)
        if found is not None:
            return batch.answer(found)
    return None


async def _search_batch(batch: CandidateBatch, *, find: FindInBatch | None) -> tuple[int, int] | None:
    if batch.is_light:
        return batch.find()
    if find is None:
        return await asyncio.get_running_loop().run_in_executor(None, batch.find)
    return await find(*batch.arguments)


def _not_available(name: TopicPartition) -> KafkaError:
    return KafkaError(
        ErrorCode.OFFSET_NOT_AVAILABLE,
        f"The new leader of {name} does not know the committed offsets yet; send the request again.",
    )
