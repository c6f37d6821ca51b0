"""Value: one turn of a coordinator machine: what it was told, and what it wants done.

A machine is handed a `Turn` with the time and collects its effects there: records to append, parked requests to
answer, timers to arm. The runtime carries them out:

- answers to parked requests leave at once;
- records are applied and appended as one batch; when the append is refused they are undone, and so are the timers;
- the machine's return value answers the request of this turn when its records are committed; a turn without
  records answers at once (a heartbeat never waits behind a commit), unless it asks for `after_pending`;
- `then` runs in a turn of its own when the records are committed, or have been refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct, field

from barnabas.core.errors import ErrorCode
from barnabas.core.rng import Rng
from barnabas.server.coordination.ports import Producer

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


class StateRecord(Struct, frozen=True):
    """A record of a coordinator's log, decoded: messages as defined in the room's `records.py`."""

    key: Any
    value: Any | None
    version: int | None = None
    """The version in which `value` is written; None: the one this kind of record is usually written in."""


class Arm(Struct, frozen=True):
    """Call `on_timer(key)` once, `delay_ms` from now; replaces a timer of the same key."""

    key: TimerKey
    delay_ms: int
    retry: bool = False
    """Fire again a little later when what the machine wanted could not be written."""
    if_absent: bool = False
    """Leave a timer of the same key as it is."""


class Disarm(Struct, frozen=True):
    key: TimerKey


AfterCommit = Callable[["Turn", ErrorCode], None]


class Turn(Struct):
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

    def arm(self, key: TimerKey, delay_ms: int, *, retry: bool = False, if_absent: bool = False) -> None:
        self.timers.append(Arm(key, delay_ms, retry, if_absent))

    def disarm(self, key: TimerKey) -> None:
        self.timers.append(Disarm(key))
