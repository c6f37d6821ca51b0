"""Machine: decides which records the tasks of a micro-batch copy, and detects records that are lost.

    positions (mm2-offsets) ---+
    source: topic ids,         |
      log start, log end ------+--> plan --> tasks
    target: partition counts --+
    results of the tasks --------> advance

A partition that the target topic does not have yet waits. These records are lost: those that retention deleted before
they were copied, those of a log that ends before the position (unclean election), and the unread ones of a topic that
was deleted and created anew, which its topic id shows. After an unclean election the log may also be longer than the
position, with other records before it, which the leader epochs show. If the topic of the target cluster was created
anew, what it had is copied again. Gaps above the log start offset are no loss: they come from transaction markers and
compaction.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final
from uuid import UUID

from barnabas.core.ids import NO_TOPIC_ID, TopicPartition
from barnabas.spark.identities import replaced
from barnabas.spark.mirror.copying.stored import Stored
from barnabas.spark.mirror.copying.values import PartitionCopied, RangeToCopy
from barnabas.spark.mirror.errors import MirrorConfigError, MirrorDataLossError

TRUNCATION_GRACE_MS: Final = 30_000
"""How long a log may end before the position. A new leader reports a high watermark that is too low for a moment."""

Offsets = Mapping[TopicPartition, int]


class StartAt(Enum):
    """`auto.offset.reset`: where copying begins in a partition without a position."""

    EARLIEST = "earliest"
    LATEST = "latest"

    @classmethod
    def parse(cls, text: str) -> StartAt:
        try:
            return cls(text.strip().lower())
        except ValueError:
            raise MirrorConfigError(
                f"auto.offset.reset={text} is not possible for mirroring; set it to earliest or latest"
            ) from None


class LossReason(Enum):
    """Why records cannot be copied any more."""

    DELETED = "deleted"
    TRUNCATED = "truncated"
    DIVERGED = "truncated and written again"
    RECREATED = "recreated"
    TARGET_RECREATED = "target recreated"


@dataclass(frozen=True, slots=True)
class CopyLoss:
    """Copying of a partition continues at `found` instead of `expected`; at most `records` records are lost."""

    partition: TopicPartition
    reason: LossReason
    expected: int
    found: int
    records: int
    problem: str = ""
    """The topic of the source or the target cluster that was created again, with its ids, as text."""

    def __str__(self) -> str:
        match self.reason:
            case LossReason.DELETED:
                deleted = f"offsets {self.expected} to {self.found - 1}"
                return f"{self.partition}: {deleted} were deleted before they were copied"
            case LossReason.TRUNCATED:
                return (
                    f"{self.partition}: the log ends at offset {self.found}, before the next offset to copy,"
                    f" {self.expected}; it was truncated by an unclean leader election, or the topic was created anew"
                )
            case LossReason.DIVERGED:
                return (
                    f"{self.partition}: records up to offset {self.expected} were copied, and the log has other ones"
                    f" from offset {self.found} on: an unclean leader election truncated it there"
                )
            case LossReason.RECREATED:
                return (
                    f"{self.partition}: {self.problem}. It was deleted and created again; the old one was copied up to"
                    f" offset {self.expected}, and the new one begins at {self.found}"
                )
            case LossReason.TARGET_RECREATED:
                return (
                    f"{self.partition}: {self.problem}, after records up to offset {self.expected} were copied into it."
                    f" The new one lacks them; they are copied again from offset {self.found} on"
                )


@dataclass(frozen=True, slots=True)
class SourceView:
    """The source cluster at one moment. `latest` has the end of each partition for readers: the last stable offset with
    read_committed, else the high watermark."""

    earliest: Offsets
    latest: Offsets
    topic_ids: Mapping[str, UUID]
    ends: Offsets = field(default_factory=dict)
    """The high watermarks of partitions whose last stable offset is before the position, because Kafka's MirrorMaker
    has copied records of an open transaction."""
    epochs: Offsets = field(default_factory=dict)
    """The leader epochs of partitions, as far as brokers have told them."""
    diverged: Offsets = field(default_factory=dict)
    """The partitions that have other records before the position than those that were copied, and from which offset
    on."""


@dataclass(frozen=True, slots=True)
class CopyStep:
    """The ranges of a micro-batch. `besides` is to be stored with it: positions that were set without copying (losses,
    and first positions with auto.offset.reset=latest), and new topic ids. `losses` were found now; `waiting` partitions
    have no target yet."""

    ranges: tuple[RangeToCopy, ...] = ()
    besides: Stored = field(default_factory=Stored)
    losses: tuple[CopyLoss, ...] = ()
    waiting: tuple[TopicPartition, ...] = ()
    epochs: Offsets = field(default_factory=dict)
    """The leader epochs of the partitions at the moment of the plan."""


class CopyPlanner:
    """The positions of one pair of clusters."""

    def __init__(
        self,
        topics: Mapping[str, str],
        positions: Offsets,
        topic_ids: Mapping[str, UUID],
        *,
        target_ids: Mapping[str, UUID] | None = None,
        epochs: Offsets | None = None,
        start_at: StartAt = StartAt.EARLIEST,
        fail_on_data_loss: bool = True,
    ) -> None:
        """`positions`, `topic_ids`, `target_ids` and `epochs` are those that the target cluster has stored."""
        self._topics = topics
        self._positions = {tp: offset for tp, offset in positions.items() if tp.topic in topics}
        self._topic_ids = dict(topic_ids)
        self._target_ids = dict(target_ids or {})
        self._epochs = dict(epochs or {})
        self._start_at = start_at
        self._fail_on_data_loss = fail_on_data_loss
        self._begun = False
        self._short_since: dict[TopicPartition, int] = {}
        self._unreported: dict[TopicPartition, int] = {}

    @property
    def positions(self) -> Offsets:
        """The next offset to copy of each partition."""
        return self._positions

    @property
    def epochs(self) -> Offsets:
        """The leader epochs of the positions, where they are known."""
        return self._epochs

    def plan(
        self,
        view: SourceView,
        target_counts: Mapping[str, int],
        now_ms: int,
        target_ids: Mapping[str, UUID] | None = None,
    ) -> CopyStep:
        """The next micro-batch; it has no ranges if there is nothing to copy. `target_ids` are the ids that the topics
        of the target cluster have. Raises MirrorDataLossError if records are
        lost and `on.data.loss` is fail; the positions then stay as they are.
        """
        recreated = {name for name, topic_id in view.topic_ids.items() if self._is_new(name, topic_id)}
        emptied = self._emptied(view, recreated, target_ids or {})
        begun = {*recreated, *(loss.partition.topic for loss in emptied)}
        losses = [*self._recreated(view, recreated), *emptied, *self._out_of_bounds(view, begun, now_ms)]
        if losses and self._fail_on_data_loss:
            raise _data_loss(losses)
        moved = {loss.partition: loss.found for loss in losses}
        for loss in losses:
            self._unreported[loss.partition] = self._unreported.get(loss.partition, 0) + loss.records
        first = self._first_positions(view)
        self._positions.update(moved)
        self._positions.update(first)
        epochs = {tp: epoch for tp, epoch in view.epochs.items() if tp in view.latest}
        self._epochs.update({tp: epochs[tp] for tp in (*moved, *first) if tp in epochs})
        if self._start_at is StartAt.LATEST:
            moved |= first  # stored at once: after a restart, what has arrived meanwhile must not be skipped
        topic_ids = {
            name: topic_id
            for name, topic_id in view.topic_ids.items()
            if topic_id not in (NO_TOPIC_ID, self._topic_ids.get(name))
        }
        self._topic_ids |= topic_ids
        targets = {
            name: topic_id
            for name, topic_id in (target_ids or {}).items()
            if topic_id not in (NO_TOPIC_ID, self._target_ids.get(name))
        }
        self._target_ids |= targets
        ranges, waiting = [], []
        for tp in sorted(view.latest):
            if view.latest[tp] <= self._positions[tp]:
                continue
            target = self._topics[tp.topic]
            if tp.partition >= target_counts.get(target, 0):
                waiting.append(tp)
            else:
                topic_id = self._topic_ids.get(tp.topic, NO_TOPIC_ID)
                ranges.append(RangeToCopy(tp, target, self._positions[tp], view.latest[tp], topic_id))
        besides = Stored(moved, topic_ids, targets, {tp: epochs[tp] for tp in moved if tp in epochs})
        return CopyStep(tuple(ranges), besides, tuple(losses), tuple(waiting), epochs)

    def advance(self, copied: Iterable[PartitionCopied], epochs: Offsets) -> None:
        """Take over the positions of a committed micro-batch, which was planned at these leader epochs."""
        for part in copied:
            assert part.next_upstream >= self._positions[part.partition], "a task begins at the position"
            self._positions[part.partition] = part.next_upstream
            if part.partition in epochs:
                self._epochs[part.partition] = epochs[part.partition]

    def take_lost(self, partition: TopicPartition) -> int:
        """The lost records of a partition that were not reported yet."""
        return self._unreported.pop(partition, 0)

    def _is_new(self, name: str, topic_id: UUID) -> bool:
        """Whether the topic has another id than before. Brokers before Kafka 2.8 have no topic ids."""
        known = self._topic_ids.get(name, NO_TOPIC_ID)
        return known != topic_id and NO_TOPIC_ID not in (known, topic_id)

    def _recreated(self, view: SourceView, recreated: Collection[str]) -> list[CopyLoss]:
        found = []
        for tp in sorted(tp for tp in self._positions if tp.topic in recreated):
            begin = view.earliest.get(tp, 0)
            ids = {"id": str(self._topic_ids[tp.topic])}, {"id": str(view.topic_ids[tp.topic])}
            problem = replaced(f"the topic {tp.topic}", *ids)
            found.append(CopyLoss(tp, LossReason.RECREATED, self._positions[tp], begin, begin, problem))
        return found

    def _emptied(self, view: SourceView, recreated: Collection[str], target_ids: Mapping[str, UUID]) -> list[CopyLoss]:
        """The partitions whose topic in the target cluster was created anew: it lacks what was copied before."""
        found = []
        for tp in sorted(tp for tp in self._positions if tp in view.latest and tp.topic not in recreated):
            name = self._topics[tp.topic]
            before, now = (ids.get(name, NO_TOPIC_ID) for ids in (self._target_ids, target_ids))
            begin = view.earliest.get(tp, 0)
            if before == now or NO_TOPIC_ID in (before, now) or self._positions[tp] <= begin:
                continue
            problem = replaced(f"the topic {name} of the target cluster", {"id": str(before)}, {"id": str(now)})
            found.append(CopyLoss(tp, LossReason.TARGET_RECREATED, self._positions[tp], begin, 0, problem))
        return found

    def _out_of_bounds(self, view: SourceView, recreated: Collection[str], now_ms: int) -> list[CopyLoss]:
        """The partitions whose position is not between the log start and the log end."""
        found = []
        for tp in sorted(view.latest):
            position = self._positions.get(tp)
            if position is None or tp.topic in recreated:
                continue
            first, last = view.earliest.get(tp, 0), view.ends.get(tp, view.latest[tp])
            if tp in view.diverged:
                begin = min(max(first, view.diverged[tp]), last)
                found.append(CopyLoss(tp, LossReason.DIVERGED, position, begin, 0))
                continue
            if position < first:
                found.append(CopyLoss(tp, LossReason.DELETED, position, first, first - position))
            if position <= last or position < first:
                self._short_since.pop(tp, None)
            elif now_ms - self._short_since.setdefault(tp, now_ms) >= TRUNCATION_GRACE_MS:
                del self._short_since[tp]
                found.append(CopyLoss(tp, LossReason.TRUNCATED, position, last, position - last))
        return found

    def _first_positions(self, view: SourceView) -> dict[TopicPartition, int]:
        """The positions of partitions that have none yet. `auto.offset.reset` is for the partitions that exist when the
        copier first sees the topics; a partition that is added later is copied from its beginning."""
        at_end = self._start_at is StartAt.LATEST and not self._begun
        self._begun = True
        new = [tp for tp in view.latest if tp not in self._positions]
        return {tp: view.latest[tp] if at_end else view.earliest.get(tp, 0) for tp in new}


def _data_loss(losses: Sequence[CopyLoss]) -> MirrorDataLossError:
    shown = "; ".join(str(loss) for loss in losses[:10])
    more = f"; and {len(losses) - 10} more" if len(losses) > 10 else ""
    return MirrorDataLossError(
        f"records of the source cluster cannot be copied any more: {shown}{more}. To continue without them, set"
        " on.data.loss=report, which counts them and goes on"
    )


def divide(ranges: Iterable[RangeToCopy], tasks_max: int) -> list[tuple[RangeToCopy, ...]]:
    """The ranges of each task: at most `tasks_max` tasks, with about the same number of offsets."""
    longest = sorted(ranges, key=lambda r: (r.start - r.end, r.partition))
    groups: list[list[RangeToCopy]] = [[] for _ in range(min(max(tasks_max, 1), len(longest)))]
    loads = [(0, i) for i in range(len(groups))]
    for wanted in longest:
        load, i = heapq.heappop(loads)
        groups[i].append(wanted)
        heapq.heappush(loads, (load + wanted.end - wanted.start, i))
    return [tuple(sorted(group, key=lambda r: r.partition)) for group in groups]
