"""Table: records about topics and partitions. Names, keys, fields and versions are those of Kafka 4.3."""

from __future__ import annotations

from uuid import UUID

from barnabas.protocol.wire.schema import array, int8, int32, string, uuid
from barnabas.server.metadata.records.base import MetadataRecord


class TopicRecord(MetadataRecord, key=2, versions="0", flexible="0+"):
    """A new topic; the records of its partitions follow."""

    name: str = string()
    topic_id: UUID = uuid()


class PartitionRecord(MetadataRecord, key=3, versions="0-2", flexible="0+"):
    """The whole state of a partition."""

    partition_id: int = int32(default=-1)
    topic_id: UUID = uuid()
    replicas: list[int] = array(int32)
    isr: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32)
    leader: int = int32(default=-1)
    leader_recovery_state: int = int8(tag=0)
    leader_epoch: int = int32(default=-1)
    partition_epoch: int = int32(default=-1)
    directories: list[UUID] = array(uuid, "1+")
    eligible_leader_replicas: list[int] | None = array(int32, "2+", null="2+", default=None, tag=1)
    last_known_elr: list[int] | None = array(int32, "2+", null="2+", default=None, tag=2)


class PartitionChangeRecord(MetadataRecord, key=5, versions="0-2", flexible="0+"):
    """A change of a partition. Fields that are not set do not change.

    A leader of -2 means no change; -1 means that the partition has no leader."""

    partition_id: int = int32(default=-1)
    topic_id: UUID = uuid()
    isr: list[int] | None = array(int32, null="0+", default=None, tag=0)
    leader: int = int32(default=-2, tag=1)
    replicas: list[int] | None = array(int32, null="0+", default=None, tag=2)
    removing_replicas: list[int] | None = array(int32, null="0+", default=None, tag=3)
    adding_replicas: list[int] | None = array(int32, null="0+", default=None, tag=4)
    leader_recovery_state: int = int8(default=-1, tag=5)
    directories: list[UUID] | None = array(uuid, "1+", null="1+", default=None, tag=8)
    eligible_leader_replicas: list[int] | None = array(int32, "2+", null="2+", default=None, tag=6)
    last_known_elr: list[int] | None = array(int32, "2+", null="2+", default=None, tag=7)


class RemoveTopicRecord(MetadataRecord, key=9, versions="0", flexible="0+"):
    """A topic was deleted, with its partitions and its configs."""

    topic_id: UUID = uuid()


class ClearElrRecord(MetadataRecord, key=28, versions="0", flexible="0+"):
    """The eligible leader replicas of a topic, or of all topics, are cleared (KIP-966)."""

    topic_name: str = string()
