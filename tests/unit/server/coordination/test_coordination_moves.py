"""`CoordinatorRuntime` while leadership moves between nodes and epochs."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.server.coordination.ports import Marker, ProducerIdAndEpoch
from barnabas.server.coordination.runtime import CoordinatorRuntime
from tests.golden.coordination.stage import settle
from tests.unit.server.coordination.kit import MemoryWriter
from tests.unit.server.coordination.test_coordination_runtime import TP, Sums, code_of, elected, play


def with_an_uncommitted_tail() -> MemoryWriter:
    """A log with the record a: 1 below and the record a: 2 above the high watermark."""
    writer = MemoryWriter()

    async def first(runtime: CoordinatorRuntime[Sums], _: MemoryWriter) -> None:
        await elected(runtime)
        await runtime.write(0, lambda s, t: s.add(t, "a", 1))
        writer.hold = True
        runtime.context(0).submit(lambda s, t: s.add(t, "a", 1))

    play(first, writer)
    return writer


def test_read_before_loaded_records_are_committed_returns_load_in_progress() -> None:
    writer = with_an_uncommitted_tail()

    async def scenario(runtime: CoordinatorRuntime[Sums], _: MemoryWriter) -> None:
        await elected(runtime)

        def looked(s: Sums) -> dict[str, int]:
            return s.sums.committed()

        async def look() -> dict[str, int]:
            return runtime.read(0, looked)

        assert runtime.is_loading
        assert await code_of(look()) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await runtime.write(0, lambda s, t: "beat") == "beat"
        newest = asyncio.ensure_future(runtime.write(0, lambda s, t: s.add(t, "a", 1)))
        await settle()
        assert not newest.done()
        writer.commit(TP, 2)
        await settle()
        assert await look() == {"a": 2}
        writer.commit(TP)
        assert await newest == 3

    play(scenario, writer)


def test_election_during_loading_restarts_with_the_new_leader_epoch() -> None:
    writer = with_an_uncommitted_tail()
    writer.commit(TP)
    writer.hold = False

    async def scenario(runtime: CoordinatorRuntime[Sums], _: MemoryWriter) -> None:
        runtime.on_elected(0, 1)
        runtime.on_elected(0, 3)
        runtime.on_resigned(0, 2)  # a delayed notification for an earlier leader epoch
        await settle()
        assert runtime.context(0).leader_epoch == 3
        assert await runtime.write(0, lambda s, t: s.add(t, "a", 1)) == 3

        runtime.on_elected(0, 5)
        runtime.on_resigned(0, 6)
        await settle()
        assert await code_of(runtime.write(0, lambda s, t: 1)) is ErrorCode.NOT_COORDINATOR

        runtime.on_elected(0, 7)
        assert await code_of(runtime.write(0, lambda s, t: 1)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await settle()
        assert await runtime.write(0, lambda s, t: s.add(t, "a", 1)) == 4

    play(scenario, writer)


def test_new_leadership_watches_commits_while_the_old_one_still_waits() -> None:
    writer = with_an_uncommitted_tail()

    async def scenario(runtime: CoordinatorRuntime[Sums], _: MemoryWriter) -> None:
        await elected(runtime, 1)  # waits for the commit of a: 2
        await elected(runtime, 2)  # also waits for the commit of a: 2, without any write of its own
        writer.commit(TP)
        await settle()
        assert runtime.context(0).shard.sums.committed() == {"a": 2}

    play(scenario, writer)


def test_pending_write_of_a_deposed_coordinator_returns_not_coordinator() -> None:
    writer = MemoryWriter()

    async def scenario(runtime: CoordinatorRuntime[Sums], _: MemoryWriter) -> None:
        await elected(runtime, 1)
        writer.hold = True
        pending = asyncio.ensure_future(runtime.write(0, lambda s, t: s.add(t, "a", 1)))
        await settle()
        runtime.on_elected(0, 2)
        assert await code_of(pending) is ErrorCode.NOT_COORDINATOR
        await settle()
        writer.commit(TP)
        await settle()
        assert runtime.context(0).shard.sums.committed() == {"a": 1}, "it may come true all the same"

    play(scenario, writer)


def test_marker_for_an_unloaded_partition_returns_not_leader_or_follower() -> None:
    writer = MemoryWriter()
    marker = Marker(ProducerIdAndEpoch(7, 0), 1, True)

    async def scenario(runtime: CoordinatorRuntime[Sums], _: MemoryWriter) -> None:
        assert await code_of(runtime.end_transaction(0, marker)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        runtime.on_elected(0, 1)
        assert await code_of(runtime.end_transaction(0, marker)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await settle()
        writer.hold = True
        loop = asyncio.get_running_loop()
        started = loop.time()
        late = runtime.end_transaction(0, marker, started + 3)
        assert await code_of(late) is ErrorCode.REQUEST_TIMED_OUT
        assert loop.time() - started == pytest.approx(3.0)
        deposed = asyncio.ensure_future(runtime.end_transaction(0, marker, loop.time() + 3))
        await settle()
        runtime.on_resigned(0, 2)
        assert await code_of(deposed) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    play(scenario, writer)


def test_election_after_shutdown_is_ignored() -> None:
    async def scenario(runtime: CoordinatorRuntime[Sums], _: MemoryWriter) -> None:
        kept.append(runtime)

    kept: list[CoordinatorRuntime[Sums]] = []
    play(scenario)
    kept[0].on_elected(0, 1)
    assert not kept[0]._loading
    assert not kept[0]._active
    kept[0].on_resigned(0, 2)
