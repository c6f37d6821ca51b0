"""Machine: the log directories of replicas, and the changes when a directory goes offline (KIP-858).

A broker with several log directories reports the directory of each replica (AssignReplicasToDirs), and its heartbeats
list the offline directories. A replica in an offline directory cannot lead and is not in sync, although its broker is
alive.

A replica that moves from a lost directory to another one starts with an empty log. It no longer has the committed
records, so it leaves the ISR and the ELR.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from barnabas.core.decision import Decision
from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryDataResponse,
    PartitionDataResponse,
    TopicDataResponse,
)
from barnabas.server.metadata.controller.partition_change import Target, change_partition
from barnabas.server.metadata.controller.settings import DecideContext
from barnabas.server.metadata.controller.topic_rules import TopicRules
from barnabas.server.metadata.image.cluster import BrokerImage, ClusterImage, PartitionImage, TopicImage
from barnabas.server.metadata.image.topics import UNASSIGNED_DIRECTORY
from barnabas.server.metadata.image.topics_delta import merge_partition
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.metadata.records.nodes import BrokerRegistrationChangeRecord
from barnabas.server.metadata.records.topics import PartitionChangeRecord

REPLICAS_MAX: Final = 10_000
"""The most replicas that one request may assign; Kafka's brokers send 2,250."""


def decide_assign_replicas_to_dirs(
    image: ClusterImage, request: AssignReplicasToDirsRequest, ctx: DecideContext
) -> Decision[MetadataRecord, AssignReplicasToDirsResponse]:
    """Record the log directory of each replica. Each replica succeeds or fails by itself."""
    broker = image.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return Decision(AssignReplicasToDirsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    if sum(len(topic.partitions) for directory in request.directories for topic in directory.topics) > REPLICAS_MAX:
        return Decision(AssignReplicasToDirsResponse(error_code=ErrorCode.INVALID_REQUEST))
    topic_rules = TopicRules(image, ctx)
    records: list[MetadataRecord] = []
    directories = []
    for directory in request.directories:
        topics = []
        for wanted in directory.topics:
            topic = image.topics.get_by_id(wanted.topic_id)
            outcomes = []
            for index in (data.partition_index for data in wanted.partitions):
                partition = None if topic is None else topic.partition(index)
                code = _problem(topic, partition, broker.broker_id)
                if topic is not None and partition is not None and code is ErrorCode.NONE:
                    records += _assign(image, topic, index, partition, broker, directory.id, topic_rules)
                outcomes.append(PartitionDataResponse(partition_index=index, error_code=code))
            topics.append(TopicDataResponse(topic_id=wanted.topic_id, partitions=outcomes))
        directories.append(DirectoryDataResponse(id=directory.id, topics=topics))
    return Decision(AssignReplicasToDirsResponse(directories=directories), records)


def records_without_directories(
    image: ClusterImage, broker: BrokerImage, offline: Collection[UUID], ctx: DecideContext
) -> list[MetadataRecord]:
    """Remove the replicas in directories that have just gone offline from their ISRs, and elect new leaders.

    The broker has other, online directories; a broker without any is fenced (`decide_heartbeat`)."""
    lost = frozenset(directory for directory in broker.log_dirs if directory in offline)
    if not lost:
        return []
    topic_rules = TopicRules(image, ctx)
    records: list[MetadataRecord] = []
    for topic in image.topics:
        for index, partition in enumerate(topic.partitions):
            if broker.broker_id in partition.replicas and partition.directory_of(broker.broker_id) in lost:
                records += _without_replica(image, topic, index, partition, broker.broker_id, topic_rules)
    left = [directory for directory in broker.log_dirs if directory not in lost]
    assert left, "a broker without directories is fenced"
    records.append(BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, log_dirs=left))
    return records


def _problem(topic: TopicImage | None, partition: PartitionImage | None, broker_id: int) -> ErrorCode:
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if broker_id in partition.replicas else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _assign(
    image: ClusterImage,
    topic: TopicImage,
    index: int,
    partition: PartitionImage,
    broker: BrokerImage,
    directory: UUID,
    topic_rules: TopicRules,
) -> Sequence[MetadataRecord]:
    known = partition.directory_of(broker.broker_id)
    if known == directory:
        return ()
    present = dict(zip(partition.replicas, partition.directories, strict=False))
    present[broker.broker_id] = directory
    record = PartitionChangeRecord(
        topic_id=topic.topic_id,
        partition_id=index,
        directories=[present.get(replica, UNASSIGNED_DIRECTORY) for replica in partition.replicas],
    )
    begun_anew = directory in broker.log_dirs and _is_lost(image, broker.broker_id, known)
    if begun_anew and broker.broker_id in partition.elr:
        record.eligible_leader_replicas = [replica for replica in partition.elr if replica != broker.broker_id]
    if begun_anew and broker.broker_id in partition.last_known_elr:
        record.last_known_elr = []
    moved = merge_partition(partition, record)
    if begun_anew:
        lost = (broker.broker_id,)
        without = _without_replica(image, topic, index, moved, broker.broker_id, topic_rules, lost)
        for change in without:
            if broker.broker_id in (change.last_known_elr or ()):
                change.last_known_elr = []
        return (record, *without)
    if directory in broker.log_dirs and moved.has_leader:
        return (record,)
    if directory in broker.log_dirs:  # the replica may lead now
        rules = topic_rules.rules(topic, moved, image.brokers.is_active)
        elected = change_partition(topic.topic_id, index, moved, Target.of(moved), rules, topic_rules.election(topic))
        return (record,) if elected is None else (record, elected)
    return (record, *_without_replica(image, topic, index, moved, broker.broker_id, topic_rules))


def _is_lost(image: ClusterImage, broker_id: int, directory: UUID) -> bool:
    """Whether `directory` is no longer online. A replica that moves from there to another directory starts with an
    empty log."""
    return not image.brokers.has_online_dir(broker_id, directory)


def _without_replica(
    image: ClusterImage,
    topic: TopicImage,
    index: int,
    partition: PartitionImage,
    broker_id: int,
    topic_rules: TopicRules,
    lost: Collection[int] = (),
) -> Sequence[PartitionChangeRecord]:
    """Remove the replica on broker `broker_id` from the ISR. The brokers in `lost` may have lost records, so they are
    also removed from the eligible leader replicas."""
    target = replace(Target.of(partition), isr=tuple(replica for replica in partition.isr if replica != broker_id))
    usable = _all_but(broker_id, image.brokers.is_active)
    rules = topic_rules.rules(topic, partition, usable, unclean_shutdown=lost)
    record = change_partition(topic.topic_id, index, partition, target, rules, topic_rules.election(topic))
    return () if record is None else (record,)


def _all_but(broker_id: int, is_usable: Callable[[int], bool]) -> Callable[[int], bool]:
    return lambda broker: broker != broker_id and is_usable(broker)
