"""Value: one write operation of a coordinator: its inputs, and the effects that the state machine wants.

The runtime passes a `WriteOperation` to a method of the coordinator's state machine (`CoordinatorShard`). The method
reads the time and the random number generator from the operation, and adds effects to it: records to append, responses
to earlier requests, timers. Afterwards the runtime executes the effects (Kafka's CoordinatorWriteEvent):

- Responses to earlier requests are sent at once.
- Records are applied to the state and appended to the log as one batch. If the append fails, the runtime undoes the
  applied records and ignores the timers.
- The return value of the method is the response to the operation's own request. It is sent when the records are
  committed. An operation without records is answered at once, so that a heartbeat never waits for a commit, unless
  `wait_for_pending` is set.
- `append_callback` runs in an operation of its own when the records are committed or could not be appended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import Struct, field

from barnabas.core.errors import ErrorCode
from barnabas.core.rng import Rng
from barnabas.server.coordination.ports import LogRecord, ProducerIdAndEpoch

TimerKey = tuple[str, ...]
"""Identifies a timer. The first element is the kind of timer, for example ("heartbeat", group_id, member_id)."""


class ResponseFuture:
    """The pending response to a request. A state machine that cannot answer a request yet keeps its `ResponseFuture`
    and completes it in a later operation. The runtime knows which connection waits for it."""

    __slots__ = ()


class _Deferred:
    def __repr__(self) -> str:
        return "DEFERRED"


DEFERRED: Final = _Deferred()
"""The return value of a method that kept the operation's `response_future` and completes it in a later operation."""

Deferred = _Deferred


class CoordinatorRecord(Struct, frozen=True):
    """A decoded record of a coordinator's log. Key and value are messages defined in a `records.py`."""

    key: Any
    value: Any | None
    version: int | None = None
    """The version in which `value` is written. None: the `write_version` of this kind of record."""


class ScheduleTimer(Struct, frozen=True):
    """Call `on_timer(key)` once, after `delay_ms`. Replaces a timer with the same key."""

    key: TimerKey
    delay_ms: int
    retry: bool = False
    """Whether the timer fires again after a short delay if the operation that it started could not be written."""
    if_absent: bool = False
    """Whether an existing timer with the same key stays as it is."""


class CancelTimer(Struct, frozen=True):
    """Cancel the timer with this key, if there is one."""

    key: TimerKey


AppendCallback = Callable[["WriteOperation", ErrorCode], None]


class WriteOperation(Struct):
    """The inputs of one operation, and the effects that the state machine has added so far."""

    now_ms: int
    rng: Rng
    response_future: ResponseFuture = field(default_factory=ResponseFuture)
    records: list[CoordinatorRecord] = field(default_factory=list)
    encoded: Sequence[LogRecord] | None = None
    """The bytes of `records`, if the caller has encoded them before the operation."""
    completed: list[tuple[ResponseFuture, Any]] = field(default_factory=list)
    """Responses to earlier requests."""
    timers: list[ScheduleTimer | CancelTimer] = field(default_factory=list)
    append_callback: AppendCallback | None = None
    """Called in a new operation with NONE when the records are committed, or with the error of the failed append."""
    replay_records: bool = True
    """False if the state machine has already changed its state: the runtime does not apply the records again."""
    producer: ProducerIdAndEpoch | None = None
    """Set for transactional offsets: the records take effect when the producer's commit marker is written."""
    atomic: bool = True
    """Whether all records are appended in one batch; False if several batches will do (expiry, clean-up)."""
    wait_for_pending: bool = False
    """True if an operation without records, or one that raises an error that ends the client's work, is answered only
    when all earlier records are committed."""

    def write(self, *records: CoordinatorRecord) -> None:
        self.records.extend(records)

    def complete(self, future: ResponseFuture, response: Any) -> None:
        self.completed.append((future, response))

    def schedule(self, key: TimerKey, delay_ms: int, *, retry: bool = False, if_absent: bool = False) -> None:
        self.timers.append(ScheduleTimer(key, delay_ms, retry, if_absent))

    def cancel(self, key: TimerKey) -> None:
        self.timers.append(CancelTimer(key))
