"""Shell: one partition on this node: its log, its role, and who waits for it.

What is decided (watermark, acknowledgement, epochs) is decided in `rules`; what is kept is kept by `storage.log`. Here
the two meet. Nothing but the two waiting methods is asynchronous, so whatever a request changes it changes before its
first await. Every refusal is a `KafkaError` with the code for the wire.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from enum import IntEnum
from typing import NamedTuple

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import CONSUMER_REPLICA_ID, TopicId, TopicPartition
from barnabas.metadata.image import PartitionImage
from barnabas.records.validate import Origin
from barnabas.replication.parking import LOOK_AGAIN, CommitQueue, ReadWatch
from barnabas.replication.rules.leader import (
    LeaderState,
    acknowledge,
    check_leader_epoch,
    refuse_append,
)
from barnabas.replication.rules.watermark import high_watermark
from barnabas.storage.errors import StorageError
from barnabas.storage.log import Log
from barnabas.storage.producer_state import ProducerEntry
from barnabas.storage.reading import ReadPlan
from barnabas.storage.values import AbortedTxn, AppendInfo, EpochEndOffset, TimestampOffset


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


class PartitionRead(NamedTuple):
    """What one partition contributes to a Fetch."""

    data: Buffer
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[AbortedTxn] | None = None
    diverging: EpochEndOffset | None = None
    pending: ReadPlan | None = None
    """Set when the bytes are not in memory: then `Partition.read_from_disk` gets them."""


_NO_DATA = b""


class Partition:
    """One replica that this node hosts. `log` is None once its disk has failed."""

    def __init__(
        self, name: TopicPartition, topic_id: TopicId, log: Log | None, node_id: int, watermark: int = 0
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.log = log
        self.leader: LeaderState | None = None
        self.leader_id = -1
        self.leader_epoch = -1
        self.high_watermark = 0 if log is None else min(max(watermark, log.log_start_offset), log.log_end_offset)
        self.readers = ReadWatch()
        self._node_id = node_id
        self._committed: CommitQueue[ErrorCode] = CommitQueue()

    # ---- role

    def apply_image(self, image: PartitionImage) -> bool:
        """Take the role the cluster gives. True when this begins a leadership (a new epoch with us as leader)."""
        self.leader_id = image.leader
        if image.leader_epoch < self.leader_epoch:
            return False
        log = self.log
        if image.leader != self._node_id or log is None:
            self.leader_epoch = image.leader_epoch
            self._resign(ErrorCode.NOT_LEADER_OR_FOLLOWER if log is not None else ErrorCode.KAFKA_STORAGE_ERROR)
            return False
        began = self.leader is None or image.leader_epoch > self.leader.leader_epoch
        if self.leader is None or began:
            log.assign_epoch(image.leader_epoch, log.log_end_offset)
            if log.failure is not None:  # the epoch could not be written, and `fail` has been called
                return False
            self.leader = LeaderState(
                self._node_id,
                image.leader_epoch,
                image.partition_epoch,
                image.replicas,
                frozenset(image.isr),
                epoch_start_offset=log.log_end_offset,
            )
        else:
            self.leader = self.leader.on_image(image.partition_epoch, image.replicas, image.isr)
        self.leader_epoch = image.leader_epoch
        self._advance(0)
        return began

    def fail(self) -> None:
        """The disk is gone: everyone who waits is told, everyone who comes gets KAFKA_STORAGE_ERROR."""
        self.log = None
        self._resign(ErrorCode.KAFKA_STORAGE_ERROR)

    def close(self) -> None:
        """The partition leaves this node."""
        self._resign(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    @property
    def is_leader(self) -> bool:
        return self.leader is not None

    def _resign(self, reason: ErrorCode) -> None:
        self.leader = None
        self._committed.release_all(reason)
        self.readers.notify(LOOK_AGAIN)

    def _require_leader(self, current_leader_epoch: int = -1) -> tuple[LeaderState, Log]:
        log, leader = self.log, self.leader
        if log is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The log directory of {self.name} is offline.")
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            raise KafkaError(check_leader_epoch(self.leader_epoch, current_leader_epoch))
        if leader is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return leader, log

    # ---- writing

    def append(self, records: Buffer, acks: int, now_ms: int, origin: Origin = Origin.CLIENT) -> AppendInfo:
        """Append as leader. Raises KafkaError: not leader, too few in sync, refused records, disk."""
        leader, log = self._require_leader()
        if acks == -1:
            refusal = refuse_append(leader, acks, log.config.min_insync_replicas)
            if refusal is not ErrorCode.NONE:
                raise KafkaError(
                    refusal,
                    f"{len(leader.isr)} replicas of {self.name} are in sync, "
                    f"min.insync.replicas wants {log.config.min_insync_replicas}.",
                )
        info = log.append_as_leader(records, leader_epoch=leader.leader_epoch, now_ms=now_ms, origin=origin)
        if not info.duplicate:
            self._advance(info.size)
        return info

    @property
    def must_flush(self) -> bool:
        """flush.messages asks for an fsync before what was appended is acknowledged."""
        log = self.log
        return log is not None and log.unflushed_messages >= log.config.flush_messages

    async def wait_committed(self, offset: int, deadline: float) -> ErrorCode:
        """Until everything below `offset` is committed: NONE, or why it cannot be said (time-out, leadership lost)."""
        answer = self.try_committed(offset)
        if answer is not None:
            return answer
        outcome = await self._committed.wait(offset, deadline)
        return ErrorCode.REQUEST_TIMED_OUT if outcome is None else outcome

    def try_committed(self, offset: int) -> ErrorCode | None:
        """The answer of `wait_committed` if it need not wait."""
        if self.log is None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self.leader is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return acknowledge(self.leader, offset, self.high_watermark, self.log.config.min_insync_replicas)

    def _advance(self, appended_bytes: int) -> None:
        """Something may have become committed: tell those who wait."""
        leader, log = self.leader, self.log
        assert leader is not None
        assert log is not None
        before = self.high_watermark
        after = self.high_watermark = high_watermark(
            leader, log.log_end_offset, before, min_insync_replicas=log.config.min_insync_replicas
        )
        if after > before and len(self._committed):
            self._committed.release(after, lambda offset: self.try_committed(offset) or ErrorCode.NONE)
        if len(self.readers):
            self.readers.notify(appended_bytes or (LOOK_AGAIN if after > before else 0))

    def delete_records(self, before_offset: int, now_ms: int) -> int:
        """DeleteRecords: the log now starts at `before_offset` (-1: the high watermark). Gives the low watermark."""
        _, log = self._require_leader()
        if log.config.compact and not log.config.delete:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"Records of {self.name} cannot be deleted: its cleanup.policy does not include delete.",
            )
        target = self.high_watermark if before_offset == -1 else before_offset
        if target < 0 or target > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {target} of {self.name} is not within 0 and the high watermark {self.high_watermark}.",
            )
        return log.delete_records(target, self.high_watermark, now_ms=now_ms)

    # ---- reading

    def producers(self) -> list[ProducerEntry]:
        """What the leader remembers of idempotent and transactional producers."""
        _, log = self._require_leader()
        return log.producers.entries

    def producer(self, producer_id: int) -> ProducerEntry | None:
        """What it remembers of one of them."""
        _, log = self._require_leader()
        return log.producers.get(producer_id)

    def read(
        self,
        fetch_offset: int,
        max_bytes: int,
        *,
        isolation: int = Isolation.READ_UNCOMMITTED,
        min_one_batch: bool = True,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        replica_id: int = CONSUMER_REPLICA_ID,
    ) -> PartitionRead:
        """Committed batches from `fetch_offset` on, at most about `max_bytes`; an empty answer is not an error."""
        _, log = self._require_leader(current_leader_epoch)
        watermark = self.high_watermark
        stable = log.last_stable_offset(watermark)
        start = log.log_start_offset
        if last_fetched_epoch >= 0:
            diverging = self._diverging(log, fetch_offset, last_fetched_epoch)
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

    async def read_from_disk(self, read: PartitionRead, executor: Executor) -> PartitionRead:
        """Carry out a pending read where it may wait for the device. Raises KafkaError when the disk refuses."""
        assert read.pending is not None
        log = self.log
        try:
            result = await asyncio.get_running_loop().run_in_executor(executor, read.pending.run)
        except StorageError as error:
            if log is not None:
                log.fail(error)
            raise
        return read._replace(data=result.data, pending=None)

    def _diverging(self, log: Log, fetch_offset: int, last_fetched_epoch: int) -> EpochEndOffset | None:
        """KIP-595: where the reader's log and ours part, if they do."""
        end = log.epoch_end_offset(last_fetched_epoch)
        if end.end_offset < 0:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name} knows nothing of leader epoch {last_fetched_epoch}: offset {fetch_offset} cannot be "
                f"placed.",
            )
        if end.leader_epoch < last_fetched_epoch or end.end_offset < fetch_offset:
            return end
        return None

    def list_offset(
        self, timestamp: int, *, isolation: int | None = Isolation.READ_UNCOMMITTED, current_leader_epoch: int = -1
    ) -> TimestampOffset:
        """ListOffsets for one timestamp; offset -1 where there is no such record. `isolation` None is a follower's
        view.
        """
        leader, log = self._require_leader(current_leader_epoch)
        if isolation is None:
            upper = log.log_end_offset
        elif isolation == Isolation.READ_COMMITTED:
            upper = log.last_stable_offset(self.high_watermark)
        else:
            upper = self.high_watermark
        match timestamp:
            case SpecialTimestamp.LATEST:
                return TimestampOffset(-1, upper, leader.leader_epoch)
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
            return TimestampOffset(-1, -1, -1)
        return found

    def epoch_end_offset(self, epoch: int, current_leader_epoch: int = -1) -> EpochEndOffset:
        """OffsetForLeaderEpoch: where `epoch` ended, by our log."""
        _, log = self._require_leader(current_leader_epoch)
        return log.epoch_end_offset(epoch)
