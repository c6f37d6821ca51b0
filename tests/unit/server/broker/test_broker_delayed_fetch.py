"""Waiting Fetch requests: which changes complete them, and what remains of a session that ends.

Sleeps take virtual time: one of 200 s takes no real time.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast
from uuid import UUID

import pytest
from msgspec.structs import replace

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.server.broker.fetching import delayed_fetch
from barnabas.server.broker.fetching.reads import FetchRead, read_for_consumer
from barnabas.server.broker.fetching.session import RequestedPartition
from barnabas.server.broker.fetching.session_cache import FetchContext
from barnabas.server.replication.partition import Isolation, Partition
from barnabas.server.storage.reading import LogReadPlan
from barnabas.server.tiering.reading.partition_reader import RemoteRange
from tests.unit.server.replication.brokers import Broker, Cluster, in_virtual_time

VERSION = 12  # topics by name
WAIT_MS = 5_000
AT_ONCE_S = 0.2
"""A record is appended after half of this time."""


def request(session: tuple[int, int], offset: int | None = None, **fields: Any) -> FetchRequest:
    """A request for partition 0 of `t`; with offset None a request of the session that changes no partition."""
    partitions = [FetchPartition(partition=0, fetch_offset=offset or 0, partition_max_bytes=1 << 20)]
    topics = [] if offset is None else [FetchTopic(topic="t", partitions=partitions)]
    options: dict[str, Any] = {"max_wait_ms": WAIT_MS, "min_bytes": 1, "max_bytes": 1 << 20, **fields}
    return FetchRequest(session_id=session[0], session_epoch=session[1], topics=topics, **options)


async def serve(broker: Broker, request: FetchRequest) -> FetchResponse:
    return cast("FetchResponse", await broker.serve(request, VERSION))


async def ready(cluster: Cluster, replicas: list[int] | None = None) -> Broker:
    """The leader of a topic with one record, which all replicas have."""
    replicas = replicas or [1, 2]
    cluster.create("t", [replicas])
    await cluster.until(lambda: all(len(b.partitions) for b in cluster.brokers.values()))
    leader = cluster.brokers[1]
    assert await leader.produce(b"a") is ErrorCode.NONE
    await asyncio.sleep(2)
    return leader


async def seconds_until_response(cluster: Cluster, leader: Broker, waiting: FetchRequest) -> float:
    """Append a record of 5,000 bytes while the request waits; the seconds until the response."""
    began = cluster.loop.time()
    task = asyncio.ensure_future(serve(leader, waiting))
    await asyncio.sleep(AT_ONCE_S / 2)
    leader.append(b"x" * 5_000)
    await task
    return cluster.loop.time() - began


def test_append_completes_the_fetch_of_a_consumer_with_a_rack() -> None:
    """A request of such a session reads all partitions, and waits for changes of them."""

    async def main(cluster: Cluster) -> float:
        leader = await ready(cluster)
        first = await serve(leader, request((0, 0), 1, max_wait_ms=0, rack_id="left"))
        return await seconds_until_response(cluster, leader, request((first.session_id, 1), rack_id="left"))

    assert in_virtual_time(main, brokers=2) < AT_ONCE_S


@pytest.mark.parametrize("with_session", [False, True])
@pytest.mark.parametrize("from_disk", [False, True])
def test_append_completes_a_fetch_that_waits_for_more_bytes(
    with_session: bool, from_disk: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition that was not read to its end is watched too, whether its records were in memory or on disk."""

    async def read_later(self: Partition, read: Any, executor: object) -> Any:
        await asyncio.sleep(0.001)
        return replace(read, data=read.pending.run().data, pending=None)

    if from_disk:
        monkeypatch.setattr(Partition, "read_from_disk", read_later)
        monkeypatch.setattr(LogReadPlan, "try_run", lambda self: None)

    async def main(cluster: Cluster) -> float:
        leader = await ready(cluster)
        if not with_session:
            return await seconds_until_response(cluster, leader, request((0, -1), 0, min_bytes=1_000))
        first = await serve(leader, request((0, 0), 0, max_wait_ms=0))
        return await seconds_until_response(cluster, leader, request((first.session_id, 1), min_bytes=1_000))

    assert in_virtual_time(main, brokers=2) < AT_ONCE_S


def test_append_completes_the_fetch_of_a_follower_that_is_about_to_join_the_isr() -> None:
    """The high watermark waits for the follower already; the leader cannot connect to the controller."""

    async def main(cluster: Cluster) -> list[float]:
        leader = await ready(cluster)
        cluster.cut.add(frozenset({1, 2}))
        await asyncio.sleep(3)
        leader.append(b"b", acks=1)
        await cluster.until(lambda: cluster.isr("t") == [1])
        await asyncio.sleep(1)
        cluster.cut.clear()
        cluster.cut.add(frozenset({0, 1}))
        await asyncio.sleep(8)
        times = []
        for _ in range(6):
            await asyncio.sleep(0.137)
            began = cluster.loop.time()
            assert await leader.produce(b"c", timeout_s=5) is ErrorCode.NONE
            times.append(cluster.loop.time() - began)
        return times

    assert max(in_virtual_time(main, brokers=2)) < 0.05


def test_closing_a_session_completes_its_request() -> None:
    async def main(cluster: Cluster) -> float:
        leader = await ready(cluster)
        first = await serve(leader, request((0, 0), 1, max_wait_ms=0))
        began = cluster.loop.time()
        waiting = asyncio.ensure_future(serve(leader, request((first.session_id, 1))))
        await asyncio.sleep(AT_ONCE_S / 2)
        await serve(leader, request((first.session_id, -1), 1, max_wait_ms=0))
        await waiting
        return cluster.loop.time() - began

    assert in_virtual_time(main, brokers=2) < AT_ONCE_S


def test_follower_whose_session_is_evicted_was_in_sync_until_then() -> None:
    """The next record does not make the follower late, although its session did not read the partition for 200 s."""

    async def main(cluster: Cluster) -> tuple[list[int], bool]:
        leader = await ready(cluster)
        sessions = leader.port.fetch_sessions
        sessions._slots = 1
        await asyncio.sleep(200)
        larger = [((UUID(int=n), 0), RequestedPartition(0, 1)) for n in range(9)]
        context = sessions.open(0, 0, larger, [], leader.clock.now_ms(), uses_topic_ids=True, privileged=True)
        assert isinstance(context, FetchContext)
        evicting_session_id, _ = context.finish([], leader.clock.now_ms())
        leader.append(b"b", acks=1)
        leader.partition().shrink_isr()
        await asyncio.sleep(0.05)
        return cluster.isr("t"), evicting_session_id > 0

    assert in_virtual_time(main, brokers=2) == ([1, 2], True)


@pytest.mark.parametrize("silent", [2, 3])
def test_of_two_equal_replicas_the_one_that_fetched_last_is_preferred(silent: int) -> None:
    async def main(cluster: Cluster) -> int | None:
        leader = await ready(cluster, [1, 2, 3])
        cluster.brokers[silent].kill()
        await asyncio.sleep(5)
        return leader.partition().preferred_read_replica(0, frozenset({2, 3}))

    assert in_virtual_time(main) == 5 - silent


def test_change_of_isolation_level_reads_all_partitions_again() -> None:
    async def main(cluster: Cluster) -> list[int]:
        leader = await ready(cluster)
        leader.append(b"x", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        await asyncio.sleep(1)
        first = await serve(leader, request((0, 0), 1, max_wait_ms=0, isolation_level=Isolation.READ_COMMITTED))
        sizes = []
        for epoch, level in enumerate((Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED), 1):
            answer = await serve(leader, request((first.session_id, epoch), max_wait_ms=0, isolation_level=level))
            sizes.append(sum(len(cast("bytes", p.records)) for t in answer.responses for p in t.partitions))
        return sizes

    committed, uncommitted = in_virtual_time(main, brokers=2)
    assert committed == 0 < uncommitted


def test_sessions_of_disconnected_consumers_leave_the_purgatory_with_the_first_append() -> None:
    async def main(cluster: Cluster) -> tuple[int, int]:
        leader = await ready(cluster)
        for _ in range(50):
            first = await serve(leader, request((0, 0), 1, max_wait_ms=0))
            await serve(leader, request((first.session_id, 1), max_wait_ms=0))
        readers = leader.partition().consumer_fetches
        before = len(readers)
        await leader.produce(b"x")
        return before, len(readers)

    assert in_virtual_time(main, brokers=2) == (50, 0)


def test_a_failed_read_of_the_object_store_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    remote = RemoteRange(offset=0, upper_offset=1, max_bytes=1_000, min_one_batch=True, with_aborted=False)

    def read_below_the_local_log(*args: Any, **options: Any) -> FetchRead:
        found = read_for_consumer(*args, **options)
        return found._replace(read=replace(found.read, data=b"", remote=remote))

    async def fail(self: Partition, read: Any) -> Any:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    monkeypatch.setattr(delayed_fetch, "read_for_consumer", read_below_the_local_log)
    monkeypatch.setattr(Partition, "is_remote_throttled", False)
    monkeypatch.setattr(Partition, "read_remote", fail)

    async def main(cluster: Cluster) -> tuple[int, int, int]:
        leader = await ready(cluster, [1])
        (partition,) = leader.partitions
        traffic = partition.traffic
        before = traffic.reads, traffic.failed_reads
        response = await serve(leader, request((0, -1), 0, max_wait_ms=0))
        error = response.responses[0].partitions[0].error_code
        return error, traffic.reads - before[0], traffic.failed_reads - before[1]

    assert in_virtual_time(main, brokers=1) == (ErrorCode.KAFKA_STORAGE_ERROR, 1, 1)
