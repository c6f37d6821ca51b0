"""Codec: writes an image as metadata records, in the order of Kafka's `MetadataImage.write`.

Replaying the records onto an empty image gives an equal image. A `.checkpoint` file contains these records.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.nodes import BrokerImage, ControllerImage
from barnabas.server.metadata.image.small import METADATA_VERSION
from barnabas.server.metadata.image.topics import PartitionImage, TopicImage
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.metadata.records.nodes import (
    BrokerEndpoint,
    BrokerFeature,
    ControllerEndpoint,
    ControllerFeature,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from barnabas.server.metadata.records.other import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EntityData,
    FeatureLevelRecord,
    ProducerIdsRecord,
    UserScramCredentialRecord,
)
from barnabas.server.metadata.records.topics import PartitionRecord, TopicRecord


def image_records(image: ClusterImage) -> Iterator[MetadataRecord]:
    """Yield every record of a snapshot of `image`. The records are created lazily, so that they are not all in memory
    at the same time."""
    levels = dict(sorted(image.features.levels.items()))
    if METADATA_VERSION in levels:  # first, because the level decides how later records are read
        yield FeatureLevelRecord(name=METADATA_VERSION, feature_level=levels.pop(METADATA_VERSION))
    for feature, level in levels.items():
        yield FeatureLevelRecord(name=feature, feature_level=level)
    for broker in image.brokers:
        yield broker_record(broker)
    for _, controller in sorted(image.brokers.controllers.items()):
        yield _controller_record(controller)
    for topic in image.topics:
        yield from topic_records(topic)
    for resource, configs in sorted(image.configs.by_resource.items()):
        for name, value in sorted(configs.items()):
            yield ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)
    for entity, limits in image.quotas.by_entity.items():
        for key, limit in sorted(limits.items()):
            parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
            yield ClientQuotaRecord(entity=parts, key=key, value=limit)
    if image.producer_ids.next_producer_id > 0:
        yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.producer_ids.next_producer_id)
    yield from _security_records(image)


def broker_record(broker: BrokerImage) -> RegisterBrokerRecord:
    """The record that registers a broker with its current state."""
    return RegisterBrokerRecord(
        broker_id=broker.broker_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in broker.endpoints
        ],
        features=[
            BrokerFeature(name=name, min_supported_version=levels.min_level, max_supported_version=levels.max_level)
            for name, levels in broker.features
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs),
        cordoned_log_dirs=None if broker.cordoned_log_dirs is None else list(broker.cordoned_log_dirs),
    )


def topic_records(topic: TopicImage) -> Iterator[MetadataRecord]:
    """The records of a topic and of its partitions."""
    yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
    for index, partition in enumerate(topic.partitions):
        yield partition_record(topic, index, partition)


def partition_record(topic: TopicImage, index: int, partition: PartitionImage) -> PartitionRecord:
    """The record that describes a partition's current state."""
    return PartitionRecord(
        partition_id=index,
        topic_id=topic.topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories),
        eligible_leader_replicas=list(partition.elr) or None,
        last_known_elr=list(partition.last_known_elr) or None,
    )


def _controller_record(controller: ControllerImage) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        controller_id=controller.controller_id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=[
            ControllerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in controller.endpoints
        ],
        features=[
            ControllerFeature(name=name, min_supported_version=levels.min_level, max_supported_version=levels.max_level)
            for name, levels in controller.features
        ],
    )


def _security_records(image: ClusterImage) -> Iterator[MetadataRecord]:
    for acl in image.acls.by_id.values():
        yield AccessControlEntryRecord(
            id=acl.acl_id,
            resource_type=acl.resource_type,
            resource_name=acl.resource_name,
            pattern_type=acl.pattern_type,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission_type,
        )
    for (mechanism, user), credential in image.scram.credentials.items():
        yield UserScramCredentialRecord(
            name=user,
            mechanism=mechanism,
            salt=credential.salt,
            stored_key=credential.stored_key,
            server_key=credential.server_key,
            iterations=credential.iterations,
        )
    for token in image.tokens.by_id.values():
        yield DelegationTokenRecord(
            owner=token.owner,
            requester=token.requester,
            renewers=list(token.renewers),
            issue_timestamp=token.issue_timestamp,
            max_timestamp=token.max_timestamp,
            expiration_timestamp=token.expiration_timestamp,
            token_id=token.token_id,
        )


class SnapshotPolicy(Struct, frozen=True):
    """When a snapshot is due (`metadata.log.max.record.bytes.between.snapshots`,
    `metadata.log.max.snapshot.interval.ms`)."""

    max_bytes: int = 20 * 1024 * 1024
    max_interval_ms: int = 3_600_000
    """0 disables the limit by time."""

    def is_due(self, bytes_since: int, snapshot_ms: int, now_ms: int) -> bool:
        """Whether a snapshot is due at `now_ms`. `bytes_since` is the size of the records since the last snapshot, and
        `snapshot_ms` the time of that snapshot. Without new records no snapshot is due."""
        if bytes_since <= 0:
            return False
        return bytes_since >= self.max_bytes or (
            self.max_interval_ms > 0 and now_ms - snapshot_ms >= self.max_interval_ms
        )
