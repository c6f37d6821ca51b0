"""Machine: decides what one micro-batch, or one batch read, takes from the log. Values in, values out.

    start (checkpoint) ──┐
    log: earliest, latest ─┼─► plan ──► end (next checkpoint) + losses
    limits, clock        ──┘

    start, end, log ─────────► ranges ─► what to read from each partition + losses

Data loss is judged here, in one place. Lost are: records that fell below the log start before they were read, a log
that now ends before the query's position (truncated, or the topic was made anew), and partitions that are gone. Not
lost are gaps above the log start: transaction markers and compaction leave them, and readers step over them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from barnabas.core.ids import TopicPartition
from barnabas.spark.errors import DataLossError
from barnabas.spark.options import Limits, OnDataLoss
from barnabas.spark.positions import Offsets, Position


@dataclass(frozen=True, slots=True)
class LogOffsets:
    """The offsets that each subscribed partition has at this moment."""

    earliest: Offsets
    latest: Offsets


class LossKind(Enum):
    """How records came to be lost."""

    AGED_OUT = "aged out"
    TRUNCATED = "truncated"
    GONE = "partition gone"
    STARTED_LATE = "new partition began late"
    BEYOND_END = "beyond the end of the log"


@dataclass(frozen=True, slots=True)
class Loss:
    """`records` at most that many offsets of `tp` cannot be read any more."""

    tp: TopicPartition
    kind: LossKind
    expected: int
    found: int
    records: int

    def __str__(self) -> str:
        match self.kind:
            case LossKind.AGED_OUT:
                return f"{self.tp}: offsets {self.expected} to {self.found - 1} were deleted before they were read"
            case LossKind.TRUNCATED:
                return (
                    f"{self.tp}: the log ends at offset {self.found}, before the query's position {self.expected}; "
                    "it was truncated, or the topic was deleted and created anew"
                )
            case LossKind.GONE:
                return f"{self.tp}: the partition is gone; the query had read it up to offset {self.expected}"
            case LossKind.STARTED_LATE:
                return f"{self.tp}: the new partition begins at offset {self.found}; earlier records were never read"
            case LossKind.BEYOND_END:
                return f"{self.tp}: to be read to offset {self.expected}, but the log ends at {self.found}"


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """Offsets `start` (included) to `end` (excluded) of one partition."""

    tp: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Plan:
    """Where the micro-batch ends, and what was found missing on the way."""

    end: Position
    losses: tuple[Loss, ...] = ()


class StreamPlanner:
    """Keeps, between micro-batches, only the time of the last one and whose turn a scarce limit is."""

    def __init__(self, limits: Limits, on_data_loss: OnDataLoss) -> None:
        self._limits = limits
        self._on_data_loss = on_data_loss
        self._last_batch_ms: int | None = None
        self._turn = 0
        self._target: dict[TopicPartition, int] | None = None
        self._uncounted: dict[TopicPartition, int] = {}

    def fix_target(self, latest: Offsets) -> None:
        """Trigger.AvailableNow: read up to here and no further."""
        self._target = dict(latest)

    def count_later(self, losses: list[Loss], begin: Position, end: Position) -> None:
        """Losses found when a planned micro-batch is read; what its end does not count yet goes into the next one's."""
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
        """The end of the next micro-batch; equal to `start` when there is nothing, or not yet enough, to read.

        Raises DataLossError when records are missing and `failOnDataLoss` is true.
        """
        latest = self._visible_latest(start, log)
        begins, losses = _begins(start, log.earliest, latest)
        judge(losses, self._on_data_loss)
        lost = dict(start.lost)
        if self._on_data_loss is OnDataLoss.REPORT:
            for tp, records in [*self._uncounted.items(), *((loss.tp, loss.records) for loss in losses)]:
                lost[tp] = lost.get(tp, 0) + records
            lost = {tp: records for tp, records in lost.items() if records}
            self._uncounted.clear()
        pending = {tp: latest[tp] - begin for tp, begin in begins.items() if latest[tp] > begin}
        if not unlimited and not losses and lost == start.lost and self._should_wait(sum(pending.values()), now_ms):
            return Plan(start)
        if pending:
            self._last_batch_ms = now_ms
        takes = pending if unlimited else self._limit(pending, bytes_per_offset or {})
        end = {tp: begin + takes.get(tp, 0) for tp, begin in begins.items()}
        return Plan(Position(end, lost), tuple(losses))

    def _visible_latest(self, start: Position, log: LogOffsets) -> dict[TopicPartition, int]:
        """Under a target: partitions born after it stay unseen, and a position beyond it is left where it is."""
        if self._target is None:
            return dict(log.latest)
        visible = {}
        for tp, latest in log.latest.items():
            if tp not in self._target and tp not in start.offsets:
                continue
            target = self._target.get(tp, 0)
            visible[tp] = min(latest, max(target, start.offsets.get(tp, 0)))
        return visible

    def _should_wait(self, pending: int, now_ms: int) -> bool:
        """minOffsetsPerTrigger and maxTriggerDelay. Never under a target: nothing that counts will arrive any more."""
        if self._limits.min_offsets is None or self._target is not None or self._last_batch_ms is None:
            return False
        return pending < self._limits.min_offsets and now_ms - self._last_batch_ms < self._limits.max_delay_ms

    def _limit(
        self, pending: Mapping[TopicPartition, int], bytes_per_offset: Mapping[TopicPartition, float]
    ) -> dict[TopicPartition, int]:
        takes = dict(pending)
        if self._limits.max_bytes is not None:
            weights = {tp: max(1, int(n * bytes_per_offset.get(tp, 1.0))) for tp, n in pending.items()}
            shares = share_out(self._limits.max_bytes, weights, self._turn)
            takes = {tp: n if shares[tp] >= weights[tp] else n * shares[tp] // weights[tp] for tp, n in pending.items()}
            if pending:
                # A record larger than its partition's share must pass all the same, or it would block it for ever.
                favoured = sorted(pending)[self._turn % len(pending)]
                takes[favoured] = max(1, takes[favoured])
        if self._limits.max_offsets is not None:
            takes = share_out(self._limits.max_offsets, takes, self._turn)
        self._turn += 1
        return takes


def share_out(limit: int, wishes: Mapping[TopicPartition, int], turn: int = 0) -> dict[TopicPartition, int]:
    """Divides `limit` in proportion to the wishes; never more in sum than `limit`, and nobody starves.

    Spark's own connector rounds small shares up and so exceeds its limit when there are many partitions. Here each
    wish gets one first, in an order that `turn` rotates; the rest is divided in proportion, largest remainder first.
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


def plan_ranges(start: Offsets, end: Offsets, earliest: Offsets) -> tuple[list[PartitionRange], list[Loss]]:
    """What to read between two positions.

    A partition that `start` does not know is new and is read from its earliest offset. A range whose start is at or
    beyond its end is empty, and that is no loss: Spark asks for such ranges when it replays its first batch with an
    initial offset that has moved on since (see `StreamReader`), and a truncated log was judged when `end` was planned.
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
            ranges.append(PartitionRange(tp, readable, end[tp]))
    return ranges, losses


def missing_ends(end: Offsets, latest: Offsets) -> list[Loss]:
    """What a batch read is asked for beyond the end of the log: once there and gone, or a mistake in the option."""
    return [
        Loss(tp, LossKind.BEYOND_END, end[tp], latest[tp], end[tp] - latest[tp])
        for tp in sorted(end)
        if end[tp] > latest[tp]
    ]


def judge(losses: list[Loss], on_data_loss: OnDataLoss) -> None:
    """Raises DataLossError for any loss when losses are to stop the query."""
    if losses and on_data_loss is OnDataLoss.FAIL:
        shown = "; ".join(str(loss) for loss in losses[:10])
        more = f"; and {len(losses) - 10} more" if len(losses) > 10 else ""
        raise DataLossError(
            f"records were lost: {shown}{more}. To go on without them set failOnDataLoss=false, or "
            "failOnDataLoss=report to go on and have them counted in the query's offsets"
        )


def _begins(start: Position, earliest: Offsets, latest: Offsets) -> tuple[dict[TopicPartition, int], list[Loss]]:
    """Where reading can begin in each partition of the subscription, and what has been lost before that."""
    begins: dict[TopicPartition, int] = {}
    losses: list[Loss] = []
    for tp in sorted(latest):
        first, last = earliest[tp], latest[tp]
        known = start.offsets.get(tp)
        if known is None:
            begins[tp] = min(first, last)
            if first > 0:
                losses.append(Loss(tp, LossKind.STARTED_LATE, 0, first, first))
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
