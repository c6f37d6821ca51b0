"""Tables become batches as those can be sent: few are in memory, calls keep their order, `flush` waits for all rows."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pytest

from barnabas.client.errors import ClientClosedError
from barnabas.client.producer.producer import AsyncProducer
from barnabas.protocol.wire.apis import ApiKey
from tests.unit.client.fake_cluster import SILENCE, FakeCluster

ROWS = 200
BATCHES_IN_FLIGHT = 5
BATCHES_AHEAD = 2


def rows(name: str) -> list[bytes]:
    return [b"%s %d" % (name.encode(), number) + b"." * 100 for number in range(ROWS)]


def table(name: str) -> Any:
    return pa.table({"value": rows(name)})


async def small_batches(fake: FakeCluster) -> AsyncProducer:
    """A producer that is connected, and makes some 25 batches of a table."""
    fake.add_topic("t")
    producer = AsyncProducer(cluster=fake.cluster(), max_request_size=1_000)
    await producer.send_and_wait("t", b"first")
    return producer


async def test_few_batches_are_in_memory_and_flush_waits_for_all_rows_in_the_order_of_the_calls() -> None:
    fake = FakeCluster()
    async with await small_batches(fake) as producer:
        tables = [asyncio.create_task(producer.send_arrow("t", table(name))) for name in "abc"]
        await asyncio.sleep(0)
        assert producer._accumulator.unfinished == BATCHES_IN_FLIGHT + BATCHES_AHEAD
        await producer.flush()
        assert fake.log("t").values() == [b"first", *rows("a"), *rows("b"), *rows("c")]
        written = [await task for task in tables]
        assert [metadata[0].offset for metadata in written] == [1, 1 + ROWS, 1 + 2 * ROWS]


async def test_closing_ends_a_table_that_is_half_queued() -> None:
    fake = FakeCluster()
    async with await small_batches(fake) as producer:
        fake.scripts[ApiKey.PRODUCE] = lambda *_: SILENCE
        half_queued = asyncio.create_task(producer.send_arrow("t", table("a")))
        await asyncio.sleep(0)
        await producer.close(timeout_ms=0)
        with pytest.raises(ClientClosedError):
            await half_queued


@pytest.mark.parametrize("wrong", [-1, 3])
async def test_a_row_names_a_partition_that_exists_or_none(wrong: int) -> None:
    """So far -1 meant the same as null, while `send` refuses it."""
    fake = FakeCluster()
    fake.add_topic("t", 3)
    async with AsyncProducer(cluster=fake.cluster(), linger_ms=0) as producer:
        rows = {"value": [b"a", b"b", b"c"], "place": [2, wrong, None]}
        with pytest.raises(ValueError, match=f"column 'place' names partition {wrong}; the topic has 3 partitions"):
            await producer.send_arrow("t", pa.table(rows), partition="place")
        rows["place"] = [2, None, 2]
        await producer.send_arrow("t", pa.table(rows), partition="place")
    assert [value for value in fake.log("t", 2).values() if value != b"b"] == [b"a", b"c"]
