"""Value: what is remembered of one share partition, and how an update is laid over it.

start_offset                                     everything below is done with
batches      [first, last, state, count] ...     ascending, apart; offsets that no batch names are untouched
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from barnabas.core.ids import TopicId, uuid_to_text

UNINITIALIZED_START_OFFSET: Final = -1
"""Nobody has said where to begin; the leader's `share.auto.offset.reset` will."""
UNKNOWN_COUNT: Final = -1
AVAILABLE: Final = 0
"""The state of a batch whose records are to be delivered (again)."""


class ShareKey(Struct, frozen=True, order=True):
    """A share partition: one partition as one group sees it."""

    group_id: str
    topic_id: TopicId
    partition: int

    @property
    def coordinator_key(self) -> str:
        """What FindCoordinator (key type 2) is asked for, and what is hashed (`SharePartitionKey`)."""
        return f"{self.group_id}:{uuid_to_text(self.topic_id)}:{self.partition}"


class PersisterStateBatch(NamedTuple):
    """A run of offsets in the same state. States: 0 available, 2 acknowledged, 4 archived."""

    first: int
    last: int
    state: int
    deliveries: int


class ShareState(Struct, frozen=True):
    """A share partition, as of its last record."""

    snapshot_epoch: int = 0
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = UNINITIALIZED_START_OFFSET
    complete_count: int = UNKNOWN_COUNT
    created_ms: int = 0
    written_ms: int = 0
    batches: tuple[PersisterStateBatch, ...] = ()
    updates: int = 0
    """Update records since the snapshot."""
    snapshot_at: int = 0
    """The offset of the snapshot's record: nothing before it is needed for this share partition."""


class StateWrite(Struct, frozen=True):
    """What a leader wants remembered; -1 as `start_offset`: as it was."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    batches: tuple[PersisterStateBatch, ...]


def merge_batches(
    current: Sequence[PersisterStateBatch], news: Iterable[PersisterStateBatch], start_offset: int
) -> tuple[PersisterStateBatch, ...]:
    """`news` over `current`, without what lies below `start_offset`, equal neighbours joined."""
    batches = list(current)
    for new in news:
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
    known: Sequence[PersisterStateBatch], told: Iterable[PersisterStateBatch]
) -> tuple[PersisterStateBatch, ...]:
    """The parts of `told` that go further than what is known of their offsets.

    Each delivery of a record is counted, and an acknowledged or archived one is not delivered any more. So what counts
    fewer deliveries, or as many and no end, was sent before, by a leader that has been asked again since, and comes
    late: it must not bring back what is done with.
    """
    news: list[PersisterStateBatch] = []
    for new in told:
        cursor = new.first
        for batch in known[bisect_left(known, new.first, key=lambda batch: batch.last) :]:
            if batch.first > new.last:
                break
            if cursor < batch.first:
                news.append(new._replace(first=cursor, last=batch.first - 1))
            low, high = max(cursor, batch.first), min(new.last, batch.last)
            if _is_newer(new, batch):
                news.append(new._replace(first=low, last=high))
            cursor = high + 1
        if cursor <= new.last:
            news.append(new._replace(first=cursor))
    return _combined(news, 0)


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
