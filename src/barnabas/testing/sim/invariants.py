"""Machine: the invariants that must hold at the end of a run. Each invariant is a class whose docstring states it.

`barnabas.testing.histories` checks the anomalies that clients can see; the other invariants need data from the cluster.
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
    """The data of a finished run, which the invariants check.

    If `power_failed`, the run had one node, whose power may have failed: some acknowledged writes that only replicas
    protect (committed offsets, acknowledgements of share consumers) may be lost, and are not checked.
    """

    history: ClientHistory
    power_failed: bool
    committed_acked: Mapping[TopicPartition, int]
    """The highest offset whose commit was acknowledged."""
    committed_found: Mapping[TopicPartition, int]
    """The committed offset that the group coordinator returns at the end."""
    bounds: Mapping[TopicPartition, tuple[int, int, int]]
    """The bounds of each partition: log start offset, last stable offset, high watermark."""
    before_restart: Mapping[TopicPartition, Rows]
    """All records that a read_committed consumer reads."""
    after_restart: Mapping[TopicPartition, Rows]
    """All records that a read_committed consumer reads after a kill -9 and a restart of every node."""
    done_again: tuple[str, ...] = ()
    """Descriptions of records that were delivered to a share consumer and acknowledged again, after an earlier
    acknowledgement had been confirmed."""


class Invariant(ABC):
    """An invariant; `check` raises CorrectnessError if it does not hold."""

    @abstractmethod
    def check(self, evidence: Evidence) -> None: ...

    def broken(self, what: str) -> CorrectnessError:
        return CorrectnessError(f"{type(self).__name__} is broken: {what}\n({(type(self).__doc__ or '').strip()})")


class NoForbiddenAnomaly(Invariant):
    """No acknowledged record is lost; no record is duplicated, reordered, skipped, or visible although aborted."""

    def check(self, evidence: Evidence) -> None:
        report: Report = check(evidence.history, HistoryRules())
        if report.forbidden:
            raise self.broken(str(report))


class CommittedOffsetsSurvive(Invariant):
    """An acknowledged committed offset of a group is neither lost nor decreased."""

    def check(self, evidence: Evidence) -> None:
        if evidence.power_failed:
            return  # the coordinator's topic is protected by replicas, not by fsync, and one node has no replicas
        for tp, acked in evidence.committed_acked.items():
            found = evidence.committed_found.get(tp, -1)
            if found < acked:
                raise self.broken(f"{tp}: offset {acked} was committed, the coordinator returns {found}")


class BoundsInOrder(Invariant):
    """log start offset <= last stable offset <= high watermark; without open transactions the last two are equal."""

    def check(self, evidence: Evidence) -> None:
        for tp, (start, stable, watermark) in evidence.bounds.items():
            if not start <= stable == watermark:
                raise self.broken(f"{tp}: start {start}, last stable {stable}, high watermark {watermark}")


class ConsistentFinalRead(Invariant):
    """A reader sees the same records, byte for byte, after the broker was killed and has recovered."""

    def check(self, evidence: Evidence) -> None:
        for tp, before in evidence.before_restart.items():
            after = evidence.after_restart.get(tp, ())
            if before != after:
                different = next((pair for pair in zip(before, after, strict=False) if pair[0] != pair[1]), None)
                raise self.broken(
                    f"{tp}: {len(before)} records before, {len(after)} after; first different: {different}"
                )


class OffsetsAscend(Invariant):
    """Within a partition every record has a higher offset than the previous record."""

    def check(self, evidence: Evidence) -> None:
        for tp, rows in evidence.after_restart.items():
            for (one, _), (two, _) in pairwise(rows):
                if two <= one:
                    raise self.broken(f"{tp}: offset {two} after {one}")


class DoneIsDone(Invariant):
    """A record whose acknowledgement was confirmed to a share consumer is not delivered again (KIP-932)."""

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
