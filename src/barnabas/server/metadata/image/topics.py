"""Value: the topics and partitions of a cluster at one metadata offset.

Sized for a million partitions: a partition is one struct of small tuples, and equal tuples are shared when they are
read from the log. A topic holds its partitions in a tuple indexed by partition number. A change of one partition
replaces that tuple and the topic's two map entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from uuid import UUID

from msgspec import Struct, field

from barnabas.core.ids import NO_LEADER, TopicId
from barnabas.server.metadata.image.persistent import PersistentMap

UNASSIGNED_DIRECTORY = UUID(int=0)
"""KIP-858: the broker has not reported the replica's log directory yet (`DirectoryId.UNASSIGNED`)."""
LOST_DIRECTORY = UUID(int=1)
"""KIP-858: the replica's log directory is lost (`DirectoryId.LOST`)."""
MIGRATING_DIRECTORY = UUID(int=2)
"""KIP-858: the directory is unknown, because the record is older than directory ids (`DirectoryId.MIGRATING`)."""


class LeaderRecoveryState(IntEnum):
    """Whether the leader was elected uncleanly and has not finished recovering (KIP-704)."""

    RECOVERED = 0
    RECOVERING = 1


class PartitionImage(Struct, frozen=True):
    """One partition (`PartitionRegistration` of Kafka)."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    leader_recovery_state: int = LeaderRecoveryState.RECOVERED
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    directories: tuple[UUID, ...] = ()
    """The directory of each replica, in the order of `replicas`."""

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER

    @property
    def preferred_leader(self) -> int:
        return self.replicas[0] if self.replicas else NO_LEADER

    @property
    def is_reassigning(self) -> bool:
        return bool(self.removing_replicas or self.adding_replicas)

    def directory_of(self, broker_id: int) -> UUID:
        """The log directory of one replica; UNASSIGNED when unknown."""
        for replica, directory in zip(self.replicas, self.directories, strict=False):
            if replica == broker_id:
                return directory
        return UNASSIGNED_DIRECTORY


class TopicImage(Struct, frozen=True):
    """One topic; `partitions[n]` is partition n."""

    name: str
    topic_id: TopicId
    partitions: tuple[PartitionImage, ...] = ()

    def partition(self, index: int) -> PartitionImage | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


class TopicsImage(Struct, frozen=True):
    """All topics, found by name or by id."""

    by_name: PersistentMap[str, TopicImage] = field(default_factory=PersistentMap)
    by_id: PersistentMap[TopicId, TopicImage] = field(default_factory=PersistentMap)

    def get(self, name: str) -> TopicImage | None:
        topic: TopicImage | None = self.by_name.get(name)
        return topic

    def get_by_id(self, topic_id: TopicId) -> TopicImage | None:
        topic: TopicImage | None = self.by_id.get(topic_id)
        return topic

    def partition(self, name: str, index: int) -> PartitionImage | None:
        topic = self.get(name)
        return None if topic is None else topic.partition(index)

    def partition_by_id(self, topic_id: TopicId, index: int) -> PartitionImage | None:
        topic = self.get_by_id(topic_id)
        return None if topic is None else topic.partition(index)

    def __len__(self) -> int:
        return len(self.by_name)

    def __iter__(self) -> Iterator[TopicImage]:
        """Iterate in a stable order, which is not alphabetical. Sort topics by name where people see them."""
        return iter(self.by_name.values())

    def __contains__(self, name: object) -> bool:
        return name in self.by_name

    def names(self) -> list[str]:
        return sorted(self.by_name)

    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self)
