"""Shell: what may be read of a partition: batches, offsets of timestamps, ends of epochs.

Consumers read below the high watermark, replicas up to the log's end. Leaders answer everybody; a follower answers
consumers that were sent to it (KIP-392), as far as it knows what is committed.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from enum import IntEnum
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import CONSUMER_REPLICA_ID
from barnabas.server.replication.rules.leader import latest_is_known
from barnabas.server.storage.errors import StorageError
from barnabas.server.storage.log import Log
from barnabas.server.storage.reading import LogReadPlan
from barnabas.server.storage.values import AbortedTxn, EpochEndOffset, TimestampOffset

if TYPE_CHECKING:
    from barnabas.server.replication.partition import Partition


class Isolation(IntEnum):
    """How far a reader may read (`isolation.level`), as Fetch and ListOffsets carry it."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class SpecialTimestamp(IntEnum):
    """What ListOffsets means by a negative timestamp."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


class PartitionRead(Struct, frozen=True):
    """What one partition contributes to a Fetch."""

    data: Buffer
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[AbortedTxn] | None = None
    diverging: EpochEndOffset | None = None
    pending: LogReadPlan | None = None
    """Set when the bytes are not in memory: then `Partition.read_from_disk` gets them."""
    preferred_read_replica: int = -1
    """The replica that the consumer should rather read from (KIP-392); then there are no bytes."""


_NO_DATA = b""


def read(
    self: Partition,
    fetch_offset: int,
    max_bytes: int,
    *,
    isolation: int = Isolation.READ_UNCOMMITTED,
    min_one_batch: bool = True,
    current_leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    replica_id: int = CONSUMER_REPLICA_ID,
    leader_only: bool = True,
) -> PartitionRead:
    """Committed batches from `fetch_offset` on, at most about `max_bytes`; an empty answer is not an error."""
    log = self.require_log(current_leader_epoch, leader_only=leader_only)
    watermark = self.high_watermark
    stable = log.last_stable_offset(watermark)
    start = log.log_start_offset
    if last_fetched_epoch >= 0:
        diverging = _diverging(self, log, fetch_offset, last_fetched_epoch)
        if diverging is not None:
            return PartitionRead(_NO_DATA, watermark, stable, start, diverging=diverging)
    if replica_id >= 0:
        upper = log.log_end_offset
    else:
        upper = stable if isolation == Isolation.READ_COMMITTED else watermark
    if fetch_offset < start or fetch_offset > log.log_end_offset:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Offset {fetch_offset} of {self.name} is not within {start} and {log.log_end_offset}.",
        )
    if fetch_offset >= upper or (max_bytes <= 0 and not min_one_batch):
        nothing: list[AbortedTxn] | None = [] if isolation == Isolation.READ_COMMITTED else None
        return PartitionRead(_NO_DATA, watermark, stable, start, nothing)
    plan = log.plan_read(fetch_offset, max_bytes, upper_offset=upper, min_one_batch=min_one_batch)
    try:
        result = plan.try_run()
        aborted = log.aborted_transactions(fetch_offset, upper) if isolation == Isolation.READ_COMMITTED else None
    except StorageError as error:
        log.fail(error)
        raise
    if result is None:
        return PartitionRead(_NO_DATA, watermark, stable, start, aborted, pending=plan)
    return PartitionRead(result.data, watermark, stable, start, aborted)


async def read_from_disk(self: Partition, read: PartitionRead, executor: Executor) -> PartitionRead:
    """Carry out a pending read where it may wait for the device. Raises KafkaError when the disk refuses."""
    assert read.pending is not None
    log = self.log
    try:
        result = await asyncio.get_running_loop().run_in_executor(executor, read.pending.run)
    except StorageError as error:
        if log is not None:
            log.fail(error)
        raise
    return replace(read, data=result.data, pending=None)


def _diverging(self: Partition, log: Log, fetch_offset: int, last_fetched_epoch: int) -> EpochEndOffset | None:
    """KIP-595: where the reader's log and ours part, if they do."""
    end = log.epoch_end_offset(last_fetched_epoch)
    if fetch_offset < log.log_start_offset:
        return None  # out of range, whatever the epochs say
    if end.end_offset < 0:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{self.name} knows nothing of leader epoch {last_fetched_epoch}: offset {fetch_offset} cannot be placed.",
        )
    if end.leader_epoch < last_fetched_epoch or end.end_offset < fetch_offset:
        return end
    return None


def list_offset(
    self: Partition,
    timestamp: int,
    *,
    isolation: int | None = Isolation.READ_UNCOMMITTED,
    current_leader_epoch: int = -1,
    leader_only: bool = True,
) -> TimestampOffset:
    """ListOffsets for one timestamp; offset -1 where there is no such record. `isolation` None is a replica's view.

    A new leader whose watermark has not reached the start of its epoch may not know what clients have already been
    told: OFFSET_NOT_AVAILABLE (KIP-207).
    """
    log = self.require_log(current_leader_epoch, leader_only=leader_only)
    if isolation is None:
        upper = log.log_end_offset
    elif isolation == Isolation.READ_COMMITTED:
        upper = log.last_stable_offset(self.high_watermark)
    else:
        upper = self.high_watermark
    unsure = isolation is not None and self.leader is not None and not latest_is_known(self.leader, self.high_watermark)
    match timestamp:
        case SpecialTimestamp.LATEST:
            if unsure:
                raise _not_available(self)
            return TimestampOffset(-1, upper, self.leader_epoch)
        case SpecialTimestamp.EARLIEST | SpecialTimestamp.EARLIEST_LOCAL:
            start = log.log_start_offset
            epoch = log.epoch_for_offset(start)
            return TimestampOffset(-1, start, -1 if epoch is None else epoch)
        case SpecialTimestamp.LATEST_TIERED | SpecialTimestamp.EARLIEST_PENDING_UPLOAD:
            return TimestampOffset(-1, -1, -1)
        case SpecialTimestamp.MAX_TIMESTAMP:
            found = log.offset_of_max_timestamp()
        case _:
            found = log.offset_for_timestamp(timestamp)
    if found is None or found.offset >= upper:
        if found is not None and unsure:
            raise _not_available(self)
        return TimestampOffset(-1, -1, -1)
    return found


def _not_available(self: Partition) -> KafkaError:
    return KafkaError(
        ErrorCode.OFFSET_NOT_AVAILABLE,
        f"The new leader of {self.name} does not know yet what is committed; ask again.",
    )


def epoch_end_offset(self: Partition, epoch: int, current_leader_epoch: int = -1) -> EpochEndOffset:
    """OffsetForLeaderEpoch: where `epoch` ended, by our log."""
    return self.require_log(current_leader_epoch).epoch_end_offset(epoch)
