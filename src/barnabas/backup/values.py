"""Value: what a backup knows about a cluster at the time of one run.

A run names every object that it needs, also those that earlier runs have written. Offsets are exclusive at their ends.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct, field

from barnabas.core.ids import TopicPartition


class StoredBatches(Struct, frozen=True):
    """An object with consecutive record batches of one partition, byte for byte as a broker sent them."""

    name: str
    start: int
    """The base offset of the first batch."""
    end: int
    """The offset after the last batch."""
    size: int
    sha256: str
    batches: int
    last_epoch: int
    """The leader epoch of the last batch."""
    transactional: bool = False
    """Whether there are batches of transactions, or their markers."""


class PartitionBackup(Struct, frozen=True):
    """The records of one partition: those of its objects from `log_start` on."""

    partition: int
    log_start: int
    end: int
    """The high watermark up to which the run has read."""
    objects: tuple[StoredBatches, ...] = ()

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last batch, or -1."""
        return self.objects[-1].last_epoch if self.objects else -1

    @property
    def size(self) -> int:
        return sum(stored.size for stored in self.objects)


class TopicBackup(Struct, frozen=True):
    """A topic: its id (Kafka's text form), the configs set on it, and its partitions by number."""

    name: str
    topic_id: str
    replication_factor: int
    configs: dict[str, str]
    partitions: tuple[PartitionBackup, ...]

    @property
    def size(self) -> int:
        return sum(partition.size for partition in self.partitions)


class BackedUpOffset(Struct, frozen=True):
    """The position of a group in a partition."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class GroupBackup(Struct, frozen=True):
    """The committed offsets of a group. `type` is classic, consumer or share."""

    group_id: str
    type: str
    offsets: tuple[BackedUpOffset, ...]


class AclBackup(Struct, frozen=True):
    """An ACL, by the names of Kafka's enums."""

    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str


class UserBackup(Struct, frozen=True):
    """A user with SCRAM credentials: the iterations of each mechanism. No API returns the credentials themselves."""

    name: str
    mechanisms: dict[str, int]


class QuotaBackup(Struct, frozen=True):
    """The quotas of an entity. A name of None is the default entity of its type."""

    entity: dict[str, str | None]
    quotas: dict[str, float]


class RunManifest(Struct, frozen=True):
    """One run of `barnabas backup run`: the cluster as it was then."""

    id: str
    cluster_id: str
    started_ms: int
    finished_ms: int
    complete: bool
    """False for the state that a run stores from time to time, so that the next run need not read all again."""
    base: str | None
    """The run whose objects this run has continued."""
    added_bytes: int
    """The size of the objects that this run has written."""
    topics: tuple[TopicBackup, ...]
    groups: tuple[GroupBackup, ...] = ()
    acls: tuple[AclBackup, ...] | None = None
    """The ACLs; None if the cluster has no authorizer, or did not show them."""
    users: tuple[UserBackup, ...] | None = None
    """The users; None if the cluster did not show them."""
    quotas: tuple[QuotaBackup, ...] | None = None
    """The quotas; None if the cluster did not show them."""
    notes: tuple[str, ...] = field(default=())
    """What the run could not read, and what has happened to the cluster's logs since the run before."""

    @property
    def size(self) -> int:
        return sum(topic.size for topic in self.topics)

    def partitions(self) -> Iterator[tuple[TopicPartition, PartitionBackup]]:
        for topic in self.topics:
            for partition in topic.partitions:
                yield TopicPartition(topic.name, partition.partition), partition

    def objects(self) -> Iterator[StoredBatches]:
        for _, partition in self.partitions():
            yield from partition.objects
