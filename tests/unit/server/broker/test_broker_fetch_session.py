"""One fetch session: which partitions its next request reads, and by which changes a waiting request is completed.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
import math

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.fetch import PartitionData
from barnabas.server.broker.fetching.session import FetchSession, OnCaughtUp, RequestedPartition
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.purgatory import COMPLETE_NOW, Purgatory
from tests.unit.server.replication.brokers import Cluster, in_virtual_time

SOON = 0.02
A, B, C = ("t", 0), ("t", 1), ("t", 2)


def new_session(*keys: tuple[str, int]) -> FetchSession:
    requested = [(key, RequestedPartition(0, 1000)) for key in keys]
    return FetchSession(1, requested, 0, uses_topic_ids=False, privileged=False)


def read_to_end(
    session: FetchSession, key: tuple[str, int], purgatory: Purgatory, on_caught_up: OnCaughtUp | None = None
) -> None:
    session.on_read(key, session.partitions[key].requested, purgatory, on_caught_up, at_end=True)


def marked(session: FetchSession) -> list[tuple[object, int]]:
    return [key for key, _ in session.marked()]


def test_partition_read_to_its_end_is_marked_by_its_next_change() -> None:
    session, of_a, of_b = new_session(A, B, C), Purgatory(), Purgatory()
    caught_up_ms: list[int] = []
    session.requests_in_progress, session.last_request_ms = 1, 7
    read_to_end(session, A, of_a, caught_up_ms.append)
    read_to_end(session, B, of_b)
    assert marked(session) == [C]
    of_b.mark_changed()
    of_a.notify(10)
    of_a.mark_changed()
    assert (marked(session), caught_up_ms) == ([C, B, A], [7])  # in the order of the changes; recorded by the first one


def test_session_without_a_request_leaves_the_purgatory_with_the_first_change() -> None:
    session, of_a = new_session(A), Purgatory()
    read_to_end(session, A, of_a)
    of_a.notify(10)
    assert (marked(session), len(of_a)) == ([A], 0)


def test_forgotten_partition_and_closed_session_leave_the_purgatories() -> None:
    session, of_a, of_b = new_session(A, B), Purgatory(), Purgatory()
    read_to_end(session, A, of_a)
    read_to_end(session, B, of_b)
    session.update([], [A], 0)
    assert (len(of_a), len(of_b)) == (0, 1)
    session.close()
    read_to_end(session, B, of_b)  # by a request that is still in progress
    of_a.mark_changed()
    of_b.mark_changed()
    assert (marked(session), len(of_a), len(of_b)) == ([], 0, 0)


def test_a_response_that_a_quota_has_replaced_is_sent_again() -> None:
    session = new_session(A, B)
    data = PartitionData(partition_index=0, high_watermark=5, log_start_offset=2)
    for key in (A, B):
        read_to_end(session, key, Purgatory())
        assert session.must_send(key, data)
        assert not session.must_send(key, data), "the client knows the offsets"
    session.on_replaced([A, C])
    assert marked(session) == [A]
    assert session.must_send(A, data)
    assert not session.must_send(B, data)


def test_new_replica_of_a_partition_is_watched_in_place_of_the_old_one() -> None:
    session, first, second = new_session(A), Purgatory(), Purgatory()
    read_to_end(session, A, first)
    first.notify(COMPLETE_NOW)
    read_to_end(session, A, second)
    assert (len(first), len(second), marked(session)) == (0, 1, [])


def test_read_of_an_outdated_request_does_not_unmark_the_partition() -> None:
    session, of_a = new_session(A), Purgatory()
    outdated = session.partitions[A].requested
    session.update([(A, RequestedPartition(5, 1000))], [], 0)
    session.on_read(A, outdated, of_a, None, at_end=True)
    assert (marked(session), len(of_a)) == ([A], 0)


def test_bytes_count_from_the_beginning_of_the_pass() -> None:
    async def scenario() -> list[bool]:
        session, purgatory = new_session(A), Purgatory()
        session.requests_in_progress = 1
        read_to_end(session, A, purgatory)
        session.begin_pass()
        purgatory.notify(60)  # while other partitions are read
        waiting = asyncio.ensure_future(session.wait(100, math.inf))
        seen = []
        for count in (39, 1):
            await asyncio.sleep(0)
            purgatory.notify(count)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            seen.append(waiting.done())
        session.begin_pass()
        purgatory.notify(COMPLETE_NOW)
        await session.wait(1 << 40, math.inf)
        return seen

    assert asyncio.run(scenario()) == [False, True]


def test_change_without_bytes_shortens_the_wait() -> None:
    async def scenario() -> None:
        session, purgatory = new_session(A), Purgatory()
        session.requests_in_progress = 1
        read_to_end(session, A, purgatory)
        session.begin_pass()
        purgatory.complete_within(SOON)
        await session.wait(1, math.inf)
        session.begin_pass()
        waiting = asyncio.ensure_future(session.wait(1, math.inf))
        await asyncio.sleep(0)
        purgatory.complete_within(SOON)
        await waiting

    asyncio.run(scenario())


def test_partitions_without_changes_are_not_read() -> None:
    """Of 500 partitions one is written to."""
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
    assert len(read) <= 12  # for each record: the data, the next fetch offset, the new high watermark


def test_follower_at_the_end_of_the_log_is_not_late_after_an_append() -> None:
    """The follower's session did not read the partition for longer than replica.lag.time.max.ms but sent requests:
    the follower's lag begins with the append. A follower that sent no request in that time is late at once."""

    async def main(cluster: Cluster) -> tuple[list[int], list[int]]:
        cluster.create("t", [[1, 2, 3]])
        leader = cluster.brokers[1]
        await cluster.until(lambda: all(len(b.partitions) for b in cluster.brokers.values()))
        assert await leader.produce(b"a") is ErrorCode.NONE
        await asyncio.sleep(10)
        cluster.cut.add(frozenset({1, 3}))
        await asyncio.sleep(0.8)  # its last request is 0.8 to 1.3 s old; a request waits for at most 0.5 s
        leader.append(b"b")
        leader.partition().shrink_isr()
        await asyncio.sleep(0.05)
        first = cluster.isr("t")
        await asyncio.sleep(0.9)
        leader.partition().shrink_isr()
        await asyncio.sleep(0.05)
        return first, cluster.isr("t")

    assert in_virtual_time(main) == ([1, 2, 3], [1, 2])
