"""Machine: keeps eligible leader replicas (KIP-966) correct when `min.insync.replicas` changes.

A replica is eligible because the leader committed no record while fewer than min.insync.replicas were in sync. A
smaller value breaks this reasoning, so that a change of the value clears the lists of eligible replicas. For the same
reason no single broker may have a value of its own (`ConfigurationControlManager`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from barnabas.core.errors import ErrorCode
from barnabas.server.metadata.config_view import ConfigView
from barnabas.server.metadata.controller.answers import RefusedError
from barnabas.server.metadata.features import ELR_VERSION
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.small import ConfigResourceKey, ResourceType
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.metadata.records.other import ConfigRecord
from barnabas.server.metadata.records.topics import ClearElrRecord, PartitionChangeRecord

MIN_ISR: Final = "min.insync.replicas"
_CLUSTER: Final = ConfigResourceKey(ResourceType.BROKER, "")


def elr_enabled(image: ClusterImage) -> bool:
    return image.features.level(ELR_VERSION) > 0


def records_to_enable(image: ClusterImage, static_config: Mapping[str, str]) -> list[MetadataRecord]:
    """The records that are needed when eligible.leader.replicas.version is enabled.

    They set min.insync.replicas for the cluster, if it is not set, and remove the values of single brokers. If the
    feature was enabled before, partitions can still have eligible replicas. A partition with an empty ISR keeps them,
    because nothing was committed since. For the others they are cleared, because min.insync.replicas may have been
    smaller while the feature was disabled."""
    records: list[MetadataRecord] = []
    if MIN_ISR not in image.configs.of(_CLUSTER):
        value = ConfigView(image.configs, node_id=-1, static=static_config).broker_value(MIN_ISR).value
        records.append(ConfigRecord(resource_type=ResourceType.BROKER, name=MIN_ISR, value=str(value)))
    records += [
        ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=MIN_ISR, value=None)
        for resource, configs in sorted(image.configs.by_resource.items(), key=lambda item: item[0].name)
        if resource.type == ResourceType.BROKER and resource.name and MIN_ISR in configs
    ]
    records += [
        PartitionChangeRecord(topic_id=topic.topic_id, partition_id=index, eligible_leader_replicas=[])
        for topic in image.topics
        for index, partition in enumerate(topic.partitions)
        if partition.elr and partition.isr
    ]
    return records


def records_after_change(image: ClusterImage, changes: Sequence[MetadataRecord]) -> list[MetadataRecord]:
    """The records that clear the eligible leader replicas of each topic whose min.insync.replicas is in `changes`, or
    of all topics if the value of the cluster is in `changes`."""
    if not elr_enabled(image):
        return []
    return [
        ClearElrRecord(topic_name=change.resource_name if change.resource_type == ResourceType.TOPIC else "")
        for change in changes
        if isinstance(change, ConfigRecord) and change.name == MIN_ISR
    ]


def check_min_isr(image: ClusterImage, resource: ConfigResourceKey, changes: Mapping[str, str | None]) -> None:
    """Raises RefusedError for a change of min.insync.replicas that is not allowed while
    eligible.leader.replicas.version is enabled."""
    if resource.type != ResourceType.BROKER or MIN_ISR not in changes or not elr_enabled(image):
        return
    if resource.name:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG, "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
        )
    if changes[MIN_ISR] is None:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
        )
