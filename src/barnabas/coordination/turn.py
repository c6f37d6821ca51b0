"""Value: one turn of a coordinator machine: what it was told, and what it wants done.

A machine is handed a `Turn` with the time and collects its effects there: records to append, parked requests to
answer, timers to arm. The runtime carries them out. All effects of a turn with records leave when the records are
committed; those of a turn without records leave at once (a heartbeat never waits behind a commit).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from barnabas.coordination.ports import Producer
from barnabas.core.errors import ErrorCode
from barnabas.core.rng import Rng

TimerKey = tuple[str, ...]
"""What a timer is for; the first word is its kind: ("session", group_id, member_id)."""


class Ticket:
    """A parked request, by identity. Machines keep it and answer it later; the runtime knows whose it is."""

    __slots__ = ("label",)

    def __init__(self, label: str = "") -> None:
        self.label = label

    def __repr__(self) -> str:
        return f"Ticket({self.label})"


class _Parked:
    def __repr__(self) -> str:
        return "PARKED"


PARKED: Final = _Parked()
"""Returned by a machine that has kept the turn's ticket and will answer it in a later turn."""

Parked = _Parked

KeyT = TypeVar("KeyT")


@dataclass(frozen=True, slots=True)
class StateRecord:
    """A record of a coordinator's log, decoded: messages as defined in the room's `records.py`."""

    key: Any
    value: Any | None
    version: int = 0
    """The version in which `value` is written."""


@dataclass(frozen=True, slots=True)
class Arm:
    """Call `on_timer(key)` once, `delay_ms` from now; replaces a timer of the same key."""

    key: TimerKey
    delay_ms: int


@dataclass(frozen=True, slots=True)
class Disarm:
    key: TimerKey


AfterCommit = Callable[["Turn", ErrorCode], None]


@dataclass(slots=True)
class Turn:
    """The inputs of one turn and the effects collected so far."""

    now_ms: int
    rng: Rng
    ticket: Ticket = field(default_factory=Ticket)
    records: list[StateRecord] = field(default_factory=list)
    answers: list[tuple[Ticket, Any]] = field(default_factory=list)
    timers: list[Arm | Disarm] = field(default_factory=list)
    then: AfterCommit | None = None
    """Run in a new turn when the records are committed (NONE) or could not be appended (the code)."""
    replay: bool = True
    """False: the machine has already changed its (volatile) state; the records are not applied to it again."""
    producer: Producer | None = None
    """Set for transactional offsets: the records count only once the producer's marker has committed them."""
    atomic: bool = True
    """False: the records may be appended in several batches (expiry, clean-up)."""
    after_pending: bool = False
    """True: although there are no records, leave only when everything written before has been committed."""

    def write(self, *records: StateRecord) -> None:
        self.records.extend(records)

    def answer(self, ticket: Ticket, response: Any) -> None:
        self.answers.append((ticket, response))

    def arm(self, key: TimerKey, delay_ms: int) -> None:
        self.timers.append(Arm(key, delay_ms))

    def disarm(self, key: TimerKey) -> None:
        self.timers.append(Disarm(key))


ResponseT = TypeVar("ResponseT")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[ResponseT]):
    """For tests and scripts: a turn with the response its machine gave."""

    turn: Turn
    response: ResponseT | Parked
