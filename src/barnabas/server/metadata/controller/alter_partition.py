"""Machine: AlterPartition, with which a leader changes the ISR (KIP-497, `ReplicationControlManager`)."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from barnabas.core.decision import Decision
from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionData,
    PartitionDataResponse,
    TopicDataResponse,
)
from barnabas.server.metadata.controller.partition_change import Target, change_partition
from barnabas.server.metadata.controller.settings import DecideContext
from barnabas.server.metadata.controller.topic_rules import TopicRules
from barnabas.server.metadata.image.cluster import ClusterImage, PartitionImage, TopicImage
from barnabas.server.metadata.image.topics import LeaderRecoveryState
from barnabas.server.metadata.image.topics_delta import merge_partition
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.metadata.records.topics import PartitionChangeRecord


def decide_alter_partition(
    image: ClusterImage, request: AlterPartitionRequest, ctx: DecideContext
) -> Decision[MetadataRecord, AlterPartitionResponse]:
    """Decide on each partition by itself. A leader with an outdated view gets an error, and sends its request again."""
    sender = image.brokers.get(request.broker_id)
    if sender is None or sender.epoch != request.broker_epoch:
        return Decision(AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    topic_rules = TopicRules(image, ctx)
    records: list[MetadataRecord] = []
    topics = []
    for data in request.topics:
        topic = image.topics.get_by_id(data.topic_id)
        outcomes = []
        for wanted in data.partitions:
            index = wanted.partition_index
            partition = None if topic is None else topic.partition(index)
            if topic is None or partition is None:
                code = ErrorCode.UNKNOWN_TOPIC_ID if topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                outcomes.append(PartitionDataResponse(partition_index=index, error_code=code))
                continue
            isr = _new_isr(wanted)
            code = _problem(image, partition, wanted, request.broker_id, isr)
            if code is not ErrorCode.NONE:
                outcomes.append(PartitionDataResponse(partition_index=index, error_code=code))
                continue
            changed = _change(image, topic, partition, wanted, isr, topic_rules)
            after = partition
            if changed is not None:
                records.append(changed)
                after = merge_partition(partition, changed)
            if after.leader != request.broker_id:
                # The new ISR completed a reassignment after which the sender is no replica any more (KAFKA-13716).
                outcomes.append(PartitionDataResponse(partition_index=index, error_code=ErrorCode.NEW_LEADER_ELECTED))
                continue
            outcomes.append(
                PartitionDataResponse(
                    partition_index=index,
                    leader_id=after.leader,
                    leader_epoch=after.leader_epoch,
                    isr=list(after.isr),
                    leader_recovery_state=after.leader_recovery_state,
                    partition_epoch=after.partition_epoch,
                )
            )
        topics.append(TopicDataResponse(topic_id=data.topic_id, partitions=outcomes))
    return Decision(AlterPartitionResponse(topics=topics), records)


def _new_isr(wanted: PartitionData) -> Mapping[int, int]:
    """The proposed ISR: broker -> broker epoch, -1 if the leader did not send one."""
    if wanted.new_isr_with_epochs:
        return {state.broker_id: state.broker_epoch for state in wanted.new_isr_with_epochs}
    return dict.fromkeys(wanted.new_isr, -1)


def _problem(
    image: ClusterImage, partition: PartitionImage, wanted: PartitionData, sender: int, isr: Mapping[int, int]
) -> ErrorCode:
    """The first error, checked in Kafka's order (`validateAlterPartitionData`)."""
    if wanted.leader_epoch > partition.leader_epoch or wanted.partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER  # the sender has newer metadata: this is not the newest controller
    if wanted.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if sender != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if wanted.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    given = len(wanted.new_isr_with_epochs) or len(wanted.new_isr)
    if not isr or given != len(isr) or any(broker not in partition.replicas for broker in isr):
        return ErrorCode.INVALID_REQUEST
    if partition.leader not in isr:
        return ErrorCode.INVALID_REQUEST
    recovering = wanted.leader_recovery_state == LeaderRecoveryState.RECOVERING
    if recovering and (len(isr) > 1 or partition.leader_recovery_state == LeaderRecoveryState.RECOVERED):
        return ErrorCode.INVALID_REQUEST
    for broker_id, epoch in isr.items():
        broker = image.brokers.get(broker_id)
        if broker is None or not broker.is_active or epoch not in (-1, broker.epoch):
            return ErrorCode.INELIGIBLE_REPLICA
        joins = broker_id not in partition.isr
        if joins and not image.brokers.has_online_dir(broker_id, partition.directory_of(broker_id)):
            return ErrorCode.INELIGIBLE_REPLICA  # its disk was replaced: it must first report the new log directory
    return ErrorCode.NONE


def _change(
    image: ClusterImage,
    topic: TopicImage,
    partition: PartitionImage,
    wanted: PartitionData,
    isr: Mapping[int, int],
    topic_rules: TopicRules,
) -> PartitionChangeRecord | None:
    target = replace(Target.of(partition), isr=tuple(isr), recovery_state=wanted.leader_recovery_state)
    rules = topic_rules.rules(topic, partition, image.brokers.is_active)
    return change_partition(
        topic.topic_id, wanted.partition_index, partition, target, rules, topic_rules.election(topic)
    )
