"""A client that can do nothing says so: one warning, repeated seldom; `poll` raises on request."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from barnabas.client.consumer.consumer import AsyncConsumer
from barnabas.client.errors import BootstrapError
from barnabas.client.problems import GRACE_S, Problems
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages import metadata
from tests.logs import logged, messages
from tests.unit.client.fake_cluster import FakeCluster

NO_TOPIC = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no topic 'x'. Create it.")


def test_a_problem_is_logged_once_and_then_seldom(caplog: pytest.LogCaptureFixture) -> None:
    problems = Problems()
    for tick in range(36_000):  # an hour, an attempt every 100 ms
        problems.note("topic 'x'", NO_TOPIC, tick / 10)
    assert [record.levelno for record in logged(caplog, "barnabas.client")] == [logging.WARNING] * 11
    assert (
        messages(caplog, "barnabas.client")[0]
        == "topic 'x': There is no topic 'x'. Create it. The client keeps trying."
    )
    assert "For 10 s now." in messages(caplog, "barnabas.client")[1]


def test_a_short_problem_is_not_logged_and_the_end_of_a_logged_one_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    problems = Problems()
    problems.note("a", NO_TOPIC, 0.0)
    problems.note("a", NO_TOPIC, GRACE_S - 0.1)
    problems.solved("a")
    assert not messages(caplog, "barnabas.client")
    problems.note("a", NO_TOPIC, 1.0)
    problems.note("a", NO_TOPIC, 1.0 + GRACE_S)
    assert problems.current is NO_TOPIC
    problems.solved("a")
    assert [record.levelno for record in logged(caplog, "barnabas.client")] == [logging.WARNING, logging.INFO]
    assert problems.current is None
    assert problems.hint() == ""


async def until_warned(consumer: AsyncConsumer, caplog: pytest.LogCaptureFixture) -> str:
    """Poll until the consumer has logged a warning, and return it."""
    while True:
        assert await consumer.poll(50) == []
        for record in logged(caplog, "barnabas.client"):
            if record.levelno == logging.WARNING:
                return record.getMessage()


def of(fake: FakeCluster, **settings: Any) -> AsyncConsumer:
    return AsyncConsumer(cluster=fake.cluster(), **settings)


async def test_a_consumer_without_a_broker_warns_and_raises_on_request(caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    fake.down.add(1)
    consumer = of(fake)
    consumer.assign([TopicPartition("t", 0)])
    async with asyncio.timeout(20):
        warning = await until_warned(consumer, caplog)
    assert "none of bootstrap.servers fake:9001 answers" in warning
    assert "Check that a broker runs there" in warning
    with pytest.raises(BootstrapError):
        await consumer.poll(50, raise_problems=True)
    await consumer.close()


@pytest.mark.parametrize("mode", ["assign", "subscribe"])
async def test_a_consumer_of_a_missing_topic_warns_and_raises_on_request(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = of(FakeCluster(), group_id="g")
    consumer.cluster.coordinators.find = _no_coordinator  # type: ignore[method-assign]
    if mode == "assign":
        consumer.assign([TopicPartition("nowhere", 0)])
    else:
        consumer.subscribe(["nowhere"])
    async with asyncio.timeout(20):
        while not any(
            "There is no topic 'nowhere'. Create it, or check the spelling." in m
            for m in messages(caplog, "barnabas.client")
        ):
            assert await consumer.poll(50) == []
    with pytest.raises(KafkaError):
        await consumer.poll(50, raise_problems=True)
    await consumer.close(0)


async def _no_coordinator(*_: object, **__: object) -> int:
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "No coordinator.")


async def test_a_topic_that_may_not_be_read_is_raised_by_poll() -> None:
    fake = FakeCluster()

    def refuse(broker: int, request: metadata.MetadataRequest, version: int) -> Any:
        topics = [t.name for t in request.topics or []]
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return metadata.MetadataResponse(
            brokers=[metadata.MetadataResponseBroker(node_id=1, host="fake", port=9001)],
            topics=[metadata.MetadataResponseTopic(name=name, error_code=code) for name in topics],
        )

    fake.scripts[ApiKey.METADATA] = refuse
    consumer = of(fake, group_id="g")
    consumer.cluster.coordinators.find = _no_coordinator  # type: ignore[method-assign]
    consumer.subscribe(["secret"])
    with pytest.raises(KafkaError, match="Topic 'secret': Not authorized for the topic"):
        for _ in range(100):
            await consumer.poll(20)
    await consumer.close(0)
