"""A consumer with a fetch session gets the same responses as one without, while records are appended and deleted,
leaders change, and topics are created and deleted. The seed decides about the changes.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
import random
from typing import cast

import pytest

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from barnabas.server.metadata.records.topics import PartitionChangeRecord, RemoveTopicRecord
from barnabas.server.replication.partition import Isolation
from tests.unit.server.replication.brokers import Cluster, in_virtual_time

TOPICS = {"t": 3, "u": 2}
"""The topic `u` is created later, and deleted."""
VERSION = 12  # topics by name
Key = tuple[str, int]
Position = tuple[int, int]
"""Offset, and the leader epoch that the consumer knows."""


class Consumer:
    """Fetches with a session, and keeps the latest response for each partition."""

    def __init__(self, cluster: Cluster, isolation: Isolation) -> None:
        self.cluster = cluster
        self.isolation = isolation
        self.positions: dict[Key, Position] = {}
        self.known: dict[Key, tuple[object, ...]] = {}
        self.data: dict[Key, bytes] = {}
        self._requested: dict[Key, Position] = {}
        self.max_bytes = 1 << 20
        self._session = (0, 0)

    async def fetch(self, wait_ms: int = 0) -> None:
        """One request of the session."""
        session_id, epoch = self._session
        changes = {key: at for key, at in self.positions.items() if self._requested.get(key) != at or not epoch}
        forgotten = self._requested.keys() - self.positions.keys()
        response = await self._fetch(changes, session_id, epoch, forgotten, wait_ms)
        assert response.error_code == ErrorCode.NONE
        self._requested = dict(self.positions)
        self._session = response.session_id, epoch + 1
        self.data.clear()
        for key in forgotten:
            self.known.pop(key, None)
        for key, answer in _by_key(response).items():
            self.known[key] = _view(answer)
            self.data[key] = bytes(cast("Buffer", answer.records or b""))

    async def fetch_all(self) -> dict[Key, PartitionData]:
        """The response to the same request without a session."""
        return _by_key(await self._fetch(self.positions, 0, -1, set(), 0))

    async def _fetch(
        self, positions: dict[Key, Position], session_id: int, session_epoch: int, forgotten: set[Key], wait_ms: int
    ) -> FetchResponse:
        request = FetchRequest(
            max_wait_ms=wait_ms, min_bytes=1, max_bytes=self.max_bytes, isolation_level=self.isolation,
            session_id=session_id, session_epoch=session_epoch,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(
                            partition=index, current_leader_epoch=epoch, fetch_offset=at, partition_max_bytes=1 << 16
                        )
                    ],
                )
                for (topic, index), (at, epoch) in positions.items()
            ],
            forgotten_topics_data=[ForgottenTopic(topic=topic, partitions=[index]) for topic, index in forgotten],
        )  # fmt: skip
        return cast("FetchResponse", await self.cluster.brokers[1].serve(request, VERSION))


def _by_key(response: FetchResponse) -> dict[Key, PartitionData]:
    return {
        (topic.topic, answer.partition_index): answer for topic in response.responses for answer in topic.partitions
    }


def _view(answer: PartitionData) -> tuple[object, ...]:
    """The fields of a response for one partition, without the records."""
    return answer.error_code, answer.high_watermark, answer.log_start_offset


class World:
    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.rng = random.Random(seed)

    def epoch(self, key: Key) -> int:
        """The current leader epoch, or -1 at random."""
        state = self.cluster.image.topics.partition(*key)
        return -1 if state is None or self.rng.random() < 0.5 else state.leader_epoch

    async def change_something(self) -> None:
        cluster, rng, broker = self.cluster, self.rng, self.cluster.brokers[1]
        known = [(t, n) for t, count in TOPICS.items() for n in range(count) if broker.partitions.get(t, n)]
        topic, index = key = rng.choice(known)
        partition = broker.partition(topic, index)
        match rng.choice(["append", "append", "append", "delete", "lead", "create or delete", "image", "time"]):
            case "append" if partition.is_leader:
                broker.append(b"x" * rng.randrange(1, 200), topic=topic, index=index, acks=1)
            case "delete" if partition.is_leader and partition.high_watermark:
                await broker.serve(_delete(key, rng.randrange(partition.high_watermark + 1)), 2)
            case "lead":
                state, named = cluster.image.topics.partition(topic, index), cluster.image.topics.get(topic)
                if state is not None and named is not None and sorted(state.isr) == [1, 2]:
                    change = PartitionChangeRecord(partition_id=index, topic_id=named.topic_id, leader=3 - state.leader)
                    cluster.commit([change])
            case "create or delete":
                found = cluster.image.topics.get("u")
                if found is None:
                    cluster.create("u", [[1, 2]] * TOPICS["u"])
                else:
                    cluster.commit([RemoveTopicRecord(topic_id=found.topic_id)])
            case "image":
                cluster.fence(2)
                cluster.brokers[2].heartbeat()
            case _:
                await asyncio.sleep(rng.random())


def _delete(key: Key, offset: int) -> DeleteRecordsRequest:
    topic, index = key
    wanted = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)])
    return DeleteRecordsRequest(topics=[wanted], timeout_ms=1)


@pytest.mark.parametrize("seed", range(40))
def test_session_responses_equal_full_fetch_responses(seed: int) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.create("t", [[1, 2]] * TOPICS["t"])
        await cluster.until(lambda: all(len(b.partitions) for b in cluster.brokers.values()))
        world, rng = World(cluster, seed), random.Random(seed)
        consumer = Consumer(cluster, Isolation(seed % 2))
        keys = [(topic, index) for topic, count in TOPICS.items() for index in range(count)]
        consumer.positions = dict.fromkeys(keys, (0, -1))
        for _ in range(120):
            for _ in range(rng.randrange(3)):
                await world.change_something()
            await consumer.fetch(wait_ms=rng.choice([0, 0, 200]))
            plain = await consumer.fetch_all()
            assert consumer.known == {key: _view(answer) for key, answer in plain.items()}
            assert consumer.data == {
                key: bytes(cast("Buffer", answer.records or b""))
                for key, answer in plain.items()
                if key in consumer.data
            }
            assert all(key in consumer.data for key, answer in plain.items() if answer.records)
            for key in keys:
                match rng.randrange(8):
                    case 0 | 1 | 2 if consumer.known.get(key, (1,))[0] == 0:
                        consumer.positions[key] = cast("int", consumer.known[key][1]), world.epoch(key)
                    case 3:
                        consumer.positions[key] = 0, -1
                    case 4:
                        consumer.positions.pop(key, None)
            if not consumer.positions:
                consumer.positions = dict.fromkeys(keys, (0, -1))

    in_virtual_time(main, brokers=2, seed=seed)


def test_response_limit_starves_no_partition() -> None:
    """A partition that returned records is read last by the next request; the other partitions stay marked."""

    async def main(cluster: Cluster) -> list[list[Key]]:
        cluster.create("t", [[1, 2]] * 3)
        await cluster.until(lambda: all(len(b.partitions) for b in cluster.brokers.values()))
        for index in range(3):
            assert await cluster.brokers[1].produce(b"x", index=index) is ErrorCode.NONE
        consumer = Consumer(cluster, Isolation.READ_UNCOMMITTED)
        consumer.max_bytes = 1
        consumer.positions = {("t", index): (0, -1) for index in range(3)}
        served = []
        for _ in range(5):
            await consumer.fetch()
            served.append([key for key, data in consumer.data.items() if data])
        return served

    assert in_virtual_time(main, brokers=2) == [
        [("t", n)] for n in (0, 0, 1, 2, 0)
    ]  # the first request opens the session
