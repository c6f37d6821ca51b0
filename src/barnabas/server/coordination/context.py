"""Shell: one loaded partition of a coordinator's topic (Kafka's CoordinatorContext): executes write operations.

                       decide            apply               append              committed
    request ──► operation ─────► records ───────► timeline ─────────► log ·····► waiting ──► response, append_callback
                                    │                 ▲                 │ append fails
                                    └─ no records:    └── rollback ◄────┘
                                       response at once

No method awaits, so each operation is atomic on the event loop. The runtime calls `on_committed`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from barnabas.core import work
from barnabas.core.clock import Clock
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import NO_PRODUCER_ID, TopicPartition
from barnabas.core.rng import Rng
from barnabas.core.telemetry import get_logger
from barnabas.server.coordination.operation import (
    DEFERRED,
    AppendCallback,
    ResponseFuture,
    ScheduleTimer,
    TimerKey,
    WriteOperation,
)
from barnabas.server.coordination.ports import LogRecord, Marker, PartitionWriter
from barnabas.server.coordination.shard import CoordinatorShard
from barnabas.server.coordination.timeline import Timeline
from barnabas.server.coordination.timers import Timers

S = TypeVar("S", bound=CoordinatorShard)

TIMER_RETRY_MS: Final = 500
"""The delay after which a timer with `retry` fires again if its records could not be written."""
APPEND_BYTES_MAX: Final = 512 * 1024
"""The size of one batch when the records of an operation need not be appended atomically."""

log = get_logger("barnabas.server.coordination")


class AsyncioResponseFuture(ResponseFuture):
    """A `ResponseFuture` that completes an asyncio future."""

    __slots__ = ("future",)

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self.future = future

    def complete(self, response: Any) -> None:
        if not self.future.done():  # the future is cancelled when the client closes its connection
            self.future.set_result(response)


class CoordinatorContext(Generic[S]):
    """A shard, its timeline, its timers, and the callbacks that wait for a commit."""

    def __init__(
        self,
        tp: TopicPartition,
        leader_epoch: int,
        shard: S,
        timeline: Timeline,
        writer: PartitionWriter,
        clock: Clock,
        rng: Rng,
        on_pending: Callable[[], None],
    ) -> None:
        """`on_pending` is called after each append whose records are not committed yet."""
        self.tp = tp
        self.leader_epoch = leader_epoch
        self.shard = shard
        self.timeline = timeline
        self.closed = False
        self.end_offset = 0
        self.loaded_offset = 0
        """The log end offset when the partition was loaded."""
        self.committed_offset = 0
        self.unknown_records = 0
        """The records of the log whose kind or version this version of Barnabas does not know."""
        self.watching_commits = False
        """Whether a task of the runtime waits for the high watermark of this partition."""
        self.waiting: deque[tuple[int, Callable[[ErrorCode], None]]] = deque()
        """Callbacks with the offset that must be committed first, in ascending order of offset."""
        self.timers = Timers(self._on_timer)
        self._on_pending = on_pending
        self._writer = writer
        self._clock = clock
        self._rng = rng

    @property
    def caught_up(self) -> bool:
        """Whether all loaded records are known to be committed. Until then an earlier coordinator may have returned
        newer committed state than this one would."""
        return self.committed_offset >= self.loaded_offset

    @property
    def pending(self) -> bool:
        """Whether a commit is awaited. Each record is awaited, whether or not a client waits for it: the committed view
        of the state has the record only then."""
        return self.end_offset > self.committed_offset

    # -- operations ----------------------------------------------------------------------------------------------

    def submit(self, decide: Callable[[S, WriteOperation], Any]) -> asyncio.Future[Any]:
        """Execute one operation. The returned future holds the response when it may be sent. Raises KafkaError if the
        decision or the append fails; the future raises it if the decision may still be rolled back."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        response_future = AsyncioResponseFuture(future)
        op = WriteOperation(self._clock.now_ms(), self._rng, response_future)
        mark = self.timeline.mark()
        try:
            response = decide(self.shard, op)
        except KafkaError as error:
            self.timeline.rollback(mark)
            if error.retriable or not op.wait_for_pending or self.end_offset <= self.committed_offset:
                raise
            code, detail = error.code, error.detail
            self._wait(self.end_offset, lambda failed: _fail(future, failed or code, detail))
            return future
        except BaseException:  # a bug in the shard: nothing of the operation may stay
            self.timeline.rollback(mark)
            raise
        offset = self._execute(op, mark)
        if response is DEFERRED:
            return future
        if offset is None or offset <= self.committed_offset:
            response_future.complete(response)
        else:
            self._wait(offset, lambda code: _settle(future, response, code))
        return future

    def run(self, act: Callable[[S, WriteOperation], None]) -> None:
        """Execute an operation that has no response. Raises KafkaError if its records cannot be appended."""
        op = WriteOperation(self._clock.now_ms(), self._rng)
        mark = self.timeline.mark()
        try:
            act(self.shard, op)
        except BaseException:  # a bug in the shard: nothing of the operation may stay
            self.timeline.rollback(mark)
            raise
        self._execute(op, mark)

    def append_marker(self, marker: Marker) -> asyncio.Future[None]:
        """Append a transaction marker. The returned future is done when the marker is committed. Raises KafkaError if
        the append fails."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        mark = self.timeline.mark()
        self._on_appended(self._writer.append_marker(self.tp, marker, self._clock.now_ms()))
        self.shard.apply_marker(marker.producer, committed=marker.committed)
        self._seal(mark)
        self._wait(self.end_offset, lambda code: _settle(future, None, code))
        return future

    def _execute(self, op: WriteOperation, mark: int) -> int | None:
        """Append the operation's records and set its timers. When an append fails, the state is rolled back to `mark`.

        Returns the offset that must be committed before the operation's own response is sent; None if the response need
        not wait for a commit.
        """
        for future, response in op.completed:
            assert isinstance(future, AsyncioResponseFuture)
            future.complete(response)
        if op.records:
            try:
                self._append(op, mark)
            except KafkaError as error:
                if op.append_callback is not None:
                    self._run_callback(op.append_callback, error.code)
                raise
        self._seal(mark)
        self._set_timers(op)
        if not op.records and not op.wait_for_pending and op.append_callback is None:
            return None
        callback = op.append_callback
        if callback is not None:
            self._wait(self.end_offset, lambda code: self._run_callback(callback, code))
        return self.end_offset

    def _seal(self, mark: int) -> None:
        """The changes since `mark` that have no record of their own become final with the records before them."""
        timeline = self.timeline
        if timeline.mark() != mark:
            timeline.seal(self.end_offset)
            timeline.commit(self.committed_offset)

    def _set_timers(self, op: WriteOperation) -> None:
        for timer in op.timers:
            if isinstance(timer, ScheduleTimer):
                self.timers.schedule(timer.key, timer.delay_ms, retry=timer.retry, if_absent=timer.if_absent)
            else:
                self.timers.cancel(timer.key)

    def _append(self, op: WriteOperation, mark: int) -> None:
        """Apply and append the records. When an append fails, the state is rolled back to `mark`, or to the end of the
        last batch that was appended."""
        shard = self.shard
        producer_id = op.producer.producer_id if op.producer else NO_PRODUCER_ID
        encoded = op.encoded
        # Applying and appending a record takes 6 microseconds, encoding it 5 more.
        work.count(len(op.records) // (4 if encoded is not None else 2))
        if encoded is None:
            encoded = [shard.log_format.encode(record) for record in op.records]
        assert len(encoded) == len(op.records)
        start = 0
        for end in _batch_ends(encoded, op.atomic):
            if op.replay_records:
                for i in range(start, end):
                    shard.apply(op.records[i], self.end_offset + i - start, producer_id)
            try:
                self._on_appended(self._writer.append(self.tp, encoded[start:end], op.now_ms, op.producer))
            except KafkaError:
                self.timeline.rollback(mark)
                raise
            start, mark = end, self.timeline.mark()

    def _on_appended(self, end_offset: int) -> None:
        self.end_offset = end_offset
        self.timeline.seal(end_offset)
        self.on_committed(self._writer.high_watermark(self.tp))
        if self.pending:
            self._on_pending()

    def _run_callback(self, callback: AppendCallback, code: ErrorCode) -> None:
        if self.closed:
            return
        try:
            self.run(lambda _, op: callback(op, code))
        except KafkaError as error:
            log.warning(
                "the records of an append callback could not be written", partition=self.tp, error=error.code.name
            )

    def _on_timer(self, key: TimerKey, retry: bool) -> None:
        try:
            self.run(lambda shard, op: shard.on_timer(op, key))
        except KafkaError as error:
            log.warning(
                "the records of a timer could not be written", partition=self.tp, timer=key, error=error.code.name
            )
            if retry and not self.closed:
                self.timers.schedule(key, TIMER_RETRY_MS, retry=True)

    # -- commits -------------------------------------------------------------------------------------------------

    def _wait(self, offset: int, done: Callable[[ErrorCode], None]) -> None:
        if offset <= self.committed_offset:
            done(ErrorCode.NONE)
            return
        self.waiting.append((offset, done))

    def on_committed(self, high_watermark: int) -> None:
        """The log is committed up to `high_watermark`: make the state changes final, and call the waiting callbacks."""
        if high_watermark <= self.committed_offset:
            return
        self.committed_offset = high_watermark
        self.timeline.commit(high_watermark)
        waiting = self.waiting
        while waiting and waiting[0][0] <= high_watermark:
            waiting.popleft()[1](ErrorCode.NONE)

    def close(self, code: ErrorCode) -> None:
        """Unload the partition: call all waiting callbacks with the error `code`, complete the pending responses, and
        cancel all timers."""
        if self.closed:
            return
        self.closed = True
        self.timers.clear()
        op = WriteOperation(self._clock.now_ms(), self._rng)
        self.shard.on_unloaded(op)
        for future, response in op.completed:
            assert isinstance(future, AsyncioResponseFuture)
            future.complete(response)
        while self.waiting:
            self.waiting.popleft()[1](code)


def _settle(future: asyncio.Future[Any], response: Any, code: ErrorCode) -> None:
    if future.done():
        return
    if code is ErrorCode.NONE:
        future.set_result(response)
    else:
        future.set_exception(KafkaError(code))


def _fail(future: asyncio.Future[Any], code: ErrorCode, detail: str | None) -> None:
    if not future.done():
        future.set_exception(KafkaError(code, detail))


def _batch_ends(records: Sequence[LogRecord], atomic: bool) -> list[int]:
    """The index after the last record of each batch. An atomic operation has one batch; otherwise a batch ends when
    its size exceeds APPEND_BYTES_MAX."""
    if atomic:
        return [len(records)]
    ends: list[int] = []
    size = 0
    for i, record in enumerate(records):
        size += len(record.key) + len(record.value or b"") + 16
        if size > APPEND_BYTES_MAX and i:
            ends.append(i)
            size = 0
    ends.append(len(records))
    return ends
