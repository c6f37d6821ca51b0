"""Machine: the share partitions of one partition of `__share_group_state`.

Fills the runtime's `Shard`. Each write becomes an update record; after
`share.coordinator.snapshot.update.records.per.snapshot` of them a snapshot, so that no state needs more than so many
records. Two epochs fence: the leader's, against a leader that has lost the partition, and the state's, against a leader
that has not noticed that an administrator moved the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicId
from barnabas.server.coordination.operation import CoordinatorRecord, TimerKey, WriteOperation
from barnabas.server.coordination.ports import ProducerIdAndEpoch, TopicCatalog
from barnabas.server.coordination.share import records as rec
from barnabas.server.coordination.share.config import ShareCoordinatorConfig
from barnabas.server.coordination.share.state import (
    UNINITIALIZED_START_OFFSET,
    UNKNOWN_COUNT,
    PersisterStateBatch,
    ShareKey,
    ShareState,
    StateWrite,
    merge_batches,
    newer_parts,
)
from barnabas.server.coordination.timeline import Timeline, TimelineMap

COLD_PARTITION_TIMER: Final[TimerKey] = ("cold",)
DELETED_TOPICS_TIMER: Final[TimerKey] = ("gone",)
SNAPSHOTS_PER_OPERATION: Final = 1_000
NEGATIVE_PARTITION: Final = "The partition id cannot be a negative number."


class ShareShard:
    """One partition's share of the state."""

    log_format = rec.FORMAT

    def __init__(self, config: ShareCoordinatorConfig, topics: TopicCatalog, timeline: Timeline) -> None:
        self.config = config
        self.topics = topics
        self.states: TimelineMap[ShareKey, ShareState] = TimelineMap(timeline)
        self.end_offset = 0

    # -- what is asked -------------------------------------------------------------------------------------------

    def initialize(self, op: WriteOperation, key: ShareKey, state_epoch: int, start_offset: int) -> None:
        """Begin at `start_offset`, whatever was before. Raises KafkaError."""
        self._check_key(key)
        before = self.states.get(key)
        if before is not None and state_epoch < before.state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        self._check_topic(key)
        state = ShareState(
            snapshot_epoch=0 if before is None else before.snapshot_epoch + 1,
            state_epoch=state_epoch,
            leader_epoch=0 if before is None else before.leader_epoch,
            start_offset=start_offset,
            complete_count=UNKNOWN_COUNT if start_offset == UNINITIALIZED_START_OFFSET else 0,
            created_ms=op.now_ms,
            written_ms=op.now_ms,
        )
        op.write(_snapshot_record(key, state))

    def read(self, op: WriteOperation, key: ShareKey, leader_epoch: int) -> ShareState:
        """The state for a new leader, whose epoch is remembered first: its predecessor is fenced. Raises KafkaError."""
        self._check_key(key)
        state = self.states.get(key)
        if state is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Read operation on uninitialized share partition not allowed.")
        if leader_epoch < state.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        self._check_topic(key)
        if leader_epoch > state.leader_epoch:
            unchanged = StateWrite(state.state_epoch, leader_epoch, state.start_offset, state.complete_count, ())
            op.write(self._record(op, key, state, unchanged))
        else:
            op.wait_for_pending = True
        return state

    def write(self, op: WriteOperation, key: ShareKey, news: StateWrite) -> None:
        """Raises KafkaError FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH, INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION."""
        self._check_key(key)
        state = self.states.get(key)
        if state is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Write operation on uninitialized share partition not allowed.")
        if news.leader_epoch < state.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        if news.state_epoch < state.state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        self._check_topic(key)
        news = replace(news, batches=newer_parts(state.batches, news.batches))
        op.write(self._record(op, key, state, news))

    def summary(self, op: WriteOperation, key: ShareKey) -> ShareState:
        """Where the share partition stands; the initial state if there is none. Raises KafkaError."""
        self._check_key(key)
        self._check_topic(key)
        op.wait_for_pending = True
        return self.states.get(key) or ShareState()

    def delete(self, op: WriteOperation, key: ShareKey) -> None:
        """Forget it; what is not known is already forgotten. Raises KafkaError."""
        self._check_key(key)
        if key in self.states:
            op.write(_tombstone(key))
        else:
            op.wait_for_pending = True

    def _check_key(self, key: ShareKey) -> None:
        if key.partition < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, NEGATIVE_PARTITION)

    def _check_topic(self, key: ShareKey) -> None:
        topic = self.topics.by_id(key.topic_id)
        if topic is None or key.partition >= topic.partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _record(self, op: WriteOperation, key: ShareKey, state: ShareState, news: StateWrite) -> CoordinatorRecord:
        """An update, or a snapshot when there have been enough of them."""
        if state.updates < self.config.share_coordinator_snapshot_update_records_per_snapshot:
            return _update_record(key, state.snapshot_epoch, news)
        merged = replace(_merged(state, news), snapshot_epoch=state.snapshot_epoch + 1, written_ms=op.now_ms)
        return _snapshot_record(key, replace(merged, state_epoch=max(state.state_epoch, news.state_epoch)))

    # -- upkeep --------------------------------------------------------------------------------------------------

    def redundant_before(self) -> int:
        """The offset below which no record is needed: every share partition has a snapshot at or above it."""
        oldest = [state.snapshot_at for state in self.states.committed().values()]
        return min(oldest, default=self.end_offset)

    def snapshot_cold(self, op: WriteOperation) -> None:
        """Write share partitions anew that have not changed for long, or their old snapshots would hold the log."""
        op.atomic = False
        oldest_allowed = op.now_ms - self.config.share_coordinator_cold_partition_snapshot_interval_ms
        cold = [key for key, state in self.states.items() if state.written_ms <= oldest_allowed]
        if len(cold) == len(self.states) and not any(state.updates for state in self.states.values()):
            return  # nothing moves at all: writing it again would gain nothing
        for key in sorted(cold)[:SNAPSHOTS_PER_OPERATION]:
            state = self.states[key]
            fresh = replace(state, snapshot_epoch=state.snapshot_epoch + 1, written_ms=op.now_ms)
            op.write(_snapshot_record(key, fresh))

    def on_topics_changed(self, op: WriteOperation, topics: TopicCatalog, deleted: frozenset[TopicId]) -> None:
        """The metadata changed; share partitions of deleted topics are forgotten."""
        self.topics = topics
        op.atomic = False
        for key in sorted(key for key in self.states if key.topic_id in deleted):
            op.write(_tombstone(key))

    # -- the runtime's doors -------------------------------------------------------------------------------------

    def apply(self, record: CoordinatorRecord, offset: int, producer_id: int) -> None:
        self.end_offset = max(self.end_offset, offset + 1)
        match record.key, record.value:
            case rec.ShareSnapshotKey(), None:
                self.states.pop(_key(record.key))
            case rec.ShareSnapshotKey(), rec.ShareSnapshotValue() as value:
                key = _key(record.key)
                before = self.states.get(key) or ShareState()
                self.states[key] = ShareState(
                    value.snapshot_epoch,
                    max(value.state_epoch, before.state_epoch),
                    max(value.leader_epoch, before.leader_epoch),
                    value.start_offset,
                    value.delivery_complete_count,
                    value.create_timestamp,
                    value.write_timestamp,
                    _batches(value.state_batches),
                    0,
                    offset,
                )
            case rec.ShareUpdateKey(), rec.ShareUpdateValue() as value:
                key = _key(record.key)
                before = self.states.get(key) or ShareState(snapshot_at=offset)
                news = StateWrite(
                    before.state_epoch,
                    value.leader_epoch,
                    value.start_offset,
                    value.delivery_complete_count,
                    _batches(value.state_batches),
                )
                self.states[key] = replace(_merged(before, news), updates=before.updates + 1)

    def apply_marker(self, producer: ProducerIdAndEpoch, *, committed: bool) -> None:
        """Nothing transactional is ever written here."""

    def on_loaded(self, op: WriteOperation) -> None:
        self._schedule_cold_partition_timer(op)
        op.schedule(DELETED_TOPICS_TIMER, 0, retry=True)

    def _schedule_cold_partition_timer(self, op: WriteOperation) -> None:
        interval_ms = self.config.share_coordinator_cold_partition_snapshot_interval_ms
        op.schedule(COLD_PARTITION_TIMER, interval_ms, retry=True)

    def on_timer(self, op: WriteOperation, key: TimerKey) -> None:
        if key == COLD_PARTITION_TIMER:
            self.snapshot_cold(op)
            op.schedule(
                COLD_PARTITION_TIMER, self.config.share_coordinator_cold_partition_snapshot_interval_ms, retry=True
            )
        elif key == DELETED_TOPICS_TIMER:  # topics may have been deleted while nobody had these share partitions
            op.atomic = False
            op.write(*(_tombstone(key) for key in sorted(self.states) if self.topics.by_id(key.topic_id) is None))

    def on_unloaded(self, op: WriteOperation) -> None:
        """Nobody is ever parked here."""


def _merged(state: ShareState, news: StateWrite) -> ShareState:
    # never backwards: a write that was sent again and comes late must not bring back what was done with
    start = max(state.start_offset, news.start_offset)
    return replace(
        state,
        leader_epoch=max(state.leader_epoch, news.leader_epoch),
        start_offset=start,
        complete_count=news.complete_count if news.start_offset >= state.start_offset else state.complete_count,
        batches=merge_batches(state.batches, news.batches, start),
    )


def _key(key: rec.ShareSnapshotKey | rec.ShareUpdateKey) -> ShareKey:
    return ShareKey(key.group_id, key.topic_id, key.partition)


def _batches(batches: Sequence[rec.StateBatchSchema]) -> tuple[PersisterStateBatch, ...]:
    return tuple(
        PersisterStateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in batches
    )


def _entries(batches: Sequence[PersisterStateBatch]) -> list[rec.StateBatchSchema]:
    return [
        rec.StateBatchSchema(
            first_offset=b.first, last_offset=b.last, delivery_state=b.state, delivery_count=b.deliveries
        )
        for b in batches
    ]


def _snapshot_record(key: ShareKey, state: ShareState) -> CoordinatorRecord:
    value = rec.ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.complete_count,
        create_timestamp=state.created_ms,
        write_timestamp=state.written_ms,
        state_batches=_entries(state.batches),
    )
    return CoordinatorRecord(
        rec.ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition), value
    )


def _update_record(key: ShareKey, snapshot_epoch: int, news: StateWrite) -> CoordinatorRecord:
    value = rec.ShareUpdateValue(
        snapshot_epoch=snapshot_epoch,
        leader_epoch=news.leader_epoch,
        start_offset=news.start_offset,
        delivery_complete_count=news.complete_count,
        state_batches=_entries(merge_batches((), news.batches, news.start_offset)),
    )
    return CoordinatorRecord(
        rec.ShareUpdateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition), value
    )


def _tombstone(key: ShareKey) -> CoordinatorRecord:
    return CoordinatorRecord(
        rec.ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition), None
    )
