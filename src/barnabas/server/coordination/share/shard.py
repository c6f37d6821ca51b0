"""Machine: the share partitions of one partition of `__share_group_state`.

`ShareShard` implements the runtime's `CoordinatorShard` (Kafka's ShareCoordinatorShard). A write is stored as an update
record, and as a snapshot record after `share.coordinator.snapshot.update.records.per.snapshot` updates, which limits
the number of records per share partition. Two epochs fence writers: the leader epoch fences a former leader of the
partition, and the state epoch fences a leader that has not learned yet that an administrator altered the group's
offsets.
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
    """The share partitions of one partition of `__share_group_state`."""

    log_format = rec.FORMAT

    def __init__(self, config: ShareCoordinatorConfig, topics: TopicCatalog, timeline: Timeline) -> None:
        self.config = config
        self.topics = topics
        self.states: TimelineMap[ShareKey, ShareState] = TimelineMap(timeline)
        self.end_offset = 0

    # -- requests ------------------------------------------------------------------------------------------------

    def initialize(self, op: WriteOperation, key: ShareKey, state_epoch: int, start_offset: int) -> None:
        """Start the share partition at `start_offset`, replacing the state of lower state epochs. Raises KafkaError.

        Acknowledgements must survive a request that arrives twice or late, for example one of a group coordinator that
        has been replaced meanwhile. So a request with the current state epoch changes nothing. Nor does a request
        without a start offset replace a state that has one: it comes from a group coordinator that does not know
        that the share partition is initialized. (To start anew, the state is deleted first.)
        """
        self._check_key(key)
        before = self.states.get(key)
        if before is not None and state_epoch < before.state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        self._check_topic(key)
        if before is not None and state_epoch == before.state_epoch:
            op.wait_for_pending = True
            return
        if before is not None and start_offset == UNINITIALIZED_START_OFFSET != before.start_offset:
            kept = replace(
                before, snapshot_epoch=before.snapshot_epoch + 1, state_epoch=state_epoch, written_ms=op.now_ms
            )
            op.write(_snapshot_record(key, kept))
            return
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
        """The state for a new leader. The leader's epoch is stored, which fences the previous leader. Raises
        KafkaError."""
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

    def write(self, op: WriteOperation, key: ShareKey, update: StateWrite) -> None:
        """Store a write of the partition leader. Raises KafkaError FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH,
        INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION."""
        self._check_key(key)
        state = self.states.get(key)
        if state is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Write operation on uninitialized share partition not allowed.")
        if update.leader_epoch < state.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        if update.state_epoch < state.state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        self._check_topic(key)
        update = replace(update, batches=newer_parts(state.batches, update.batches))
        op.write(self._record(op, key, state, update))

    def summary(self, op: WriteOperation, key: ShareKey) -> ShareState:
        """The current state, or an initial one if the share partition is unknown. Raises KafkaError."""
        self._check_key(key)
        self._check_topic(key)
        op.wait_for_pending = True
        return self.states.get(key) or ShareState()

    def delete(self, op: WriteOperation, key: ShareKey) -> None:
        """Delete the share partition's state, if there is one. Raises KafkaError."""
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

    def _record(self, op: WriteOperation, key: ShareKey, state: ShareState, update: StateWrite) -> CoordinatorRecord:
        """An update record, or a snapshot record after enough updates."""
        if state.updates < self.config.share_coordinator_snapshot_update_records_per_snapshot:
            return _update_record(key, state.snapshot_epoch, update)
        merged = replace(_merged(state, update), snapshot_epoch=state.snapshot_epoch + 1, written_ms=op.now_ms)
        return _snapshot_record(key, replace(merged, state_epoch=max(state.state_epoch, update.state_epoch)))

    # -- cleanup -------------------------------------------------------------------------------------------------

    def redundant_before(self) -> int:
        """The offset below which records are redundant: every share partition has a snapshot at or above it."""
        oldest = [state.snapshot_at for state in self.states.committed().values()]
        return min(oldest, default=self.end_offset)

    def snapshot_cold(self, op: WriteOperation) -> None:
        """Write new snapshots of share partitions that have not changed for
        share.coordinator.cold.partition.snapshot.interval.ms, because their old snapshots prevent the pruning of the
        log."""
        op.atomic = False
        oldest_allowed = op.now_ms - self.config.share_coordinator_cold_partition_snapshot_interval_ms
        cold = [key for key, state in self.states.items() if state.written_ms <= oldest_allowed]
        if len(cold) == len(self.states) and not any(state.updates for state in self.states.values()):
            return  # no share partition is active, so new snapshots would not shorten the log
        for key in sorted(cold)[:SNAPSHOTS_PER_OPERATION]:
            state = self.states[key]
            fresh = replace(state, snapshot_epoch=state.snapshot_epoch + 1, written_ms=op.now_ms)
            op.write(_snapshot_record(key, fresh))

    def on_topics_changed(self, op: WriteOperation, topics: TopicCatalog, deleted: frozenset[TopicId]) -> None:
        """A new metadata image: delete the state of deleted topics."""
        self.topics = topics
        op.atomic = False
        for key in sorted(key for key in self.states if key.topic_id in deleted):
            op.write(_tombstone(key))

    # -- CoordinatorShard ----------------------------------------------------------------------------------------

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
                update = StateWrite(
                    before.state_epoch,
                    value.leader_epoch,
                    value.start_offset,
                    value.delivery_complete_count,
                    _batches(value.state_batches),
                )
                self.states[key] = replace(_merged(before, update), updates=before.updates + 1)

    def apply_marker(self, producer: ProducerIdAndEpoch, *, committed: bool) -> None:
        """Does nothing, because `__share_group_state` has no transactional records."""

    def on_loaded(self, op: WriteOperation) -> None:
        self._schedule_cold_partition_timer(op)
        op.schedule(DELETED_TOPICS_TIMER, 0, retry=True)

    def _schedule_cold_partition_timer(self, op: WriteOperation) -> None:
        interval_ms = self.config.share_coordinator_cold_partition_snapshot_interval_ms
        op.schedule(COLD_PARTITION_TIMER, interval_ms, retry=True)

    def on_timer(self, op: WriteOperation, key: TimerKey) -> None:
        if key == COLD_PARTITION_TIMER:
            self.snapshot_cold(op)
            self._schedule_cold_partition_timer(op)
        elif key == DELETED_TOPICS_TIMER:  # topics may have been deleted while no coordinator had this partition loaded
            op.atomic = False
            op.write(*(_tombstone(key) for key in sorted(self.states) if self.topics.by_id(key.topic_id) is None))

    def on_unloaded(self, op: WriteOperation) -> None:
        """Does nothing, because no operation of the share coordinator defers its response."""


def _merged(state: ShareState, update: StateWrite) -> ShareState:
    # the start offset never decreases: a delayed retry of an older write must not restore completed records
    start = max(state.start_offset, update.start_offset)
    return replace(
        state,
        leader_epoch=max(state.leader_epoch, update.leader_epoch),
        start_offset=start,
        complete_count=update.complete_count if update.start_offset >= state.start_offset else state.complete_count,
        batches=merge_batches(state.batches, update.batches, start),
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


def _update_record(key: ShareKey, snapshot_epoch: int, update: StateWrite) -> CoordinatorRecord:
    value = rec.ShareUpdateValue(
        snapshot_epoch=snapshot_epoch,
        leader_epoch=update.leader_epoch,
        start_offset=update.start_offset,
        delivery_complete_count=update.complete_count,
        state_batches=_entries(merge_batches((), update.batches, update.start_offset)),
    )
    return CoordinatorRecord(
        rec.ShareUpdateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition), value
    )


def _tombstone(key: ShareKey) -> CoordinatorRecord:
    return CoordinatorRecord(
        rec.ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition), None
    )
