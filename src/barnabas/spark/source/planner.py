"""Machine: decides which offsets one micro-batch or one batch query reads, and detects data loss.

    start (checkpoint) ----+
    log: earliest, latest -+-> plan ---> end (next checkpoint) + losses
    limits, clock ---------+

    start, end, log ---------> ranges -> the offsets to read from each partition + losses

Data loss is detected in this module, and in `ranges.py` if it happens after the ranges were planned. These records are
lost: records below the log start offset that were not read, records in a log that now ends before the query's position
(truncated, or the topic was created again), and those of deleted partitions. Gaps above the log start offset are no
loss: transaction markers and compaction leave them, and readers skip them. The unread records of a topic that was
deleted and created again, which its id shows, are lost too, and the query begins at the start of the new topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from barnabas.core.ids import TopicPartition
from barnabas.spark.errors import DataLossError
from barnabas.spark.identities import replaced
from barnabas.spark.options import OnDataLoss
from barnabas.spark.source.options import Limits
from barnabas.spark.source.positions import Offsets, Position


@dataclass(frozen=True, slots=True)
class LogOffsets:
    """The log start offset and the latest offset of each subscribed partition, and the ids of topics that have one."""

    earliest: Offsets
    latest: Offsets
    ids: Mapping[str, str] = field(default_factory=dict)
    epochs: Offsets = field(default_factory=dict)
    """The leader epochs of partitions, as far as brokers have told them."""
    diverged: Offsets = field(default_factory=dict)
    """Where the log of a partition has other records than those up to the query's position (`diverged_at`)."""


class LossKind(Enum):
    """The causes of data loss."""

    AGED_OUT = "aged out"
    TRUNCATED = "truncated"
    DIVERGED = "truncated and written again"
    GONE = "partition gone"
    STARTED_LATE = "new partition began late"
    BEYOND_END = "beyond the end of the log"
    REPLACED = "topic replaced"


@dataclass(frozen=True, slots=True)
class Loss:
    """At most `records` offsets of `tp` cannot be read any more. `ids` are that of the topic which was read, and that
    of the topic which there is now, if they differ; how many records the old topic had left is then unknown."""

    tp: TopicPartition
    kind: LossKind
    expected: int
    found: int
    records: int
    ids: tuple[str, str] = ("", "")

    def __str__(self) -> str:
        match self.kind:
            case LossKind.AGED_OUT:
                return f"{self.tp}: offsets {self.expected} to {self.found - 1} were deleted before they were read"
            case LossKind.TRUNCATED:
                return (
                    f"{self.tp}: the log ends at offset {self.found}, before the query's position {self.expected}; "
                    "it was truncated, or the topic was deleted and created anew"
                )
            case LossKind.DIVERGED:
                return (
                    f"{self.tp}: the query has read up to offset {self.expected}, and the log has other records from"
                    f" offset {self.found} on: an unclean leader election truncated it there"
                )
            case LossKind.GONE:
                return f"{self.tp}: the partition was deleted; the query had read it up to offset {self.expected}"
            case LossKind.STARTED_LATE:
                return f"{self.tp}: the new partition begins at offset {self.found}; earlier records were never read"
            case LossKind.REPLACED:
                read, now = self.ids
                problem = replaced(f"the topic {self.tp.topic}", {"id": read}, {"id": now})
                return (
                    f"{self.tp}: {problem}. It was deleted and created again; the query had read the old one up to"
                    f" offset {self.expected}, and the new one begins at {self.found}"
                )
            case LossKind.BEYOND_END:
                return f"{self.tp}: the query reads to offset {self.expected}, but the log ends at {self.found}"


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """The offsets from `start` (included) to `end` (excluded) of one partition."""

    tp: TopicPartition
    start: int
    end: int
    topic_id: str = ""
    """The id of the topic that is to be read; empty if it has none."""

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Plan:
    """The end of the micro-batch, the losses that were found while planning it, and the topics whose ids the position
    did not have before."""

    end: Position
    losses: tuple[Loss, ...] = ()
    adopted: tuple[str, ...] = ()


class StreamPlanner:
    """Plans the micro-batches of one streaming query. Between micro-batches, the planner keeps the time of the last
    one, a turn that decides which partitions come first if a limit is too small for all, the target of
    Trigger.AvailableNow, and lost records that no position includes yet.
    """

    def __init__(self, limits: Limits, on_data_loss: OnDataLoss) -> None:
        self._limits = limits
        self._on_data_loss = on_data_loss
        self._last_batch_ms: int | None = None
        self._turn = 0
        self._target: dict[TopicPartition, int] | None = None
        self._uncounted: dict[TopicPartition, int] = {}

    def fix_target(self, latest: Offsets) -> None:
        """Set the offsets at which a query with Trigger.AvailableNow ends."""
        self._target = dict(latest)

    def record_late_losses(self, losses: list[Loss], begin: Position, end: Position) -> None:
        """Record losses that were found while the micro-batch from `begin` to `end` was read.

        With `failOnDataLoss=report`, lost records that `end.lost` does not include are added to the next micro-batch.
        """
        if self._on_data_loss is OnDataLoss.REPORT:
            for loss in losses:
                counted = end.lost.get(loss.tp, 0) - begin.lost.get(loss.tp, 0)
                if loss.records > counted:
                    self._uncounted[loss.tp] = self._uncounted.get(loss.tp, 0) + loss.records - counted

    def plan(
        self,
        start: Position,
        log: LogOffsets,
        *,
        now_ms: int,
        bytes_per_offset: Mapping[TopicPartition, float] | None = None,
        unlimited: bool = False,
    ) -> Plan:
        """The end of the next micro-batch. Equals `start` if there is nothing to read, or not enough yet.

        Raises DataLossError if records are lost and `failOnDataLoss` is true.
        """
        known = start.ids
        start = start.adopting(log.ids)
        adopted = tuple(sorted(topic for topic in start.ids if topic not in known))
        latest = self._visible_latest(start, log)
        begins, losses = _start_offsets(start, log, latest)
        check_losses(losses, self._on_data_loss)
        lost = dict(start.lost)
        if self._on_data_loss is OnDataLoss.REPORT:
            for tp, records in [*self._uncounted.items(), *((loss.tp, loss.records) for loss in losses)]:
                lost[tp] = lost.get(tp, 0) + records
            lost = {tp: records for tp, records in lost.items() if records}
            self._uncounted.clear()
        pending = {tp: latest[tp] - begin for tp, begin in begins.items() if latest[tp] > begin}
        if not unlimited and not losses and lost == start.lost and self._should_wait(sum(pending.values()), now_ms):
            return Plan(start, adopted=adopted)
        if pending:
            self._last_batch_ms = now_ms
        takes = pending if unlimited else self._limit(pending, bytes_per_offset or {})
        end = {tp: begin + takes.get(tp, 0) for tp, begin in begins.items()}
        topics = {tp.topic for tp in end}
        ids = {topic: one for topic, one in {**start.ids, **log.ids}.items() if topic in topics}
        epochs = {}
        for tp, offset in end.items():
            stays = start.offsets.get(tp) == offset and tp not in log.diverged  # an election alone is no micro-batch
            epoch = (start if stays else log).epochs.get(tp)
            if epoch is not None:
                epochs[tp] = epoch
        return Plan(Position(end, lost, ids, epochs=epochs), tuple(losses), adopted)

    def _visible_latest(self, start: Position, log: LogOffsets) -> dict[TopicPartition, int]:
        """The latest offsets, limited by the target if there is one. Partitions created after the target was set are
        ignored, and a position beyond the target is kept.
        """
        if self._target is None:
            return dict(log.latest)
        visible = {}
        for tp, latest in log.latest.items():
            if tp not in self._target and tp not in start.offsets:
                continue
            target = self._target.get(tp, 0)
            passed = start.offsets.get(tp, 0) if start.is_of(tp.topic, log.ids) else 0
            visible[tp] = min(latest, max(target, passed))
        return visible

    def _should_wait(self, pending: int, now_ms: int) -> bool:
        """Whether minOffsetsPerTrigger and maxTriggerDelay delay the micro-batch. Never with Trigger.AvailableNow: the
        query does not read records that arrive later.
        """
        if self._limits.min_offsets is None or self._target is not None or self._last_batch_ms is None:
            return False
        return pending < self._limits.min_offsets and now_ms - self._last_batch_ms < self._limits.max_delay_ms

    def _limit(
        self, pending: Mapping[TopicPartition, int], bytes_per_offset: Mapping[TopicPartition, float]
    ) -> dict[TopicPartition, int]:
        takes = dict(pending)
        if self._limits.max_bytes is not None:
            weights = {tp: max(1, int(n * bytes_per_offset.get(tp, 1.0))) for tp, n in pending.items()}
            shares = divide_limit(self._limits.max_bytes, weights, self._turn)
            takes = {tp: n if shares[tp] >= weights[tp] else n * shares[tp] // weights[tp] for tp, n in pending.items()}
            if pending:
                # A record that is larger than its partition's share must be read anyway, or the query would never pass
                # it.
                favoured = sorted(pending)[self._turn % len(pending)]
                takes[favoured] = max(1, takes[favoured])
        if self._limits.max_offsets is not None:
            takes = divide_limit(self._limits.max_offsets, takes, self._turn)
        self._turn += 1
        return takes


def divide_limit(limit: int, wishes: Mapping[TopicPartition, int], turn: int = 0) -> dict[TopicPartition, int]:
    """Divide `limit` among partitions. `wishes` has the number of offsets (or bytes) that each partition could take,
    and the shares are in proportion to these numbers. Their sum never exceeds `limit`, and every partition gets a share
    over time.

    Spark's own connector rounds small shares up, and exceeds its limit if there are many partitions. Here each
    partition with a wish first gets 1, in an order that `turn`, which grows with each micro-batch, rotates. The rest of
    the limit is divided in proportion, and what rounding down leaves goes to the partitions with the largest
    remainders.
    """
    total = sum(wishes.values())
    if total <= limit:
        return dict(wishes)
    hungry = [tp for tp in sorted(wishes) if wishes[tp] > 0]
    shift = turn * limit % len(hungry)
    rotated = hungry[shift:] + hungry[:shift]
    shares = dict.fromkeys(wishes, 0)
    for tp in rotated[:limit]:
        shares[tp] = 1
    spare = limit - len(hungry)
    if spare <= 0:
        return shares
    unmet = total - len(hungry)
    for tp in hungry:
        shares[tp] += (wishes[tp] - 1) * spare // unmet
    left = limit - sum(shares.values())
    for tp in sorted(rotated, key=lambda tp: -((wishes[tp] - 1) * spare % unmet))[:left]:
        shares[tp] += 1
    return shares


def plan_ranges(
    start: Offsets, end: Offsets, earliest: Offsets, ids: Mapping[str, str] | None = None
) -> tuple[list[PartitionRange], list[Loss]]:
    """The ranges to read between two positions. `ids` are those of the topics.

    A partition that `start` does not have is new, and is read from its earliest offset. A range whose start is not
    below its end is empty, and is no loss: Spark asks for such ranges when it replays its first micro-batch with a
    later initial offset (see `StreamReader`), and truncation was detected when `end` was planned.
    """
    ranges: list[PartitionRange] = []
    losses: list[Loss] = []
    for tp in sorted(end):
        if tp in start and start[tp] >= end[tp]:
            continue
        first = earliest.get(tp)
        if first is None:
            begin = start.get(tp, 0)
            losses.append(Loss(tp, LossKind.GONE, begin, 0, end[tp] - begin))
            continue
        begin = start.get(tp, first)
        readable = min(max(begin, first), end[tp])
        if readable > begin:
            losses.append(Loss(tp, LossKind.AGED_OUT, begin, readable, readable - begin))
        if readable < end[tp]:
            ranges.append(PartitionRange(tp, readable, end[tp], (ids or {}).get(tp.topic, "")))
    return ranges, losses


def plan_replay(
    start: Position, end: Position, earliest: Offsets, ids: Mapping[str, str]
) -> tuple[list[PartitionRange], list[Loss]]:
    """The ranges of a micro-batch that was planned from `start` to `end`, now that the topics have these ids.

    A topic that `end` knows by another id than `start` was replaced before: it is read from its beginning. The records
    of a topic that has another id than in `end` were deleted with it.
    """
    gone = {tp for tp in end.offsets if not end.is_of(tp.topic, ids)}
    begins = {tp: offset for tp, offset in start.offsets.items() if start.is_of(tp.topic, end.ids)}
    ends = {tp: offset for tp, offset in end.offsets.items() if tp not in gone}
    ranges, losses = plan_ranges(begins, ends, earliest, ids)
    for tp in sorted(gone):
        unread = end.offsets[tp] - begins.get(tp, 0)
        if unread > 0:
            pair = (end.ids[tp.topic], ids[tp.topic])
            losses.append(Loss(tp, LossKind.REPLACED, begins.get(tp, 0), earliest.get(tp, 0), unread, pair))
    return ranges, losses


def asked_epochs(position: Position, epochs: Offsets, ids: Mapping[str, str]) -> dict[TopicPartition, int]:
    """The leader epochs of a position whose ends the leaders have to tell: those that are others in `epochs`."""
    return {
        tp: epoch
        for tp, epoch in position.epochs.items()
        if epochs.get(tp, epoch) != epoch and position.is_of(tp.topic, ids)
    }


def diverged_at(position: Position, ends: Offsets) -> dict[TopicPartition, int]:
    """The partitions whose leaders have other records below the position than the leaders had at whose epochs the
    position was planned, each with the offset from which on. `ends` has where these epochs end in the leaders' logs
    now (KIP-101): all records below that offset are the same ones.
    """
    return {tp: end for tp, end in ends.items() if 0 <= end < position.offsets.get(tp, 0)}


def divergences(position: Position, diverged: Offsets) -> list[Loss]:
    """A loss for each partition that has other records below the position than those of when it was planned."""
    return [Loss(tp, LossKind.DIVERGED, position.offsets[tp], offset, 0) for tp, offset in sorted(diverged.items())]


def missing_ends(end: Offsets, latest: Offsets) -> list[Loss]:
    """A loss for each partition that a batch query is to read beyond the end of the log: either the records have been
    deleted, or the option for the ending offsets is wrong.
    """
    return [
        Loss(tp, LossKind.BEYOND_END, end[tp], latest[tp], end[tp] - latest[tp])
        for tp in sorted(end)
        if end[tp] > latest[tp]
    ]


def check_losses(losses: list[Loss], on_data_loss: OnDataLoss) -> None:
    """Raise DataLossError if there are losses and `on_data_loss` says that a loss stops the query."""
    if losses and on_data_loss is OnDataLoss.FAIL:
        shown = "; ".join(str(loss) for loss in losses[:10])
        more = f"; and {len(losses) - 10} more" if len(losses) > 10 else ""
        raise DataLossError(
            f"records were lost: {shown}{more}. To continue without them, set failOnDataLoss=false, or "
            "failOnDataLoss=report to continue and count them in the query's offsets"
        )


def _start_offsets(start: Position, log: LogOffsets, latest: Offsets) -> tuple[dict[TopicPartition, int], list[Loss]]:
    """The offset at which reading begins in each subscribed partition, and the records lost before that offset."""
    begins: dict[TopicPartition, int] = {}
    losses: list[Loss] = []
    for tp in sorted(latest):
        first, last = log.earliest[tp], latest[tp]
        known = start.offsets.get(tp)
        if known is not None and not start.is_of(tp.topic, log.ids):
            begins[tp] = min(first, last)
            pair = (start.ids[tp.topic], log.ids[tp.topic])
            losses.append(Loss(tp, LossKind.REPLACED, known, begins[tp], 0, pair))
        elif known is None:
            begins[tp] = min(first, last)
            if first > 0:
                losses.append(Loss(tp, LossKind.STARTED_LATE, 0, first, first))
        elif known > log.diverged.get(tp, known):
            begins[tp] = min(max(first, log.diverged[tp]), last)
            losses.append(Loss(tp, LossKind.DIVERGED, known, begins[tp], 0))
        elif known > last:
            begins[tp] = last
            losses.append(Loss(tp, LossKind.TRUNCATED, known, last, known - last))
        elif known < first:
            begins[tp] = min(first, last)
            losses.append(Loss(tp, LossKind.AGED_OUT, known, first, first - known))
        else:
            begins[tp] = known
    gone = (tp for tp in sorted(start.offsets) if tp not in latest)
    losses.extend(Loss(tp, LossKind.GONE, start.offsets[tp], 0, 0) for tp in gone)
    return begins, losses
