"""What a session need look at, and what it hears while it does not look."""

from __future__ import annotations

import asyncio
import math

from barnabas.core.errors import ErrorCode
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.purgatory import COMPLETE_NOW, Purgatory
from barnabas.server.replication.session_watch import SessionWatch
from tests.unit.server.replication.brokers import Cluster, in_virtual_time

SOON = 0.02


def test_what_is_settled_comes_back_with_its_next_change() -> None:
    changed: dict[str, None] = dict.fromkeys("abc")
    session, of_a, of_b = SessionWatch(changed), Purgatory(), Purgatory()
    heard: list[int] = []
    session.asking, session.heard_ms = 1, 7
    session.watch("a", of_a, heard.append)
    session.settle("a")
    session.watch("b", of_b)
    session.settle("b")
    assert list(changed) == ["c"]
    of_b.mark_changed()
    of_a.notify(10)
    of_a.mark_changed()
    assert (list(changed), heard) == (["c", "b", "a"], [7])  # in the order of events; told of the first change only


def test_a_mark_of_who_does_not_ask_goes_with_its_first_change() -> None:
    changed: dict[str, None] = {"a": None}
    session, of_a = SessionWatch(changed), Purgatory()
    session.watch("a", of_a)
    session.settle("a")
    of_a.notify(10)
    assert (list(changed), len(of_a)) == (["a"], 0)


def test_what_is_forgotten_or_closed_is_heard_of_no_more() -> None:
    changed: dict[str, None] = dict.fromkeys("ab")
    session, of_a, of_b = SessionWatch(changed), Purgatory(), Purgatory()
    session.watch("a", of_a)
    session.settle("a")
    session.watch("b", of_b)
    session.settle("b")
    session.forget("a")
    assert (len(of_a), len(of_b)) == (0, 1)
    session.close()
    session.watch("a", of_a)  # read by a request that outlived its session
    session.settle("a")
    of_a.mark_changed()
    of_b.mark_changed()
    assert (changed, len(of_a), len(of_b)) == ({}, 0, 0)


def test_another_replica_of_the_same_name_is_watched_anew() -> None:
    changed: dict[str, None] = {"a": None}
    session, first, second = SessionWatch(changed), Purgatory(), Purgatory()
    session.watch("a", first)
    session.settle("a")
    first.notify(COMPLETE_NOW)
    session.watch("a", second)
    session.settle("a")
    assert (len(first), len(second), changed) == (0, 1, {})


def test_bytes_count_from_the_beginning_of_the_pass() -> None:
    async def scenario() -> list[bool]:
        session, watch = SessionWatch(dict.fromkeys("a")), Purgatory()
        session.asking = 1
        session.watch("a", watch)
        session.settle("a")
        session.begin()
        watch.notify(60)  # while other partitions are read
        waiting = asyncio.ensure_future(session.wait(100, math.inf))
        seen = []
        for count in (39, 1):
            await asyncio.sleep(0)
            watch.notify(count)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            seen.append(waiting.done())
        session.begin()
        watch.notify(COMPLETE_NOW)
        await session.wait(1 << 40, math.inf)
        return seen

    assert asyncio.run(scenario()) == [False, True]


def test_news_without_bytes_shorten_the_wait() -> None:
    async def scenario() -> None:
        session, watch = SessionWatch(dict.fromkeys("a")), Purgatory()
        session.asking = 1
        session.watch("a", watch)
        session.settle("a")
        session.begin()
        watch.complete_within(SOON)
        await session.wait(1, math.inf)
        session.begin()
        waiting = asyncio.ensure_future(session.wait(1, math.inf))
        await asyncio.sleep(0)
        watch.complete_within(SOON)
        await waiting

    asyncio.run(scenario())


def test_partitions_at_rest_are_not_looked_at() -> None:
    """Five hundred of them, and one that is written to."""
    read: list[int] = []

    async def main(cluster: Cluster) -> None:
        cluster.create("t", [[1, 2]] * 500)
        await asyncio.sleep(5)
        leader = cluster.brokers[1]
        plain = Partition.read_by_follower

        def counted(self: Partition, *args: object, **kwargs: object) -> object:
            read.append(self.name.partition)
            return plain(self, *args, **kwargs)  # type: ignore[arg-type]

        Partition.read_by_follower = counted  # type: ignore[assignment]
        try:
            for _ in range(3):
                assert await leader.produce(b"x", index=7) is ErrorCode.NONE
            await asyncio.sleep(5)
        finally:
            Partition.read_by_follower = plain

    in_virtual_time(main, brokers=2)
    assert set(read) == {7}
    assert len(read) <= 12  # a record: it is sent, had, and the follower hears that it is committed


def test_a_follower_that_had_everything_is_not_late_when_there_is_more() -> None:
    """It was at rest for longer than replica.lag.time.max.ms, and asked all the time: its time begins with the record
    that it does not have. One that did not ask in that time is late at once."""

    async def main(cluster: Cluster) -> tuple[list[int], list[int]]:
        cluster.create("t", [[1, 2, 3]])
        leader = cluster.brokers[1]
        await cluster.until(lambda: all(len(b.partitions) for b in cluster.brokers.values()))
        assert await leader.produce(b"a") is ErrorCode.NONE
        await asyncio.sleep(10)
        cluster.cut.add(frozenset({1, 3}))
        await asyncio.sleep(0.8)  # it asked 0.8 to 1.3 s ago, and what it asked then waits for 0.5 s
        leader.append(b"b")
        leader.partition().shrink_isr()
        await asyncio.sleep(0.05)
        first = cluster.isr("t")
        await asyncio.sleep(0.9)
        leader.partition().shrink_isr()
        await asyncio.sleep(0.05)
        return first, cluster.isr("t")

    assert in_virtual_time(main) == ([1, 2, 3], [1, 2])
