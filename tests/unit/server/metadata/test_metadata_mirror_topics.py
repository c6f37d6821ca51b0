"""The controller's decisions for cluster links: topics with given ids, leader epochs, and the floor of producer ids."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from barnabas.protocol.wire.messages.alter_mirror_topics import (
    AlterMirrorTopicsRequest,
    AlterMirrorTopicsResponse,
    MirrorConfig,
    MirrorLeaderEpoch,
    MirrorTopicConfigs,
    NewMirrorTopic,
)
from barnabas.protocol.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.server.broker.producer_ids import ProducerIds
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.metadata.image.small import ResourceType
from barnabas.server.metadata.records.other import ProducerIdsRecord
from tests.unit.server.metadata.controller_house import House, play

ORDERS = UUID(int=77)


async def change(house: House, **fields: Any) -> AlterMirrorTopicsResponse:
    request = AlterMirrorTopicsRequest(broker_id=1, broker_epoch=house.epochs[1], **fields)
    response = await house.service.call(request, 0)
    assert isinstance(response, AlterMirrorTopicsResponse)
    return response


def orders(**fields: Any) -> NewMirrorTopic:
    return NewMirrorTopic(
        name="orders",
        topic_id=ORDERS,
        num_partitions=2,
        replication_factor=2,
        configs=[MirrorConfig(name="mirror.name", value="paris"), MirrorConfig(name="mirror.state", value="active")],
        **fields,
    )


def test_a_mirror_topic_has_the_id_of_its_source_and_its_configs_at_once() -> None:
    async def scenario(house: House) -> None:
        house.log.elect(1)
        await house.brokers(1, 2)
        (result,) = (await change(house, new_topics=[orders()])).topics
        assert result.error_code == ErrorCode.NONE
        topic = house.image.topics.get("orders")
        assert topic is not None
        assert (topic.topic_id, len(topic.partitions)) == (ORDERS, 2)
        assert dict(house.image.configs.topic("orders")) == {"mirror.name": "paris", "mirror.state": "active"}
        (again,) = (await change(house, new_topics=[orders()])).topics
        assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        other = NewMirrorTopic(name="other", topic_id=ORDERS, num_partitions=1)
        (taken,) = (await change(house, new_topics=[other])).topics
        assert taken.error_code == ErrorCode.INVALID_REQUEST

    play(scenario)


def test_only_links_change_the_configs_of_links() -> None:
    async def scenario(house: House) -> None:
        house.log.elect(1)
        await house.brokers(1, 2)
        await change(house, new_topics=[orders()])
        paused = MirrorTopicConfigs(name="orders", configs=[MirrorConfig(name="mirror.state", value="paused")])
        assert (await change(house, configs=[paused])).error_code == ErrorCode.NONE
        assert house.image.configs.topic("orders")["mirror.state"] == "paused"
        mine = AlterConfigsResource(
            resource_type=ResourceType.TOPIC,
            resource_name="orders",
            configs=[AlterableConfig(name="mirror.state", config_operation=0, value="stopped")],
        )
        answer: Any = await house.service.call(IncrementalAlterConfigsRequest(resources=[mine]), 1)
        assert answer.responses[0].error_code == ErrorCode.INVALID_CONFIG
        assert house.image.configs.topic("orders")["mirror.state"] == "paused"

    play(scenario)


def test_a_raised_leader_epoch_changes_nothing_else() -> None:
    async def scenario(house: House) -> None:
        house.log.elect(1)
        await house.brokers(1, 2)
        await change(house, new_topics=[orders()])
        before = house.image.topics.partition("orders", 0)
        assert before is not None
        raised = MirrorLeaderEpoch(topic_id=ORDERS, partition=0, leader_epoch=0, minimum=40)
        assert (await change(house, leader_epochs=[raised])).error_code == ErrorCode.NONE
        after = house.image.topics.partition("orders", 0)
        assert after is not None
        assert (after.leader_epoch, after.partition_epoch) == (40, before.partition_epoch + 1)
        same = ("leader", "isr", "replicas", "directories", "elr", "adding_replicas", "removing_replicas")
        assert [getattr(after, name) for name in same] == [getattr(before, name) for name in same]
        late = MirrorLeaderEpoch(topic_id=ORDERS, partition=0, leader_epoch=0, minimum=50)
        assert (await change(house, leader_epochs=[late])).error_code == ErrorCode.FENCED_LEADER_EPOCH
        enough = MirrorLeaderEpoch(topic_id=ORDERS, partition=0, leader_epoch=0, minimum=40)
        assert (await change(house, leader_epochs=[enough])).error_code == ErrorCode.NONE
        assert house.image.topics.partition("orders", 0) == after

    play(scenario)


def test_a_broker_of_an_earlier_registration_changes_nothing() -> None:
    async def scenario(house: House) -> None:
        house.log.elect(1)
        await house.brokers(1, 2)
        house.epochs[1] -= 1
        assert (await change(house, new_topics=[orders()])).error_code == ErrorCode.STALE_BROKER_EPOCH
        assert "orders" not in house.image.topics

    play(scenario)


def test_the_next_block_of_producer_ids_is_above_the_floor() -> None:
    async def scenario(house: House) -> None:
        house.log.elect(1)
        await house.brokers(1, 2)
        assert (await change(house, producer_ids_above=12_345)).error_code == ErrorCode.NONE
        assert house.image.producer_ids.next_producer_id == 12_346
        offset = house.image.offset
        assert (await change(house, producer_ids_above=500)).error_code == ErrorCode.NONE
        assert house.image.offset == offset
        request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=house.epochs[1])
        granted: Any = await house.service.call(request, 0)
        assert granted.producer_id_start == 12_346

    play(scenario)


def test_a_broker_drops_the_block_below_the_floor() -> None:
    async def scenario(house: House) -> None:
        house.log.elect(1)
        await house.brokers(1, 2)
        ids = ProducerIds(house.service, 1)
        ids.broker_epoch = house.epochs[1]
        assert [await ids.next(), await ids.next()] == [0, 1]
        delta = ClusterDelta(house.image)
        delta.apply(ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=9_000))
        ids.on_image(delta, house.image)
        assert await ids.next() == 2  # another broker's block is no floor
        await change(house, producer_ids_above=5_000)
        delta.apply(ProducerIdsRecord(broker_id=-1, next_producer_id=5_001))
        ids.on_image(delta, house.image)
        assert await ids.next() == 5_001

    play(scenario)
