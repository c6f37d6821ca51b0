"""Machine: the committed offsets of one partition's groups, and the pending offsets of open transactions.

    committed:  group ─► (topic, partition) ─► offset               returned by OffsetFetch
    pending:    producer ─► (group, topic, partition) ─► offset     written in a transaction that is still open

A commit marker makes a producer's pending offsets committed; an abort marker drops them. The record with the higher
offset in the log wins: an offset that was committed without a transaction after the pending offset was written is kept
(Kafka's OffsetMetadataManager).
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from barnabas.core.ids import NO_PRODUCER_ID, NO_TOPIC_ID, TopicId
from barnabas.server.coordination.group.records import OffsetCommitKey, OffsetCommitValue
from barnabas.server.coordination.operation import CoordinatorRecord
from barnabas.server.coordination.timeline import Timeline, TimelineMap

NO_OFFSET = -1


class CommittedOffset(Struct, frozen=True):
    """An offset with the metadata of its commit."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    topic_id: TopicId = NO_TOPIC_ID
    log_offset: int = -1
    """The offset of the record in `__consumer_offsets`."""


class CommittedOffsets:
    """The offsets. Only `apply` and `apply_marker` change them."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._committed: dict[str, TimelineMap[tuple[str, int], CommittedOffset]] = {}
        self._pending: dict[int, TimelineMap[tuple[str, str, int], CommittedOffset]] = {}
        self._open: TimelineMap[str, frozenset[int]] = TimelineMap(timeline)  # producers with pending offsets, by group

    # -- queries -------------------------------------------------------------------------------------------------

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        offsets = self._committed.get(group_id)
        return None if offsets is None else offsets.get((topic, partition))

    def view(self, group_id: str, *, committed: bool) -> dict[tuple[str, int], CommittedOffset]:
        """All offsets of a group, in the committed or in the newest state."""
        offsets = self._committed.get(group_id)
        if offsets is None:
            return {}
        return offsets.committed() if committed else offsets.snapshot()

    def one(self, group_id: str, topic: str, partition: int, *, committed: bool) -> CommittedOffset | None:
        offsets = self._committed.get(group_id)
        if offsets is None:
            return None
        key = (topic, partition)
        return offsets.committed_get(key) if committed else offsets.get(key)

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction has written this offset. A consumer must wait for the end of the transaction
        (KIP-447)."""
        key = (group_id, topic, partition)
        return any(key in self._pending[producer_id] for producer_id in self._open.get(group_id) or ())

    def unstable(self, group_id: str) -> frozenset[tuple[str, int]]:
        """The partitions of the group for which `is_unstable` is true."""
        return frozenset(
            (topic, partition)
            for producer_id in self._open.get(group_id) or ()
            for pending_group, topic, partition in self._pending[producer_id]
            if pending_group == group_id
        )

    def has_open_transactions(self, group_id: str) -> bool:
        return group_id in self._open

    def known_partitions(self, group_id: str) -> Iterator[tuple[str, int]]:
        """The partitions with a committed or a pending offset, sorted."""
        keys = set(self._committed.get(group_id) or ())
        for producer_id in self._open.get(group_id) or ():
            keys.update((topic, p) for g, topic, p in self._pending[producer_id] if g == group_id)
        yield from sorted(keys)

    def groups(self) -> list[str]:
        """The ids of the groups with offsets, sorted."""
        names = {group_id for group_id, offsets in self._committed.items() if len(offsets)}
        names.update(self._open)
        return sorted(names)

    def count(self) -> int:
        return sum(len(offsets) for offsets in self._committed.values())

    # -- changes -------------------------------------------------------------------------------------------------

    def apply(self, key: OffsetCommitKey, value: OffsetCommitValue | None, log_offset: int, producer_id: int) -> None:
        group_id, topic, partition = key.group, key.topic, key.partition
        if value is None:
            offsets = self._committed.get(group_id)
            if offsets is not None:
                offsets.pop((topic, partition))
            for open_id in sorted(self._open.get(group_id) or ()):
                others = self._pending[open_id]
                others.pop((group_id, topic, partition))
                if not any(other[0] == group_id for other in others):
                    self._remove_open(group_id, open_id)
            return
        stored = CommittedOffset(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
            log_offset,
        )
        if producer_id == NO_PRODUCER_ID:
            self._of_group(group_id)[(topic, partition)] = stored
            return
        pending = self._pending.get(producer_id)
        if pending is None:
            pending = self._pending[producer_id] = TimelineMap(self._timeline)
        pending[(group_id, topic, partition)] = stored
        producers = self._open.get(group_id) or frozenset()
        if producer_id not in producers:
            self._open[group_id] = producers | {producer_id}

    def apply_marker(self, producer_id: int, *, committed: bool) -> None:
        pending = self._pending.get(producer_id)
        if pending is None or not len(pending):
            return
        for (group_id, topic, partition), stored in list(pending.items()):
            if committed:
                offsets = self._of_group(group_id)
                present = offsets.get((topic, partition))
                if present is None or stored.log_offset > present.log_offset:
                    offsets[(topic, partition)] = stored
        for group_id in sorted({key[0] for key in pending}):
            self._remove_open(group_id, producer_id)
        pending.clear()

    def _remove_open(self, group_id: str, producer_id: int) -> None:
        """Store that the producer has no pending offsets of the group any longer."""
        producers = (self._open.get(group_id) or frozenset()) - {producer_id}
        if producers:
            self._open[group_id] = producers
        else:
            self._open.pop(group_id)

    def compact(self) -> None:
        """Remove empty maps that have no uncommitted changes."""
        for group_id in [g for g, offsets in self._committed.items() if not len(offsets) and offsets.settled]:
            del self._committed[group_id]
        in_use = {producer_id for producers in self._open.values() for producer_id in producers}
        for producer_id in [p for p, offsets in self._pending.items() if not len(offsets) and offsets.settled]:
            if producer_id not in in_use:
                del self._pending[producer_id]

    def _of_group(self, group_id: str) -> TimelineMap[tuple[str, int], CommittedOffset]:
        offsets = self._committed.get(group_id)
        if offsets is None:
            offsets = self._committed[group_id] = TimelineMap(self._timeline)
        return offsets


def commit_record(group_id: str, topic: str, partition: int, offset: CommittedOffset) -> CoordinatorRecord:
    """The record of a commit. Only version 1 of the value has an expiry timestamp (for OffsetCommit before v5)."""
    value = OffsetCommitValue(
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_timestamp=offset.commit_timestamp_ms,
        expire_timestamp=offset.expire_timestamp_ms,
        topic_id=offset.topic_id,
    )
    version = 1 if offset.expire_timestamp_ms != -1 else None
    return CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), value, version)


def commit_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    return CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)
