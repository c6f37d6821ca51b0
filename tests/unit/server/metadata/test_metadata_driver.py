"""The driver: decisions see each other at once, answers wait for the commit, failures go back."""

from __future__ import annotations

import asyncio
import random
from uuid import UUID

import pytest

from barnabas.core.decision import Decision
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.wire.messages.metadata import MetadataRequest
from barnabas.protocol.wire.schema import Message
from barnabas.server.metadata.controller.controller import Controller
from barnabas.server.metadata.driver import ControllerDriver
from barnabas.server.metadata.features import bootstrap_records
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.loader import Loader
from barnabas.server.metadata.publish import Publisher
from barnabas.server.metadata.records.codec import ProducerIdsRecord, RegisterBrokerRecord
from tests.configs import controller_config
from tests.unit.server.metadata.fakes import ManualLog


class StoppedClock:
    def now_ms(self) -> int:
        return 1

    def monotonic(self) -> float:
        return 0.0


class House:
    def __init__(self) -> None:
        self.log = ManualLog()
        self.publisher = Publisher(ClusterImage(cluster_id="c"))
        self.log.register(Loader(self.publisher))
        self.driver = ControllerDriver(
            Controller(controller_config(node_id=1)),
            self.log,
            lambda: self.publisher.image,
            clock=StoppedClock(),
            rng=random.Random(1),
        )
        records = [*bootstrap_records(), RegisterBrokerRecord(broker_id=1, broker_epoch=5, fenced=False)]
        self.log.propose(records)
        self.log.commit()

    def create(self, name: str) -> asyncio.Task[Message]:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        return asyncio.ensure_future(self.driver.handle(CreateTopicsRequest(topics=[topic]), 7))

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


def code_of(response: Message) -> ErrorCode:
    assert isinstance(response, CreateTopicsResponse)
    return ErrorCode(response.topics[0].error_code)


def test_the_answer_waits_for_the_commit_and_the_next_decision_does_not() -> None:
    async def scenario() -> None:
        house = House()
        first, again = house.create("a"), house.create("a")
        await house.settle()
        assert not first.done()
        assert not again.done(), "it was decided on state that is not committed"
        assert house.publisher.image.topics.names() == []
        assert house.driver.image.topics.names() == ["a"]
        house.log.commit()
        await house.settle()
        assert code_of(await first) is ErrorCode.NONE
        assert code_of(await again) is ErrorCode.TOPIC_ALREADY_EXISTS
        assert house.publisher.image.topics.names() == ["a"]
        assert house.driver.pending == 0

    asyncio.run(scenario())


def test_what_cannot_be_committed_is_reverted_with_all_that_came_after() -> None:
    async def scenario() -> None:
        house = House()
        first, second, refused = house.create("a"), house.create("b"), house.create("a")
        await house.settle()
        house.log.lose()
        for task in (first, second, refused):
            with pytest.raises(KafkaError) as failure:
                await task
            assert failure.value.code is ErrorCode.NOT_CONTROLLER
        assert house.driver.image.topics.names() == []
        after = house.create("a")
        await house.settle()
        house.log.commit()
        assert code_of(await after) is ErrorCode.NONE

    asyncio.run(scenario())


def test_giving_up_the_wait_does_not_withdraw_the_records() -> None:
    async def scenario() -> None:
        house = House()
        impatient = house.create("a")
        await house.settle()
        impatient.cancel()
        await house.settle()
        again = house.create("a")
        await house.settle()
        house.log.commit()
        assert code_of(await again) is ErrorCode.TOPIC_ALREADY_EXISTS

    asyncio.run(scenario())


def test_a_log_that_refuses_at_once_leaves_the_image_as_it_was() -> None:
    class Refusing(ManualLog):
        def propose(self, records: object) -> asyncio.Future[int]:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)

    async def scenario() -> None:
        house = House()
        house.driver._log = Refusing()
        with pytest.raises(KafkaError):
            await house.create("a")
        assert house.driver.image.topics.names() == []

    asyncio.run(scenario())


def test_any_decision_can_be_submitted() -> None:
    async def scenario() -> None:
        house = House()
        task = asyncio.ensure_future(
            house.driver.submit(lambda image, ctx: Decision(ctx.now_ms, [ProducerIdsRecord(next_producer_id=7)]))
        )
        await house.settle()
        house.log.commit()
        assert await task == 1
        assert house.publisher.image.producer_ids.next_producer_id == 7
        with pytest.raises(KafkaError) as refusal:
            await house.driver.handle(MetadataRequest(), 12)
        assert refusal.value.code is ErrorCode.UNSUPPORTED_VERSION

    asyncio.run(scenario())


def test_topic_ids_come_from_the_rng() -> None:
    async def scenario() -> UUID:
        house = House()
        task = house.create("a")
        await house.settle()
        house.log.commit()
        response = await task
        assert isinstance(response, CreateTopicsResponse)
        return response.topics[0].topic_id

    assert asyncio.run(scenario()) == asyncio.run(scenario())
