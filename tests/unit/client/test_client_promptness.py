"""A record that nothing stands before is sent within `send`, and its answer taken in by what reads the socket."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from barnabas.client.producer.producer import AsyncProducer
from barnabas.client.values import RecordMetadata
from barnabas.core.errors import BarnabasError
from tests.unit.client.fake_cluster import FakeCluster


async def warm_producer(fake: FakeCluster, **settings: Any) -> AsyncProducer:
    """Connected, with a producer id."""
    producer = AsyncProducer(cluster=fake.cluster(), **{"linger_ms": 0, **settings})
    await producer.send_and_wait("t", b"first", partition=0)
    return producer


async def test_without_linger_a_record_is_on_the_wire_when_send_returns() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    async with await warm_producer(fake) as producer:
        connection = await producer.cluster.connection(1)
        assert connection.in_flight == 0
        futures = [await producer.send("t", b"second"), await producer.send("t", b"third")]
        assert connection.in_flight == 1  # the third waits for the next round, and for company
        futures += [await producer.send("t", b"fourth")]
        assert [(await future).offset for future in futures] == [1, 2, 3]
    assert len(fake.log("t").batches) == 3


async def test_with_linger_it_waits() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    async with await warm_producer(fake, linger_ms=5) as producer:
        connection = await producer.cluster.connection(1)
        future = await producer.send("t", b"second")
        assert connection.in_flight == 0
        assert (await future).offset == 1


async def test_an_answer_takes_one_turn_of_the_loop_to_the_waiting_task() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    async with await warm_producer(fake) as producer:
        future = await producer.send("t", b"second")
        await asyncio.sleep(0)  # the broker in memory answers on the loop's next turn, in which we are not yet
        await asyncio.sleep(0)
        assert future.done()


@pytest.mark.parametrize("acks", ["0", "all"])
async def test_a_delivery_callback_may_send(acks: str) -> None:
    """Within a round, or within the taking in of an answer; to topics that are new to the producer, too."""
    fake = FakeCluster()
    names = [f"t{number}" for number in range(20)]
    for name in ["t", *names]:
        fake.add_topic(name)
    left = [*names, *["t"] * 30]
    all_sent = asyncio.Event()

    async with await warm_producer(fake, acks=acks, enable_idempotence=acks == "all") as producer:
        for name in names:
            await producer.partitions_for(name)

        def sent(metadata: RecordMetadata | None, error: BarnabasError | None) -> None:
            assert error is None
            if not left:
                all_sent.set()
                return
            name = left.pop(0)
            assert producer.try_send(name, b"%d" % len(left), on_delivery=sent) is not None

        producer.try_send("t", b"start", on_delivery=sent)
        await asyncio.wait_for(all_sent.wait(), 10)
    assert fake.log("t").values() == [b"first", b"start", *[b"%d" % number for number in reversed(range(30))]]
    assert [fake.log(name).values() for name in names] == [[b"%d" % number] for number in reversed(range(30, 50))]
