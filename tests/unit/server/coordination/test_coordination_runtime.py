"""`CoordinatorRuntime`: commits, failed appends, loading, lost leadership; with a state machine that adds numbers.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.server.coordination.operation import DEFERRED, CoordinatorRecord, ResponseFuture, TimerKey, WriteOperation
from barnabas.server.coordination.ports import LogRecord, Marker, ProducerIdAndEpoch
from barnabas.server.coordination.runtime import CoordinatorRuntime, RuntimeConfig
from barnabas.server.coordination.timeline import Timeline, TimelineMap
from tests.golden.coordination.stage import settle
from tests.unit.server.coordination.kit import LoopClock, MemoryWriter, check_committed_views, run_virtual, seeded

TP = TopicPartition("state", 0)


class Sums:
    """A state machine that keeps a sum for each key. A record has the new sum."""

    def __init__(self, timeline: Timeline) -> None:
        self.sums: TimelineMap[str, int] = TimelineMap(timeline)
        self.ended: list[tuple[int, bool]] = []
        self.pending: list[ResponseFuture] = []
        self.fired: list[TimerKey] = []
        self.loaded = False

    @property
    def log_format(self) -> Sums:
        return self

    def encode(self, record: CoordinatorRecord) -> LogRecord:
        return LogRecord(record.key.encode(), None if record.value is None else str(record.value).encode())

    def decode(self, record: LogRecord) -> CoordinatorRecord | None:
        return CoordinatorRecord(record.key.decode(), None if record.value is None else int(record.value))

    def apply(self, record: CoordinatorRecord, offset: int, producer_id: int) -> None:
        if record.value is None:
            self.sums.pop(record.key)
        else:
            self.sums[record.key] = record.value

    def apply_marker(self, producer: ProducerIdAndEpoch, *, committed: bool) -> None:
        self.ended.append((producer.producer_id, committed))

    def on_loaded(self, op: WriteOperation) -> None:
        self.loaded = True

    def on_timer(self, op: WriteOperation, key: TimerKey) -> None:
        self.fired.append(key)
        self.add(op, "fired", 1)

    def on_unloaded(self, op: WriteOperation) -> None:
        for future in self.pending:
            op.complete(future, "gone")

    def add(self, op: WriteOperation, key: str, amount: int) -> int:
        total = (self.sums.get(key) or 0) + amount
        op.write(CoordinatorRecord(key, total))
        return total


Scenario = Callable[[CoordinatorRuntime[Sums], MemoryWriter], Awaitable[None]]


def play(scenario: Scenario, writer: MemoryWriter | None = None) -> None:
    async def main() -> None:
        memory = writer or MemoryWriter()
        runtime = CoordinatorRuntime(
            RuntimeConfig("state", write_timeout_ms=5_000), memory, LoopClock(), seeded(), lambda _, t: Sums(t)
        )
        owner = asyncio.get_running_loop().create_task(runtime.run())
        await settle()
        try:
            await scenario(runtime, memory)
        finally:
            owner.cancel()
            await asyncio.gather(owner, return_exceptions=True)

    run_virtual(main())


async def elected(runtime: CoordinatorRuntime[Sums], epoch: int = 0) -> Sums:
    runtime.on_elected(0, epoch)
    await settle()
    return runtime.context(0).shard


async def code_of(awaitable: Awaitable[object]) -> ErrorCode:
    with pytest.raises(KafkaError) as refusal:
        await awaitable
    return refusal.value.code


def test_operations_see_uncommitted_state_and_reads_do_not() -> None:
    async def scenario(runtime: CoordinatorRuntime[Sums], writer: MemoryWriter) -> None:
        shard = await elected(runtime)
        writer.hold = True
        first = asyncio.ensure_future(runtime.write(0, lambda s, t: s.add(t, "a", 1)))
        second = asyncio.ensure_future(runtime.write(0, lambda s, t: s.add(t, "a", 2)))
        await settle()
        assert shard.sums.snapshot() == {"a": 3}
        assert runtime.read(0, lambda s: s.sums.committed()) == {}
        assert not first.done()

        writer.commit(TP, 1)
        await settle()
        assert (first.done(), second.done()) == (True, False)
        assert shard.sums.committed() == {"a": 1}
        writer.commit(TP)
        assert (await first, await second) == (1, 3)
        assert shard.sums.committed() == {"a": 3}

    play(scenario)


def test_failed_append_is_rolled_back() -> None:
    async def scenario(runtime: CoordinatorRuntime[Sums], writer: MemoryWriter) -> None:
        shard = await elected(runtime)
        await runtime.write(0, lambda s, t: s.add(t, "a", 1))
        writer.refusals = [ErrorCode.NOT_ENOUGH_REPLICAS]
        code = await code_of(runtime.write(0, lambda s, t: s.add(t, "a", 10)))
        assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert shard.sums.snapshot() == {"a": 1}
        assert await runtime.write(0, lambda s, t: s.add(t, "a", 1)) == 2

    play(scenario)


def test_exception_in_an_operation_rolls_back_its_changes() -> None:
    async def scenario(runtime: CoordinatorRuntime[Sums], writer: MemoryWriter) -> None:
        shard = await elected(runtime)

        def broken(s: Sums, op: WriteOperation) -> int:
            s.sums["a"] = 99
            raise KafkaError(ErrorCode.INVALID_REQUEST)

        assert await code_of(runtime.write(0, broken)) is ErrorCode.INVALID_REQUEST
        assert shard.sums.snapshot() == {}

    play(scenario)


def test_operation_without_records_is_answered_at_once() -> None:
    async def scenario(runtime: CoordinatorRuntime[Sums], writer: MemoryWriter) -> None:
        await elected(runtime)
        writer.hold = True
        pending = asyncio.ensure_future(runtime.write(0, lambda s, t: s.add(t, "a", 1)))
        await settle()
        assert await runtime.write(0, lambda s, t: "beat") == "beat"

        def newest(s: Sums, op: WriteOperation) -> int | None:
            op.wait_for_pending = True
            return s.sums.get("a")

        waits = asyncio.ensure_future(runtime.write(0, newest))
        await settle()
        assert not waits.done()
        writer.commit(TP)
        assert (await pending, await waits) == (1, 1)

    play(scenario)


def test_write_that_is_never_committed_times_out() -> None:
    async def scenario(runtime: CoordinatorRuntime[Sums], writer: MemoryWriter) -> None:
        await elected(runtime)
        writer.hold = True
        code = await code_of(runtime.write(0, lambda s, t: s.add(t, "a", 1)))
        assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert asyncio.get_running_loop().time() == pytest.approx(5.0)

    play(scenario)


def test_append_callback_runs_after_the_commit_or_the_failed_append() -> None:
    async def scenario(runtime: CoordinatorRuntime[Sums], writer: MemoryWriter) -> None:
        await elected(runtime)
        codes: list[ErrorCode] = []

        def decide(s: Sums, op: WriteOperation) -> int:
            op.append_callback = lambda _, code: codes.append(code)
            return s.add(op, "a", 1)

        writer.hold = True
        pending = asyncio.ensure_future(runtime.write(0, decide))
        await settle()
        assert codes == []
        writer.commit(TP)
        await pending
        writer.refusals = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert await code_of(runtime.write(0, decide)) is ErrorCode.NOT_COORDINATOR
        assert codes == [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]

    play(scenario)


def test_loading_replays_the_log_and_requests_fail_until_loaded() -> None:
    writer = MemoryWriter()

    async def first(runtime: CoordinatorRuntime[Sums], _: MemoryWriter) -> None:
        await elected(runtime)
        await runtime.write(0, lambda s, t: s.add(t, "a", 1))
        await runtime.write(0, lambda s, t: s.add(t, "b", 2))
        await runtime.end_transaction(0, Marker(ProducerIdAndEpoch(7, 0), 1, True))

    async def second(runtime: CoordinatorRuntime[Sums], _: MemoryWriter) -> None:
        assert await code_of(runtime.write(0, lambda s, t: 1)) is ErrorCode.NOT_COORDINATOR
        runtime.on_elected(0, 5)
        assert await code_of(runtime.write(0, lambda s, t: 1)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await settle()
        shard = runtime.context(0).shard
        assert shard.loaded
        assert shard.sums.snapshot() == shard.sums.committed() == {"a": 1, "b": 2}
        assert shard.ended == [(7, True)]
        runtime.on_elected(0, 4)  # an older leader epoch
        assert runtime.context(0).shard is shard
        runtime.on_resigned(0, 4)
        assert runtime.context(0).shard is shard
        runtime.on_resigned(0, 5)
        assert await code_of(runtime.write(0, lambda s, t: 1)) is ErrorCode.NOT_COORDINATOR

    play(first, writer)
    play(second, writer)


def test_records_loaded_above_the_high_watermark_are_read_after_their_commit() -> None:
    writer = MemoryWriter()

    async def first(runtime: CoordinatorRuntime[Sums], _: MemoryWriter) -> None:
        await elected(runtime)
        await runtime.write(0, lambda s, t: s.add(t, "a", 1))
        writer.hold = True
        asyncio.ensure_future(runtime.write(0, lambda s, t: s.add(t, "a", 1))).cancel()
        runtime.context(0).submit(lambda s, t: s.add(t, "a", 1))

    async def second(runtime: CoordinatorRuntime[Sums], _: MemoryWriter) -> None:
        shard = await elected(runtime)
        assert (shard.sums.snapshot(), shard.sums.committed()) == ({"a": 2}, {"a": 1})
        writer.commit(TP)
        await settle()
        assert shard.sums.committed() == {"a": 2}

    play(first, writer)
    play(second, writer)


def test_deposed_coordinator_fails_all_pending_requests() -> None:
    async def scenario(runtime: CoordinatorRuntime[Sums], writer: MemoryWriter) -> None:
        await elected(runtime)
        writer.hold = True
        pending = asyncio.ensure_future(runtime.write(0, lambda s, t: s.add(t, "a", 1)))

        def defer(s: Sums, op: WriteOperation) -> object:
            s.pending.append(op.response_future)
            return DEFERRED

        deferred: asyncio.Future[object] = asyncio.ensure_future(runtime.write(0, defer, may_defer=True))
        await settle()
        writer.depose(TP)
        assert await code_of(pending) is ErrorCode.NOT_COORDINATOR
        assert await deferred == "gone"
        assert await code_of(runtime.write(0, lambda s, t: 1)) is ErrorCode.NOT_COORDINATOR

    play(scenario)


def test_records_that_no_client_waits_for_reach_the_committed_view() -> None:
    async def scenario(runtime: CoordinatorRuntime[Sums], writer: MemoryWriter) -> None:
        shard = await elected(runtime)

        def later(s: Sums, op: WriteOperation) -> int:
            op.append_callback = lambda after, _: after.write(CoordinatorRecord("callback", 1))
            op.schedule(("x",), 1_000)
            return s.add(op, "request", 1)

        def silent(s: Sums, op: WriteOperation) -> None:
            s.add(op, "all", 1)

        writer.hold = True
        runtime.context(0).submit(later).cancel()
        runtime.run_on_all(silent)
        await asyncio.sleep(2)  # the timer of a second fires meanwhile
        assert shard.sums.committed() == {}
        for _ in range(2):  # the callback appends its record after the first commit
            writer.commit(TP)
            await settle()
        assert shard.sums.committed() == {"request": 1, "all": 1, "fired": 1, "callback": 1}
        check_committed_views(writer, runtime)

    play(scenario)


def test_changes_without_records_are_committed_with_the_records_before_them() -> None:
    async def scenario(runtime: CoordinatorRuntime[Sums], writer: MemoryWriter) -> None:
        shard = await elected(runtime)

        def note(s: Sums, op: WriteOperation) -> None:
            s.sums["noted"] = len(s.sums)

        def silent(s: Sums, op: WriteOperation) -> None:
            s.add(op, "a", 1)

        await runtime.write(0, note)
        assert shard.sums.committed() == {"noted": 0}
        writer.hold = True
        runtime.run_on_all(silent)
        await runtime.write(0, note)
        assert shard.sums.committed() == {"noted": 0}
        writer.commit(TP)
        await settle()
        assert shard.sums.committed() == {"noted": 2, "a": 1}

    play(scenario)


def test_timers_fire_once_can_be_postponed_and_retry() -> None:
    async def scenario(runtime: CoordinatorRuntime[Sums], writer: MemoryWriter) -> None:
        shard = await elected(runtime)
        await runtime.write(0, lambda s, t: t.schedule(("x",), 1_000))
        await asyncio.sleep(0.9)
        await runtime.write(0, lambda s, t: t.schedule(("x",), 1_000))
        await asyncio.sleep(0.9)
        assert shard.fired == []
        await asyncio.sleep(0.2)
        assert shard.fired == [("x",)]

        await runtime.write(0, lambda s, t: t.schedule(("y",), 10_000))
        await runtime.write(0, lambda s, t: t.schedule(("y",), 100))  # sooner
        await runtime.write(0, lambda s, t: t.schedule(("y",), 100_000, if_absent=True))
        await asyncio.sleep(0.2)
        assert shard.fired == [("x",), ("y",)]

        await runtime.write(0, lambda s, t: t.schedule(("z",), 100))
        await runtime.write(0, lambda s, t: t.cancel(("z",)))
        writer.refusals = [ErrorCode.NOT_ENOUGH_REPLICAS]
        await runtime.write(0, lambda s, t: t.schedule(("w",), 100, retry=True))
        await asyncio.sleep(5)
        assert shard.fired == [("x",), ("y",), ("w",), ("w",)]
        assert shard.sums.snapshot() == {"fired": 3}

    play(scenario)


def test_large_operations_that_are_not_atomic_are_split_into_batches() -> None:
    async def scenario(runtime: CoordinatorRuntime[Sums], writer: MemoryWriter) -> None:
        shard = await elected(runtime)

        def many(s: Sums, op: WriteOperation) -> int:
            op.atomic = False
            for i in range(30_000):
                op.write(CoordinatorRecord(f"key-{i:030d}", i))
            return 0

        await runtime.write(0, many)
        assert len(shard.sums) == 30_000
        assert 2 <= len(writer[TP].log) <= 10
        before = shard.sums.snapshot()

        def more(s: Sums, op: WriteOperation) -> int:
            op.atomic = False
            for i in range(30_000):
                op.write(CoordinatorRecord(f"key-{i:030d}", -1))
            return 0

        batches = len(writer[TP].log)
        writer.refusals = [ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS]
        assert await code_of(runtime.write(0, more)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert len(writer[TP].log) == batches + 1
        changed = sum(1 for key, value in shard.sums.items() if value != before[key])
        assert 0 < changed < 30_000, "appended batches stay, the failed batch is rolled back"

    play(scenario)
