"""A fetch requests about as many bytes as the rest of its range has, so that records behind the range stay away."""

from __future__ import annotations

from barnabas.client.fetch_sizes import ASSUMED_BYTES_PER_OFFSET, MARGIN, SPARE_BYTES, FetchSizes
from barnabas.client.fetching import ConsumerFetchConfig
from barnabas.client.partition_reader import OffsetRange, PartitionReader
from barnabas.client.values import FetchedBatches
from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.wire.apis import ApiKey
from tests.unit.client.fake_cluster import FakeCluster

MOST = 8_000_000
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(records: int, size: int, base_offset: int = 0) -> bytes:
    return build_batch([SimpleRecord(None, bytes(size), 1_000, ())] * records, base_offset=base_offset)


def fetched(buffer: bytes, position: int, end: int) -> FetchedBatches:
    return FetchedBatches(T0, position, buffer, -1, -1, -1, end=end)


def test_an_unknown_partition_has_the_assumed_size() -> None:
    assert FetchSizes(MOST).limit(T0, 100) == int(100 * ASSUMED_BYTES_PER_OFFSET * MARGIN) + SPARE_BYTES


def test_the_limit_follows_the_last_fetch_and_never_exceeds_the_configured_one() -> None:
    sizes = FetchSizes(MOST)
    buffer = batch(100, 200)
    sizes.learn(fetched(buffer, 0, 100))
    per_offset = len(buffer) / 100
    assert sizes.limit(T0, 1_000) == int(1_000 * per_offset * MARGIN) + SPARE_BYTES
    assert sizes.limit(T0, 10_000_000) == MOST
    assert sizes.limit(T1, 1) == int(ASSUMED_BYTES_PER_OFFSET * MARGIN) + SPARE_BYTES


def test_offsets_of_the_first_batch_before_the_position_count() -> None:
    """A range that begins at the last record of a large batch does not make its records look large."""
    sizes = FetchSizes(MOST)
    buffer = batch(1_000, 100, base_offset=5_000)
    sizes.learn(fetched(buffer, 5_999, 6_000))
    assert sizes.limit(T0, 1_000) < 2 * len(buffer) + SPARE_BYTES


def test_a_fetch_without_a_whole_batch_changes_nothing() -> None:
    sizes = FetchSizes(MOST)
    before = sizes.limit(T0, 1_000)
    sizes.learn(fetched(batch(10, 100)[:40], 0, 0))
    assert sizes.limit(T0, 1_000) == before


async def requested(ranges: list[OffsetRange], sizes: FetchSizes | None, **limits: int) -> list[list[int]]:
    """The limits of the partitions in each fetch request, in the order of the requests."""
    fake = FakeCluster()
    fake.add_topic("t", 2)
    for partition in range(2):
        for _ in range(40):
            fake.log("t", partition).put(batch(50, 1_000))
    config = ConsumerFetchConfig(partition_max_bytes=MOST, max_wait_ms=1, **limits)
    async with fake.cluster() as cluster:
        async for _ in PartitionReader(cluster, config, sizes=sizes).batches(ranges):
            pass
    return [
        [p.partition_max_bytes for topic in request.topics for p in topic.partitions]
        for _, key, request in fake.requests
        if key is ApiKey.FETCH
    ]


async def test_short_ranges_are_fetched_with_small_limits() -> None:
    sizes = FetchSizes(MOST)
    [[first]] = await requested([OffsetRange(T0, 0, 100)], sizes)
    assert first == int(100 * ASSUMED_BYTES_PER_OFFSET * MARGIN) + SPARE_BYTES
    [[later]] = await requested([OffsetRange(T0, 100, 200)], sizes)
    assert SPARE_BYTES + 100_000 < later < 250_000
    [[fixed]] = await requested([OffsetRange(T0, 0, 100)], None)
    assert fixed == MOST


async def test_a_request_for_several_partitions_has_the_configured_limits() -> None:
    assert await requested([OffsetRange(T0, 0, 10), OffsetRange(T1, 0, 10)], FetchSizes(MOST)) == [[MOST, MOST]]


async def test_the_limit_is_not_below_fetch_min_bytes() -> None:
    [[limit]] = await requested([OffsetRange(T0, 0, 10)], FetchSizes(MOST), min_bytes=500_000)
    assert limit == 500_000
