"""Exact ranges out of logs with holes, markers, moving leaders and ends in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from barnabas.client.errors import OffsetOutOfRangeError, RequestTimeoutError
from barnabas.client.fetching import ConsumerFetchConfig
from barnabas.client.partition_reader import OffsetRange, PartitionReader
from barnabas.client.values import IsolationLevel
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.batch import iter_batches, iter_records
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.wire.apis import ApiKey
from tests.unit.client.fake_cluster import DROP, FakeCluster, FakeLog


def batch(*values: bytes, **options: Any) -> bytes:
    return build_batch([SimpleRecord(None, value, 1_000 + i, ()) for i, value in enumerate(values)], **options)


def fill(log: FakeLog, batches: int, per_batch: int = 5) -> None:
    for b in range(batches):
        log.put(batch(*(b"%d" % (b * per_batch + i) for i in range(per_batch))))


async def read(fake: FakeCluster, ranges: Sequence[OffsetRange], **options: Any) -> dict[TopicPartition, list[int]]:
    """The offsets of the records in the ranges."""
    bounds = {r.partition: r for r in ranges}
    found: dict[TopicPartition, list[int]] = {r.partition: [] for r in ranges}
    async with fake.cluster() as cluster:
        async for fetched in PartitionReader(cluster, **options).batches(ranges):
            wanted = bounds[fetched.partition]
            for pos, header in iter_batches(fetched.buffer):
                for record in iter_records(fetched.buffer, pos, header):
                    if wanted.start <= record.offset < wanted.end and record.offset >= fetched.position:
                        found[fetched.partition].append(record.offset)
    return found


T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


async def test_ranges_begin_and_end_inside_batches() -> None:
    fake = FakeCluster(brokers=2)
    fake.add_topic("t", 2)
    fill(fake.log("t", 0), 10)
    fill(fake.log("t", 1), 4)
    small = ConsumerFetchConfig(partition_max_bytes=200, max_wait_ms=1)
    found = await read(fake, [OffsetRange(T0, 3, 42), OffsetRange(T1, 0, 20)], limits=small)
    assert found == {T0: list(range(3, 42)), T1: list(range(20))}


async def test_an_empty_range_asks_nobody() -> None:
    fake = FakeCluster()
    assert await read(fake, [OffsetRange(T0, 5, 5)]) == {T0: []}
    assert fake.requests == []


async def test_holes_of_compaction_in_the_middle_and_at_the_end() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    log = fake.log("t")
    log.put(batch(b"a", b"b"))
    log.put(batch(b"c"), base_offset=50)
    log.end = 60  # offsets 51 to 59 are gone, and nothing follows
    assert await read(fake, [OffsetRange(T0, 0, 60)]) == {T0: [0, 1, 50]}
    assert await read(fake, [OffsetRange(T0, 10, 20)]) == {T0: []}


async def test_a_range_that_ends_in_markers() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    log = fake.log("t")
    log.put(batch(b"a", transactional=True, producer_id=7, producer_epoch=0, base_sequence=0))
    log.put(batch(b"marker", control=True, transactional=True, producer_id=7, producer_epoch=0))
    assert await read(fake, [OffsetRange(T0, 0, 2)]) == {T0: [0, 1]}  # raw: whoever decodes leaves markers out


async def test_leaders_move_and_connections_break() -> None:
    fake = FakeCluster(brokers=3)
    fake.add_topic("t", 2)
    fill(fake.log("t", 0), 20)
    fill(fake.log("t", 1), 20)
    fetches = 0

    def trouble(broker_id: int, request: Any, version: int) -> Any:
        nonlocal fetches
        fetches += 1
        if fetches % 3 == 0:
            fake.log("t", 0).leader = 1 + fake.log("t", 0).leader % 3
            fake.log("t", 0).leader_epoch += 1
        return DROP if fetches % 5 == 0 else None

    fake.scripts[ApiKey.FETCH] = trouble
    small = ConsumerFetchConfig(partition_max_bytes=300, max_wait_ms=1)
    found = await read(fake, [OffsetRange(T0, 0, 100), OffsetRange(T1, 0, 100)], limits=small)
    assert found == {T0: list(range(100)), T1: list(range(100))}


async def test_out_of_range_tells_what_the_log_holds() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    fill(fake.log("t"), 4)
    fake.log("t").start = 10
    with pytest.raises(OffsetOutOfRangeError, match="offsets 10 to 20") as caught:
        await read(fake, [OffsetRange(T0, 0, 20)])
    error = caught.value
    assert (error.partition, error.offset, error.log_start_offset, error.log_end_offset) == (T0, 0, 10, 20)


async def test_an_end_that_never_comes_is_given_up() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    fill(fake.log("t"), 1)
    with pytest.raises(RequestTimeoutError, match="the range goes to 9"):
        await read(fake, [OffsetRange(T0, 0, 9)], limits=ConsumerFetchConfig(max_wait_ms=1), stall_timeout_ms=30)


async def test_what_cannot_be_retried_is_raised() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    fill(fake.log("t"), 1)

    def forbidden(broker_id: int, request: Any, version: int) -> Any:
        response = fake.fetch(broker_id, request, version)
        response.responses[0].partitions[0].error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return response

    fake.scripts[ApiKey.FETCH] = forbidden
    with pytest.raises(KafkaError, match="Not authorized") as caught:
        await read(fake, [OffsetRange(T0, 0, 5)])
    assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_arrow_gives_the_range_exactly() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    fill(fake.log("t"), 10)
    offsets, values = [], []
    async with fake.cluster() as cluster:
        reader = PartitionReader(cluster, ConsumerFetchConfig(isolation=IsolationLevel.READ_COMMITTED, max_wait_ms=1))
        async for partition, table in reader.arrow([OffsetRange(T0, 7, 33)], columns=("offset", "value")):
            assert partition == T0
            assert table.schema.names == ["offset", "value"]
            offsets += table["offset"].to_pylist()
            values += table["value"].to_pylist()
    assert offsets == list(range(7, 33))
    assert values == [b"%d" % i for i in range(7, 33)]
