"""`send_batches`: batches that are already encoded keep their records, and get the producer's ids and the offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from barnabas.client.errors import ClientClosedError
from barnabas.client.producer.producer import AsyncProducer
from barnabas.client.values import WrittenBatch
from barnabas.protocol.records.build import SimpleRecord, build_batch
from tests.unit.client.fake_cluster import FakeCluster


def batch(*values: bytes, compressed: bool = False) -> tuple[bytes, int]:
    from barnabas.protocol.records.compression import CompressionType

    codec = CompressionType.GZIP if compressed else CompressionType.NONE
    return build_batch([SimpleRecord(None, value, 1_000) for value in values], codec=codec), len(values)


async def test_batches_are_written_whole_and_their_offsets_are_returned() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    async with AsyncProducer(cluster=fake.cluster()) as producer:
        written = await producer.send_batches("t", 0, [batch(b"a", b"b"), batch(b"c", compressed=True)])
        assert written == [WrittenBatch(0, 2), WrittenBatch(2, 1)]
        assert fake.log("t").values() == [b"a", b"b", b"c"]


async def test_calls_for_one_partition_keep_their_order() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    async with AsyncProducer(cluster=fake.cluster()) as producer:
        await producer.partitions_for("t")
        calls = [asyncio.create_task(producer.send_batches("t", 0, [batch(b"%d" % i)])) for i in range(20)]
        assert [await call for call in calls] == [[WrittenBatch(i, 1)] for i in range(20)]
        assert fake.log("t").values() == [b"%d" % i for i in range(20)]


async def test_a_partition_that_does_not_exist_is_refused() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    async with AsyncProducer(cluster=fake.cluster()) as producer:
        with pytest.raises(ValueError, match="t has no partition 7; it has 1 partitions"):
            await producer.send_batches("t", 7, [batch(b"a")])


async def test_a_closed_producer_reads_no_batch() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    producer = AsyncProducer(cluster=fake.cluster())
    await producer.close()

    def unread() -> Iterator[tuple[bytes, int]]:
        raise AssertionError("the iterable is read")
        yield batch(b"a")

    with pytest.raises(ClientClosedError):
        await producer.send_batches("t", 0, unread())
