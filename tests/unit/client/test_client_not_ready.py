"""(De)serializers that must learn something first: the clients wait for it, and their event loop goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from barnabas import AsyncConsumer, AsyncProducer, TopicPartition
from barnabas.client.errors import SerializationError
from barnabas.client.serialization import NotReadyError
from tests.unit.client.fake_cluster import FakeCluster

T0 = TopicPartition("t", 0)


class Library:
    """Knows the first letters of values once it has been told; `told` is set by the test, on the loop."""

    def __init__(self, *, fails: bool = False) -> None:
        self.known: set[str] = set()
        self.asked = asyncio.Event()
        self.told = asyncio.Event()
        self._fails = fails

    def need(self, letter: str) -> None:
        if letter in self.known:
            return

        async def learn() -> None:
            self.asked.set()
            await self.told.wait()
            if self._fails:
                raise OSError("the library is closed")
            self.known.add(letter)

        raise NotReadyError(f"The letter {letter!r} must be looked up.", learn)

    def serialize(self, topic: str, headers: Any, value: str) -> bytes:
        raise AssertionError("this one waits")

    def serialize_now(self, topic: str, headers: Any, value: str) -> bytes:
        self.need(value[0])
        return value.encode()

    def deserialize(self, topic: str, headers: Any, data: bytes) -> str:
        raise AssertionError("this one waits")

    def deserialize_now(self, topic: str, headers: Any, data: bytes) -> str:
        self.need(chr(data[0]))
        return data.decode()


async def test_a_producer_waits_and_its_loop_does_not() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    library = Library()
    async with AsyncProducer(cluster=fake.cluster(), linger_ms=0, value_serializer=library) as producer:
        sending = asyncio.create_task(producer.send_and_wait("t", "abc"))
        await library.asked.wait()
        assert producer.try_send("t", "abc") is None
        library.told.set()
        assert (await sending).offset == 0
        assert producer.try_send("t", "again") is not None
    assert fake.log("t").values() == [b"abc", b"again"]


async def test_a_consumer_gives_what_it_can_and_waits_for_the_rest() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    library = Library()
    library.known.add("a")
    async with AsyncProducer(cluster=fake.cluster(), linger_ms=0) as producer:
        for value in (b"a1", b"a2", b"b3", b"a4"):
            await producer.send_and_wait("t", value)
    async with AsyncConsumer(
        cluster=fake.cluster(), auto_offset_reset="earliest", value_deserializer=library
    ) as consumer:
        consumer.assign([T0])
        assert [record.value for record in await consumer.poll(5_000)] == ["a1", "a2"]
        polling = asyncio.create_task(consumer.poll(5_000))
        await library.asked.wait()
        library.told.set()
        assert [(record.offset, record.value) for record in await polling] == [(2, "b3"), (3, "a4")]


async def test_what_cannot_be_learned_is_an_error_of_that_record() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    library = Library(fails=True)
    library.told.set()
    async with AsyncProducer(cluster=fake.cluster(), linger_ms=0, value_serializer=library) as producer:
        with pytest.raises(SerializationError, match=r"The letter 'x' must be looked up\. That failed: the library is"):
            await producer.send("t", "x")
    async with AsyncProducer(cluster=fake.cluster(), linger_ms=0) as producer:
        await producer.send_and_wait("t", b"y")
    async with AsyncConsumer(
        cluster=fake.cluster(), auto_offset_reset="earliest", value_deserializer=library
    ) as consumer:
        consumer.assign([T0])
        for _ in range(2):  # again, not passed over
            with pytest.raises(SerializationError, match=r"The record at offset 0 of t-0: The letter 'y'.*closed"):
                await consumer.poll(5_000)
