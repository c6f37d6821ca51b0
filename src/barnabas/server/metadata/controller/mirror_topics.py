"""Machine: AlterMirrorTopics, what cluster links change in the metadata.

The records are Kafka's, so that every controller and broker replays them: TopicRecord with the source's topic id,
PartitionRecord with a raised leader epoch, ConfigRecord, ProducerIdsRecord. All changes of a request are made in one
decision. A topic that cannot be created has its own error; any other error refuses the whole request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from barnabas.core.decision import Decision
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import NO_TOPIC_ID
from barnabas.core.rng import random_uuid
from barnabas.protocol.wire.messages.alter_mirror_topics import (
    AlterMirrorTopicsRequest,
    AlterMirrorTopicsResponse,
    MirrorConfig,
    MirrorLeaderEpoch,
    MirrorTopicResult,
    NewMirrorTopic,
)
from barnabas.server.metadata.config_rules import check_topic_configs
from barnabas.server.metadata.config_view import ConfigView
from barnabas.server.metadata.controller.answers import RefusedError, message_of
from barnabas.server.metadata.controller.assignments import active_replicas, new_partition, place
from barnabas.server.metadata.controller.settings import DecideContext
from barnabas.server.metadata.controller.topic_names import name_problem
from barnabas.server.metadata.image.cluster import ClusterImage, PartitionImage
from barnabas.server.metadata.image.small import ResourceType
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.metadata.records.other import ConfigRecord, ProducerIdsRecord
from barnabas.server.metadata.records.topics import PartitionRecord, TopicRecord

NO_BROKER: Final = -1
"""The broker of a ProducerIdsRecord that grants no block."""
_LEADER_EPOCH_MAX: Final = 2**31 - 1


def decide_alter_mirror_topics(
    image: ClusterImage, request: AlterMirrorTopicsRequest, ctx: DecideContext
) -> Decision[MetadataRecord, AlterMirrorTopicsResponse]:
    """The records of all changes in the request."""
    broker = image.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return Decision(AlterMirrorTopicsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    records: list[MetadataRecord] = []
    results: list[MirrorTopicResult] = []
    try:
        for topic in request.new_topics:
            try:
                records += _create(image, topic, ctx)
                results.append(MirrorTopicResult(name=topic.name))
            except KafkaError as error:
                message = message_of(error)
                results.append(MirrorTopicResult(name=topic.name, error_code=error.code, error_message=message))
        for changed in request.configs:
            records += _configure(image, changed.name, changed.configs, ctx)
        for raised in request.leader_epochs:
            records += _raise_leader_epoch(image, raised)
        records += _raise_producer_ids(image, request.producer_ids_above)
    except KafkaError as error:
        return Decision(AlterMirrorTopicsResponse(error_code=error.code, error_message=message_of(error)))
    return Decision(AlterMirrorTopicsResponse(topics=results), records)


def _create(image: ClusterImage, topic: NewMirrorTopic, ctx: DecideContext) -> list[MetadataRecord]:
    problem = name_problem(topic.name)
    if problem is not None:
        raise RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
    if topic.name in image.topics:
        raise RefusedError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    topic_id = random_uuid(ctx.rng) if topic.topic_id == NO_TOPIC_ID else topic.topic_id
    taken = image.topics.get_by_id(topic_id)
    if taken is not None:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST, f"The id of topic '{topic.name}' is already that of topic '{taken.name}' here."
        )
    if topic.num_partitions <= 0:
        raise RefusedError(ErrorCode.INVALID_PARTITIONS, "A mirror topic has as many partitions as its source.")
    _check_configs(image, _present(topic.configs), ctx)
    factor = topic.replication_factor if topic.replication_factor > 0 else ctx.settings.default_replication_factor
    try:
        placed = place(image, topic.num_partitions, factor, ctx.rng)
    except KafkaError as error:
        raise RefusedError(error.code, f"Unable to replicate the partition {factor} time(s): {error}") from error
    return [
        TopicRecord(name=topic.name, topic_id=topic_id),
        *(_config_record(topic.name, name, value) for name, value in _present(topic.configs).items()),
        *(
            new_partition(image, topic_id, index, replicas, active_replicas(image, replicas))
            for index, replicas in enumerate(placed)
        ),
    ]


def _configure(
    image: ClusterImage, name: str, changes: Sequence[MirrorConfig], ctx: DecideContext
) -> list[MetadataRecord]:
    """Set configs, or remove those without a value."""
    if name not in image.topics:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    present = image.configs.topic(name)
    merged = {**present, **{change.name: change.value for change in changes}}
    _check_configs(image, {key: value for key, value in merged.items() if value is not None}, ctx)
    return [
        _config_record(name, change.name, change.value)
        for change in changes
        if change.value != present.get(change.name)
    ]


def _check_configs(image: ClusterImage, configs: dict[str, str], ctx: DecideContext) -> None:
    check_topic_configs(
        configs, ConfigView(image.configs, node_id=ctx.settings.node_id, static=ctx.settings.static_config)
    )


def _present(configs: Sequence[MirrorConfig]) -> dict[str, str]:
    return {config.name: config.value for config in configs if config.value is not None}


def _config_record(topic: str, name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=topic, name=name, value=value)


def _raise_leader_epoch(image: ClusterImage, raised: MirrorLeaderEpoch) -> list[MetadataRecord]:
    """A PartitionRecord, because no change record of Kafka raises the leader epoch by more than one."""
    partition = image.topics.partition_by_id(raised.topic_id, raised.partition)
    if partition is None:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_ID, f"There is no partition {raised.partition} of this topic id.")
    if partition.leader_epoch >= raised.minimum:
        return []
    if raised.leader_epoch != partition.leader_epoch:
        raise RefusedError(
            ErrorCode.FENCED_LEADER_EPOCH if raised.leader_epoch < partition.leader_epoch else ErrorCode.NOT_CONTROLLER
        )
    if raised.minimum > _LEADER_EPOCH_MAX:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"{raised.minimum} is no leader epoch.")
    return [_record_with_epoch(raised, partition)]


def _record_with_epoch(raised: MirrorLeaderEpoch, partition: PartitionImage) -> PartitionRecord:
    return PartitionRecord(
        partition_id=raised.partition,
        topic_id=raised.topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=max(raised.minimum, partition.leader_epoch + 1),
        partition_epoch=partition.partition_epoch + 1,
        directories=list(partition.directories),
        eligible_leader_replicas=list(partition.elr) or None,
        last_known_elr=list(partition.last_known_elr) or None,
    )


def _raise_producer_ids(image: ClusterImage, above: int) -> list[MetadataRecord]:
    """A record that lets the next block of producer ids begin above `above`. Brokers drop the blocks that they hold."""
    if above < image.producer_ids.next_producer_id:
        return []
    return [ProducerIdsRecord(broker_id=NO_BROKER, broker_epoch=-1, next_producer_id=above + 1)]
