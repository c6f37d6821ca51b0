"""Value: the state of one share partition, and the merging of updates (Kafka's PersisterStateBatchCombiner).

start_offset                                     all records below this offset are completed
batches      [first, last, state, count] ...     ascending, without overlaps; offsets in no batch are untouched
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from barnabas.core.ids import TopicId, uuid_to_text

UNINITIALIZED_START_OFFSET: Final = -1
"""The partition leader determines the start offset from `share.auto.offset.reset`."""
UNKNOWN_COUNT: Final = -1
AVAILABLE: Final = 0
"""The delivery state of records that may be acquired by a consumer."""


class ShareKey(Struct, frozen=True, order=True):
    """A share partition: a partition as consumed by one share group (Kafka's SharePartitionKey)."""

    group_id: str
    topic_id: TopicId
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The key in FindCoordinator (key type 2), whose hash selects the partition of `__share_group_state`."""
        return f"{self.group_id}:{uuid_to_text(self.topic_id)}:{self.partition}"


class PersisterStateBatch(NamedTuple):
    """Consecutive offsets with the same delivery state (0 available, 2 acknowledged, 4 archived) and delivery count."""

    first: int
    last: int
    state: int
    deliveries: int


class ShareState(Struct, frozen=True):
    """The state of a share partition."""

    snapshot_epoch: int = 0
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = UNINITIALIZED_START_OFFSET
    complete_count: int = UNKNOWN_COUNT
    created_ms: int = 0
    written_ms: int = 0
    batches: tuple[PersisterStateBatch, ...] = ()
    updates: int = 0
    """The number of update records since the snapshot."""
    snapshot_at: int = 0
    """The offset of the snapshot record. Earlier records of this share partition are redundant."""


class StateWrite(Struct, frozen=True):
    """A write of a partition leader. A `start_offset` of -1 leaves the start offset unchanged."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    batches: tuple[PersisterStateBatch, ...]


def merge_batches(
    current: Sequence[PersisterStateBatch], updates: Iterable[PersisterStateBatch], start_offset: int
) -> tuple[PersisterStateBatch, ...]:
    """`updates` merged over `current`, without offsets below `start_offset`. Adjacent batches with the same state and
    count are combined."""
    batches = list(current)
    for new in updates:
        begin = bisect_left(batches, new.first, key=lambda batch: batch.last)
        end = bisect_right(batches, new.last, key=lambda batch: batch.first)
        middle = [new]
        if begin < end:
            head, tail = batches[begin], batches[end - 1]
            if head.first < new.first:
                middle.insert(0, head._replace(last=new.first - 1))
            if tail.last > new.last:
                middle.append(tail._replace(first=new.last + 1))
        batches[begin:end] = middle
    return _combined(batches, start_offset)


def newer_parts(
    known: Sequence[PersisterStateBatch], written: Iterable[PersisterStateBatch]
) -> tuple[PersisterStateBatch, ...]:
    """The parts of `written` that are newer than the known state of their offsets.

    The delivery count of a record only grows, and an acknowledged or archived record is not delivered again. So a part
    with a lower delivery count, or with the same count and state AVAILABLE, is from a write that the leader sent
    earlier and that was delayed. Such a part must not restore records that are completed.
    """
    parts: list[PersisterStateBatch] = []
    for new in written:
        cursor = new.first
        for batch in known[bisect_left(known, new.first, key=lambda batch: batch.last) :]:
            if batch.first > new.last:
                break
            if cursor < batch.first:
                parts.append(new._replace(first=cursor, last=batch.first - 1))
            low, high = max(cursor, batch.first), min(new.last, batch.last)
            if _is_newer(new, batch):
                parts.append(new._replace(first=low, last=high))
            cursor = high + 1
        if cursor <= new.last:
            parts.append(new._replace(first=cursor))
    return _combined(parts, 0)


def _is_newer(new: PersisterStateBatch, known: PersisterStateBatch) -> bool:
    if known.state != AVAILABLE:
        return False
    return new.deliveries > known.deliveries or (new.deliveries == known.deliveries and new.state != AVAILABLE)


def _combined(batches: Iterable[PersisterStateBatch], start_offset: int) -> tuple[PersisterStateBatch, ...]:
    joined: list[PersisterStateBatch] = []
    for batch in batches:
        if batch.last < start_offset:
            continue
        if batch.first < start_offset:
            batch = batch._replace(first=start_offset)
        if joined and joined[-1].last + 1 == batch.first and joined[-1][2:] == batch[2:]:
            joined[-1] = joined[-1]._replace(last=batch.last)
        else:
            joined.append(batch)
    return tuple(joined)
