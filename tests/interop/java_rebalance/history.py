"""Machine: what members of one group recorded, and what must never be found in it.

A *tenure* is the time in which one member owned one partition: from the call of `onPartitionsAssigned` to the end of
`onPartitionsRevoked`, or to `onPartitionsLost`, the member's death, or the end of the record.

    NoTwoOwners        tenures of a partition do not overlap. One that ended with `lost` or with a fatal error may reach
                       into its successor: the member did not know yet that the group went on without it.
    ContinuesAtCommit  a tenure's first record is the one the last commit names, and no record is missing after it. Of a
                       commit whose answer never came, either outcome is admitted.
    CommitsAscend      no acknowledged commit is below an earlier one.
    ZombieRefused      no commit is acknowledged that was sent after another member's tenure began.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

FOREVER = 1 << 62
CERTAINLY_NOT = ("CommitFailedException", "RebalanceInProgressException", "FencedInstanceIdException")
"""Errors by which the Java client says that a commit did not happen."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a member, or its death by `kill -9` ("killed")."""

    at: int
    """Nanoseconds of the machine's monotonic clock."""
    member: str
    event: str
    partitions: tuple[str, ...] = ()
    offsets: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """(partition, (first, next)) of records read; (partition, (offset,)) of a commit."""
    generation: int = -1
    error: str = ""


@dataclass(slots=True)
class Tenure:
    partition: str
    member: str
    begin: int
    end: int = FOREVER
    ended_by: str = ""
    reads: list[tuple[int, int]] = field(default_factory=list)

    @property
    def knew(self) -> bool:
        """The member knew when its tenure was over."""
        return self.ended_by not in ("lost", "failed")

    def __str__(self) -> str:
        return f"{self.partition} of {self.member} [{self.begin}, {self.end if self.ended_by else 'on'}]"


@dataclass(slots=True)
class Commit:
    partition: str
    member: str
    offset: int
    tenure_begin: int
    """When the tenure began from which it was sent."""
    sent: int
    answered: int = FOREVER
    error: str = ""
    """Why it was refused."""

    @property
    def acknowledged(self) -> bool:
        return self.answered < FOREVER and not self.error

    @property
    def order(self) -> tuple[int, int]:
        """Commits take effect in the order of their tenures, whenever their members read the answers: one that slept
        reads its own late."""
        return (self.tenure_begin, self.sent)


class History:
    """Tenures and commits by partition, taken from events in order of time."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.tenures: dict[str, list[Tenure]] = defaultdict(list)
        self.commits: dict[str, list[Commit]] = defaultdict(list)
        self.problems: list[str] = []
        self._owned: dict[tuple[str, str], Tenure] = {}
        self._begun: dict[tuple[str, str], int] = {}
        self._sent: dict[tuple[str, str], Commit] = {}
        for event in sorted(events, key=lambda e: e.at):
            self._add(event)

    def _add(self, event: Event) -> None:
        match event.event:
            case "assigned":
                for partition in event.partitions:
                    self._begin(event, partition)
            case "revoked" | "lost":
                for partition in event.partitions:
                    self._end(event, partition)
            case "killed" | "failed" | "closed":
                for member, partition in list(self._owned):
                    if member == event.member:
                        self._end(event, partition)
            case "read":
                for partition, (first, next_offset) in event.offsets:
                    self._read(event, partition, first, next_offset)
            case "committing":
                for partition, (offset,) in event.offsets:
                    begin = self._begun.get((event.member, partition), 0)
                    commit = Commit(partition, event.member, offset, begin, event.at)
                    self._sent[event.member, partition] = commit
                    self.commits[partition].append(commit)
            case "committed" | "refused":
                for partition, _ in event.offsets:
                    commit = self._sent.pop((event.member, partition))
                    commit.answered, commit.error = event.at, event.error

    def _begin(self, event: Event, partition: str) -> None:
        if (event.member, partition) in self._owned:
            self.problems.append(f"NoTwoOwners: {event.member} was given {partition} twice")
            return
        tenure = Tenure(partition, event.member, event.at)
        self._owned[event.member, partition] = tenure
        self._begun[event.member, partition] = event.at
        self.tenures[partition].append(tenure)

    def _end(self, event: Event, partition: str) -> None:
        tenure = self._owned.pop((event.member, partition), None)
        if tenure is None:
            self.problems.append(f"NoTwoOwners: {event.member} gave up {partition}, which it did not own")
            return
        tenure.end, tenure.ended_by = event.at, event.event

    def _read(self, event: Event, partition: str, first: int, next_offset: int) -> None:
        tenure = self._owned.get((event.member, partition))
        if tenure is None:
            self.problems.append(f"NoTwoOwners: {event.member} read {partition} at {first} and did not own it")
        else:
            tenure.reads.append((first, next_offset))


def find_problems(events: Sequence[Event]) -> list[str]:
    """Everything that contradicts the invariants above; empty when all is well."""
    history = History(events)
    problems = list(history.problems)
    for partition in sorted(history.tenures):
        tenures, commits = history.tenures[partition], history.commits[partition]
        problems += _overlaps(tenures)
        problems += _misplaced(tenures, commits)
        problems += _commits(tenures, commits)
    return problems


def _overlaps(tenures: Sequence[Tenure]) -> Iterator[str]:
    for before, after in pairwise(tenures):
        if before.end > after.begin and before.knew:
            yield f"NoTwoOwners: {before} and {after}"


def _misplaced(tenures: Sequence[Tenure], commits: Sequence[Commit]) -> Iterator[str]:
    for tenure in tenures:
        if not tenure.reads:
            continue
        admitted = _positions(commits, tenure.begin)
        first = tenure.reads[0][0]
        if first not in admitted:
            yield f"ContinuesAtCommit: {tenure} began to read at {first}, committed is {sorted(admitted)}"
        for (_, expected), (found, _) in pairwise(tenure.reads):
            if found != expected:
                yield f"ContinuesAtCommit: {tenure} read {found} after {expected - 1}"


def _positions(commits: Sequence[Commit], now: int) -> set[int]:
    """Where the group may stand at a moment: the last commit acknowledged by then, or one that nobody knows of."""
    last = max((c for c in commits if c.acknowledged and c.answered <= now), key=lambda c: c.order, default=None)
    since = (-1, -1) if last is None else last.order
    positions = {0 if last is None else last.offset}
    for commit in commits:
        open_then = commit.answered > now or (commit.error and commit.error not in CERTAINLY_NOT)
        if commit.sent <= now and since < commit.order and open_then:
            positions.add(commit.offset)
    return positions


def _commits(tenures: Sequence[Tenure], commits: Sequence[Commit]) -> Iterator[str]:
    highest: Commit | None = None
    for commit in sorted((c for c in commits if c.acknowledged), key=lambda c: c.order):
        if highest is not None and commit.offset < highest.offset:
            yield f"CommitsAscend: {commit} after {highest}"
        highest = commit
        heir = next(
            (t for t in tenures if t.member != commit.member and commit.tenure_begin < t.begin < commit.sent), None
        )
        if heir is not None:
            yield f"ZombieRefused: {commit} although its heir was {heir}"


def revoked_between(events: Sequence[Event], begin: int) -> list[tuple[str, str]]:
    """(member, partition) of all that was taken from living members since `begin`."""
    return sorted(
        (e.member, p) for e in events if e.at >= begin and e.event in ("revoked", "lost") for p in e.partitions
    )


def read_up_to(events: Sequence[Event]) -> dict[str, int]:
    """How far each partition has been read without a hole from its start."""
    runs: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        if event.event == "read":
            for partition, (first, next_offset) in event.offsets:
                runs[partition].append((first, next_offset))
    reached: dict[str, int] = {}
    for partition, ranges in runs.items():
        end = 0
        for first, next_offset in sorted(ranges):
            end = max(end, next_offset) if first <= end else end
        reached[partition] = end
    return reached


def committed(events: Sequence[Event]) -> dict[str, int]:
    """The last acknowledged commit of each partition."""
    found: dict[str, int] = {}
    for event in sorted(events, key=lambda e: e.at):
        if event.event == "committed":
            found.update((partition, offset) for partition, (offset,) in event.offsets)
    return found
