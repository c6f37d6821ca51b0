"""Shell: one loaded partition: runs turns of its shard and carries out what they want.

                    decide            apply               append              committed
    request ──► turn ──────► records ───────► timeline ─────────► writer ····► waiter ──► answer, `then`
                                │                 ▲                 │ refused
                                └─ none: answer   └── rollback ◄────┘
                                   at once

Nothing here awaits: every turn is atomic on the event loop. The owner (runtime) tells `on_committed`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from barnabas.core.clock import Clock
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import NO_PRODUCER_ID, TopicPartition
from barnabas.core.rng import Rng
from barnabas.core.telemetry import get_logger
from barnabas.server.coordination.ports import LogRecord, Marker, PartitionWriter
from barnabas.server.coordination.shard import Shard
from barnabas.server.coordination.timeline import Timeline
from barnabas.server.coordination.timers import Timers
from barnabas.server.coordination.turn import PARKED, AfterCommit, Arm, Ticket, TimerKey, Turn

S = TypeVar("S", bound=Shard)

TIMER_RETRY_MS: Final = 500
APPEND_BYTES_MAX: Final = 512 * 1024
"""Where a turn that need not be atomic is cut into batches."""

log = get_logger("barnabas.server.coordination")


class FutureTicket(Ticket):
    """A ticket with someone waiting for it."""

    __slots__ = ("future",)

    def __init__(self, future: asyncio.Future[Any]) -> None:
        super().__init__()
        self.future = future

    def answer(self, response: Any) -> None:
        if not self.future.done():  # the client may have gone: its request was cancelled
            self.future.set_result(response)


class ShardHost(Generic[S]):
    """A shard, its timeline, its timers, and the effects that wait for a commit."""

    def __init__(
        self,
        tp: TopicPartition,
        leader_epoch: int,
        shard: S,
        timeline: Timeline,
        writer: PartitionWriter,
        clock: Clock,
        rng: Rng,
    ) -> None:
        self.tp = tp
        self.leader_epoch = leader_epoch
        self.shard = shard
        self.timeline = timeline
        self.closed = False
        self.end_offset = 0
        self.loaded_offset = 0
        """Where the log ended when it was loaded."""
        self.committed_offset = 0
        self.followed = False
        """Somebody waits for commits on behalf of this host."""
        self.waiting: deque[tuple[int, Callable[[ErrorCode], None]]] = deque()
        self.timers = Timers(self._on_timer)
        self.on_pending: Callable[[], None] = lambda: None
        """Called when something begins to wait for a commit."""
        self._writer = writer
        self._clock = clock
        self._rng = rng

    @property
    def caught_up(self) -> bool:
        """All that was loaded is known to be committed: an earlier coordinator can have shown no more than this one."""
        return self.committed_offset >= self.loaded_offset

    @property
    def pending(self) -> bool:
        """Something is not committed yet that somebody, or the committed view, waits for."""
        return bool(self.waiting) or self.timeline.awaits_log or not self.caught_up

    # -- turns ---------------------------------------------------------------------------------------------------

    def submit(self, decide: Callable[[S, Turn], Any]) -> asyncio.Future[Any]:
        """Run one turn now. The future is done when the request may be answered. Raises KafkaError if refused."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        ticket = FutureTicket(future)
        turn = Turn(self._clock.now_ms(), self._rng, ticket)
        mark = self.timeline.mark()
        try:
            response = decide(self.shard, turn)
        except BaseException:
            self.timeline.rollback(mark)
            raise
        offset = self._carry_out(turn, mark)
        if response is PARKED:
            return future
        if offset is None or offset <= self.committed_offset:
            ticket.answer(response)
        else:
            self._wait(offset, lambda code: _settle(future, response, code))
        return future

    def run(self, act: Callable[[S, Turn], None]) -> None:
        """A turn that nobody waits for. Raises KafkaError when its records are refused."""
        turn = Turn(self._clock.now_ms(), self._rng)
        mark = self.timeline.mark()
        try:
            act(self.shard, turn)
        except BaseException:
            self.timeline.rollback(mark)
            raise
        self._carry_out(turn, mark)

    def append_marker(self, marker: Marker) -> asyncio.Future[None]:
        """Write the end of a transaction. Raises KafkaError if refused; the future is done when it is committed."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._written(self._writer.append_marker(self.tp, marker, self._clock.now_ms()))
        self.shard.apply_marker(marker.producer, committed=marker.committed)
        self.timeline.seal(self.end_offset)
        if self.end_offset <= self.committed_offset:
            self.timeline.commit(self.committed_offset)
            future.set_result(None)
        else:
            self._wait(self.end_offset, lambda code: _settle(future, None, code))
        return future

    def _carry_out(self, turn: Turn, mark: int) -> int | None:
        """Returns the offset that must be committed before the turn's request is answered; None: answer now."""
        for ticket, response in turn.answers:
            assert isinstance(ticket, FutureTicket)
            ticket.answer(response)
        if turn.records:
            try:
                self._append(turn, mark)
            except KafkaError as error:
                if turn.then is not None:
                    self._after(turn.then, error.code)
                raise
        self._set_timers(turn)
        if not turn.records and not turn.after_pending and turn.then is None:
            return None
        then = turn.then
        if then is not None:
            self._wait(self.end_offset, lambda code: self._after(then, code))
        return self.end_offset

    def _set_timers(self, turn: Turn) -> None:
        for timer in turn.timers:
            if isinstance(timer, Arm):
                self.timers.arm(timer.key, timer.delay_ms, retry=timer.retry, if_absent=timer.if_absent)
            else:
                self.timers.disarm(timer.key)

    def _append(self, turn: Turn, mark: int) -> None:
        """Apply and append; undo back to `mark`, or to the last batch that was taken, when one is refused."""
        shard = self.shard
        producer_id = turn.producer.producer_id if turn.producer else NO_PRODUCER_ID
        encoded = [shard.log_format.encode(record) for record in turn.records]
        start = 0
        for end in _cuts(encoded, turn.atomic):
            if turn.replay:
                for i in range(start, end):
                    shard.apply(turn.records[i], self.end_offset + i - start, producer_id)
            try:
                self._written(self._writer.append(self.tp, encoded[start:end], turn.now_ms, turn.producer))
            except KafkaError:
                self.timeline.rollback(mark)
                raise
            start, mark = end, self.timeline.mark()

    def _written(self, end_offset: int) -> None:
        self.end_offset = end_offset
        self.timeline.seal(end_offset)
        self.on_committed(self._writer.high_watermark(self.tp))

    def _after(self, then: AfterCommit, code: ErrorCode) -> None:
        if self.closed:
            return
        try:
            self.run(lambda _, turn: then(turn, code))
        except KafkaError as error:
            log.warning("a follow-up could not be written", partition=self.tp, error=error.code.name)

    def _on_timer(self, key: TimerKey, retry: bool) -> None:
        try:
            self.run(lambda shard, turn: shard.on_timer(turn, key))
        except KafkaError as error:
            log.warning("a timer's records could not be written", partition=self.tp, timer=key, error=error.code.name)
            if retry and not self.closed:
                self.timers.arm(key, TIMER_RETRY_MS, retry=True)

    # -- commits -------------------------------------------------------------------------------------------------

    def _wait(self, offset: int, done: Callable[[ErrorCode], None]) -> None:
        if offset <= self.committed_offset:
            done(ErrorCode.NONE)
            return
        self.waiting.append((offset, done))
        self.on_pending()

    def on_committed(self, high_watermark: int) -> None:
        """The log is committed up to here: make it final, and let go what waited for it."""
        if high_watermark <= self.committed_offset:
            return
        self.committed_offset = high_watermark
        self.timeline.commit(high_watermark)
        waiting = self.waiting
        while waiting and waiting[0][0] <= high_watermark:
            waiting.popleft()[1](ErrorCode.NONE)

    def close(self, code: ErrorCode) -> None:
        """The partition is lost: answer everything that waits with `code`, and forget the timers."""
        if self.closed:
            return
        self.closed = True
        self.timers.clear()
        turn = Turn(self._clock.now_ms(), self._rng)
        self.shard.on_unloaded(turn)
        for ticket, response in turn.answers:
            assert isinstance(ticket, FutureTicket)
            ticket.answer(response)
        while self.waiting:
            self.waiting.popleft()[1](code)


def _settle(future: asyncio.Future[Any], response: Any, code: ErrorCode) -> None:
    if future.done():
        return
    if code is ErrorCode.NONE:
        future.set_result(response)
    else:
        future.set_exception(KafkaError(code))


def _cuts(records: Sequence[LogRecord], atomic: bool) -> list[int]:
    """Where batches end: once, or every APPEND_BYTES_MAX."""
    if atomic:
        return [len(records)]
    cuts: list[int] = []
    size = 0
    for i, record in enumerate(records):
        size += len(record.key) + len(record.value or b"") + 16
        if size > APPEND_BYTES_MAX and i:
            cuts.append(i)
            size = 0
    cuts.append(len(records))
    return cuts
