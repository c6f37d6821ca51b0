"""Brokers that copy from each other: real partitions, fetchers, handlers and logs, in virtual time.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
from typing import cast

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from barnabas.protocol.wire.messages.fetch import FetchRequest
from tests.unit.server.replication.brokers import Cluster, in_virtual_time

ALL = [1, 2, 3]


def test_followers_replicate_and_acknowledge() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.create("t", [ALL])
        await cluster.until(lambda: all(len(b.partitions) for b in cluster.brokers.values()))
        leader = cluster.brokers[1]
        assert await leader.produce(b"a", b"b") is ErrorCode.NONE
        assert await leader.produce(b"c") is ErrorCode.NONE
        for broker in cluster.brokers.values():
            assert broker.values() == [b"a", b"b", b"c"]
        await cluster.until(lambda: all(b.values(committed=True) == [b"a", b"b", b"c"] for b in _all(cluster)), 0.2)

    in_virtual_time(main)


def test_idle_fetch_session_sends_no_partitions() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.create("t", [[1, 2]] * 5)
        await asyncio.sleep(3)
        fetches = [request for request in cluster.brokers[1].fetches if isinstance(request, FetchRequest)]
        assert sum(len(topic.partitions) for topic in fetches[0].topics) == 5
        assert [request.topics for request in fetches[1:]] == [[]] * (len(fetches) - 1)
        assert 4 <= len(fetches) <= 8  # one in replica.fetch.wait.max.ms

    in_virtual_time(main, brokers=2)


def test_lagging_follower_leaves_and_rejoins_the_isr() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.create("t", [ALL])
        await cluster.until(lambda: all(len(b.partitions) for b in cluster.brokers.values()))
        leader = cluster.brokers[1]
        cluster.cut.add(frozenset({1, 3}))
        began = cluster.loop.time()
        assert await leader.produce(b"a") is ErrorCode.NONE
        assert cluster.isr("t") == [1, 2]
        assert 1.0 <= cluster.loop.time() - began <= 2.5  # replica.lag.time.max.ms, looked at every half of it
        assert await leader.produce(b"b") is ErrorCode.NONE
        cluster.cut.clear()
        await cluster.until(lambda: cluster.isr("t") == ALL)
        assert cluster.brokers[3].values() == [b"a", b"b"]

    in_virtual_time(main)


def test_isr_proposal_is_sent_again_until_the_controller_answers() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.create("t", [ALL])
        await cluster.until(lambda: all(len(b.partitions) for b in cluster.brokers.values()))
        leader = cluster.brokers[1]
        cluster.cut |= {frozenset({1, 3}), frozenset({1, 0})}
        end = leader.append(b"a")
        await asyncio.sleep(5)
        assert cluster.isr("t") == ALL
        assert leader.partition().try_committed(end) is None
        cluster.cut.remove(frozenset({1, 0}))
        assert await leader.partition().wait_committed(end, cluster.loop.time() + 3) is ErrorCode.NONE
        assert cluster.isr("t") == [1, 2]

    in_virtual_time(main)


def test_former_leader_truncates_unreplicated_records() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.create("t", [ALL], min_insync_replicas="1")
        await cluster.until(lambda: all(len(b.partitions) for b in cluster.brokers.values()))
        first, second = cluster.brokers[1], cluster.brokers[2]
        assert await first.produce(b"a") is ErrorCode.NONE
        cluster.cut |= {frozenset({1, n}) for n in (0, 2, 3)}
        lost = first.append(b"lost")
        waiting = asyncio.ensure_future(first.partition().wait_committed(lost, cluster.loop.time() + 60))
        cluster.fence(1)
        await cluster.until(lambda: second.partition().is_leader)
        assert await second.produce(b"b", b"c") is ErrorCode.NONE
        cluster.cut.clear()
        first.kill()
        first.start()
        await cluster.until(lambda: cluster.isr("t") == ALL)
        assert not waiting.done()
        waiting.cancel()
        assert [broker.values() for broker in _all(cluster)] == [[b"a", b"b", b"c"]] * 3

    in_virtual_time(main)


def test_leader_follows_the_next_leader_after_an_image() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.create("t", [ALL])
        await cluster.until(lambda: all(len(b.partitions) for b in cluster.brokers.values()))
        first, second = cluster.brokers[1], cluster.brokers[2]
        cluster.cut |= {frozenset({1, 2}), frozenset({1, 3})}
        end = first.append(b"not enough have it")
        cluster.fence(1)
        assert await first.partition().wait_committed(end, cluster.loop.time() + 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await cluster.until(lambda: second.partition().is_leader)
        assert await second.produce(b"b") is ErrorCode.NONE
        cluster.cut.clear()
        await cluster.until(lambda: first.values() == [b"b"])

    in_virtual_time(main)


def test_follower_below_the_leader_log_start_restarts_its_log() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.create("t", [[1, 2]])
        await cluster.until(lambda: all(len(b.partitions) for b in cluster.brokers.values()))
        leader, follower = cluster.brokers[1], cluster.brokers[2]
        assert await leader.produce(b"a") is ErrorCode.NONE
        follower.kill()
        cluster.fence(2)
        await cluster.until(lambda: cluster.isr("t") == [1])
        for value in (b"b", b"c", b"d"):
            assert await leader.produce(value) is ErrorCode.NONE
        log = leader.partition().log
        assert log is not None
        log.roll(0)
        leader.partition().delete_records(3, 0)
        follower.start()
        await cluster.until(lambda: cluster.isr("t") == [1, 2])
        copied = follower.partition().log
        assert copied is not None
        assert (copied.log_start_offset, copied.log_end_offset) == (3, 4)
        assert follower.values() == [b"d"]

    in_virtual_time(main, brokers=2)


def test_delete_records_waits_for_all_active_replicas() -> None:
    async def delete(cluster: Cluster, offset: int, timeout_ms: int) -> tuple[int, int]:
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
            ],
            timeout_ms=timeout_ms,
        )
        leader = cluster.brokers[1]
        task = leader.process.spawn(cluster.loop, leader.serve(request, 2))
        answer = cast("DeleteRecordsResponse", await task).topics[0].partitions[0]
        return answer.error_code, answer.low_watermark

    async def main(cluster: Cluster) -> None:
        cluster.create("t", [[1, 2]], retention_ms="-1")
        await cluster.until(lambda: all(len(b.partitions) for b in cluster.brokers.values()))
        leader, follower = cluster.brokers[1], cluster.brokers[2]
        for value in (b"a", b"b", b"c", b"d"):
            assert await leader.produce(value) is ErrorCode.NONE
        began = cluster.loop.time()
        assert await delete(cluster, 1, 30_000) == (0, 1)
        assert cluster.loop.time() - began < 0.2
        assert follower.values() == [b"b", b"c", b"d"]
        cluster.cut.add(frozenset({1, 2}))
        assert await delete(cluster, 2, 700) == (ErrorCode.REQUEST_TIMED_OUT, 1)
        cluster.fence(2)  # it is not waited for any more
        assert await delete(cluster, -1, 30_000) == (0, 4)
        follower.heartbeat()
        cluster.cut.clear()
        await cluster.until(lambda: follower.values() == [])

    in_virtual_time(main, brokers=2)


def test_fetch_of_a_previous_process_is_rejected() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.create("t", [[1, 2]])
        await cluster.until(lambda: all(len(b.partitions) for b in cluster.brokers.values()))
        leader, follower = cluster.brokers[1], cluster.brokers[2]
        await leader.produce(b"a")
        follower.epoch -= 1
        await asyncio.sleep(1)  # the fetch that was sent before is answered
        assert await leader.produce(b"b") is ErrorCode.NONE
        assert cluster.isr("t") == [1]
        assert follower.values() == [b"a"]
        follower.epoch += 1
        await cluster.until(lambda: cluster.isr("t") == [1, 2])

    in_virtual_time(main, brokers=2)


def test_corrupt_records_stop_only_their_partition() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.create("bad", [[1, 2]])
        cluster.create("good", [[1, 2]])
        await cluster.until(lambda: all(len(b.partitions) == 2 for b in cluster.brokers.values()))
        leader, follower = cluster.brokers[1], cluster.brokers[2]
        await leader.produce(b"a", topic="bad")
        damaged = leader.partition("bad").log
        assert damaged is not None
        leader.disk.data(f"{damaged.path}/00000000000000000000.log")[-1] ^= 1
        follower.kill()
        follower.disk = type(follower.disk)()
        follower.disk.mount().mkdir("/data")
        follower.start()
        await leader.produce(b"b", topic="good")
        await cluster.until(lambda: follower.values("good") == [b"b"])
        await asyncio.sleep(3)
        assert follower.values("bad") == []
        assert cluster.isr("bad") == [1]

    in_virtual_time(main, brokers=2)


def _all(cluster: Cluster) -> list:  # type: ignore[type-arg]
    return list(cluster.brokers.values())
