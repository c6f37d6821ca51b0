"""Machine: what must hold when a run is over, by name. Each is a class; its docstring is the promise.

The client-visible anomalies are judged by `barnabas.testing.histories`; the rest needs a look at the cluster.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from barnabas.core.ids import TopicPartition
from barnabas.testing.histories import ClientHistory, HistoryRules, Report, check
from barnabas.testing.sim.errors import CorrectnessError

Rows = tuple[tuple[int, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a run leaves behind. `power_failed` weakens promises that only replication or fsync could keep."""

    history: ClientHistory
    power_failed: bool
    committed_acked: Mapping[TopicPartition, int]
    """The highest offset whose commit was acknowledged."""
    committed_found: Mapping[TopicPartition, int]
    """What the group's coordinator says at the end."""
    bounds: Mapping[TopicPartition, tuple[int, int, int]]
    """log start offset, last stable offset, high watermark"""
    before_restart: Mapping[TopicPartition, Rows]
    """All that a read_committed reader sees."""
    after_restart: Mapping[TopicPartition, Rows]
    """The same, after a kill -9 and a restart."""
    done_again: tuple[str, ...] = ()
    """Records that share consumers were given although one was done with them."""


class Invariant(ABC):
    """Raises CorrectnessError when it does not hold."""

    @abstractmethod
    def check(self, evidence: Evidence) -> None: ...

    def broken(self, what: str) -> CorrectnessError:
        return CorrectnessError(f"{type(self).__name__} is broken: {what}\n({(type(self).__doc__ or '').strip()})")


class NoForbiddenAnomaly(Invariant):
    """Nothing acknowledged is lost, nothing doubled, reordered, skipped, or seen although it was aborted."""

    def check(self, evidence: Evidence) -> None:
        report: Report = check(evidence.history, HistoryRules())
        if report.forbidden:
            raise self.broken(str(report))


class CommittedOffsetsSurvive(Invariant):
    """A group's offset whose commit was acknowledged is not forgotten, and does not go back."""

    def check(self, evidence: Evidence) -> None:
        if evidence.power_failed:
            return  # the coordinator's topic is not flushed: replicas protect it, and here is only one
        for tp, acked in evidence.committed_acked.items():
            found = evidence.committed_found.get(tp, -1)
            if found < acked:
                raise self.broken(f"{tp}: offset {acked} was committed, {found} is remembered")


class BoundsInOrder(Invariant):
    """log start offset <= last stable offset <= high watermark; without open transactions the last two are equal."""

    def check(self, evidence: Evidence) -> None:
        for tp, (start, stable, watermark) in evidence.bounds.items():
            if not start <= stable == watermark:
                raise self.broken(f"{tp}: start {start}, last stable {stable}, high watermark {watermark}")


class ConsistentFinalRead(Invariant):
    """What a reader has seen is seen again, byte for byte, after the broker was killed and has recovered."""

    def check(self, evidence: Evidence) -> None:
        for tp, before in evidence.before_restart.items():
            after = evidence.after_restart.get(tp, ())
            if before != after:
                different = next((pair for pair in zip(before, after, strict=False) if pair[0] != pair[1]), None)
                raise self.broken(
                    f"{tp}: {len(before)} records before, {len(after)} after; first different: {different}"
                )


class OffsetsAscend(Invariant):
    """Within a partition every record stands at a higher offset than the one before it."""

    def check(self, evidence: Evidence) -> None:
        for tp, rows in evidence.after_restart.items():
            for (one, _), (two, _) in pairwise(rows):
                if two <= one:
                    raise self.broken(f"{tp}: offset {two} after {one}")


class DoneIsDone(Invariant):
    """A record whose acknowledgement was confirmed to a share consumer is given to nobody to be done with (KIP-932)."""

    def check(self, evidence: Evidence) -> None:
        if evidence.done_again and not evidence.power_failed:
            raise self.broken("; ".join(evidence.done_again[:5]))


ALL: tuple[Invariant, ...] = (
    NoForbiddenAnomaly(),
    CommittedOffsetsSurvive(),
    BoundsInOrder(),
    ConsistentFinalRead(),
    OffsetsAscend(),
    DoneIsDone(),
)
