"""Value: the arguments and results of the clients: records, offsets, and the results of the admin client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Final, Generic, NamedTuple, TypeVar
from uuid import UUID

from barnabas.client.cluster.metadata import BrokerAddress
from barnabas.client.cluster.metadata import TopicDescription as TopicDescription
from barnabas.core.buffers import Buffer
from barnabas.core.ids import NO_TOPIC_ID, TopicPartition

K = TypeVar("K")
V = TypeVar("V")

Headers = Sequence[tuple[str, bytes | None]]

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
"""The special timestamps of ListOffsets. Values of at least 0 are milliseconds since the epoch."""


class IsolationLevel(IntEnum):
    """Whether a consumer reads records of open and aborted transactions."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1

    @classmethod
    def parse(cls, text: str) -> IsolationLevel:
        return cls[text.upper()]


# -- records -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """The topic, partition and offset of a produced record. `offset` is -1 with acks=0."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    serialized_key_size: int = -1
    serialized_value_size: int = -1

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class ConsumerRecord(NamedTuple, Generic[K, V]):
    """One consumed record. (A named tuple is the fastest to construct; `protocol.records.rows` depends on the order
    of the fields.)"""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    """0: set by the producer, 1: set by the broker on append."""
    key: K
    value: V
    headers: Headers
    leader_epoch: int = -1
    delivery_count: int | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """`count` records of one partition that were written with consecutive offsets from `offset` on."""

    offset: int
    count: int


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed position: the offset of the next record to read."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
    topic_id: UUID = field(default=NO_TOPIC_ID, compare=False, repr=False)
    """The id of the topic that the offset belongs to, if it is known. A topic that is deleted and created again gets
    another id."""


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """A result of `list_offsets`. `offset` is -1 when no record is at or after the timestamp."""

    offset: int
    timestamp: int = -1
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """Whole record batches of one partition as they were received, not yet decoded.

    `buffer` may begin with records before `position` (a batch is never cut) and end with a partial batch.
    """

    partition: TopicPartition
    position: int
    buffer: Buffer
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...] = ()
    """(producer id, first offset) of the aborted transactions in the buffer."""
    end: int = -1
    """The offset after the last whole batch; `position` when there is no whole one."""
    end_epoch: int = -1
    """The leader epoch of that last batch, or -1."""


@dataclass(frozen=True, slots=True)
class SubscriptionPattern:
    """Topics to subscribe to as an RE2 expression that the broker matches (KIP-848: `group.protocol=consumer`)."""

    pattern: str


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """The identity of a prepared transaction (KIP-939). Store its text with the other parts of the two-phase commit."""

    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.epoch}"

    @classmethod
    def parse(cls, text: str) -> PreparedTransaction:
        """The inverse of `str`. Raises ValueError."""
        producer_id, separator, epoch = text.partition(":")
        if not separator:
            raise ValueError(f"{text!r} is not the text of a prepared transaction, like 4000:7.")
        return cls(int(producer_id), int(epoch))


@dataclass(frozen=True, slots=True)
class HandedOverTransaction:
    """A transaction whose producer has handed it over: any program can end it by passing these three values to
    `AsyncAdmin.end_transaction`."""

    transactional_id: str
    producer_id: int
    epoch: int


# -- admin: topics -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 stands for the broker's default. If `replica_assignment` is set, it replaces
    `num_partitions` and `replication_factor`."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | None] = field(default_factory=dict)
    replica_assignment: Mapping[int, Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A created topic."""

    name: str
    topic_id: UUID = NO_TOPIC_ID
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicListing:
    """One line of a topic list."""

    name: str
    topic_id: UUID
    is_internal: bool
    partition_count: int


# -- admin: configs ----------------------------------------------------------------------------------------------------


class ConfigResourceType(IntEnum):
    """The types of resources with configs; the values are those of the protocol."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """The source of a config's value."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class AlterOp(IntEnum):
    """The operations of an incremental change; the values are those of the protocol."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """A resource with configs, for example `ConfigResource.topic("orders")`. A broker's name is its id; "" means all
    brokers."""

    type: ConfigResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        return cls(ConfigResourceType.TOPIC, name)

    @classmethod
    def broker(cls, broker_id: int | None = None) -> ConfigResource:
        return cls(ConfigResourceType.BROKER, "" if broker_id is None else str(broker_id))

    @classmethod
    def group(cls, group_id: str) -> ConfigResource:
        return cls(ConfigResourceType.GROUP, group_id)


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A source of a config's value. `ConfigEntry.synonyms` has the sources in order of precedence."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One config of a resource. `value` is None for a sensitive config."""

    name: str
    value: str | None
    source: ConfigSource = ConfigSource.UNKNOWN
    is_read_only: bool = False
    is_sensitive: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None
    type: int = 0

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One incremental change; APPEND and SUBTRACT take list elements with commas between them."""

    name: str
    value: str | None
    op: AlterOp = AlterOp.SET


# -- admin: cluster and log directories --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster, its brokers and its controller."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[BrokerAddress, ...]
    fenced: frozenset[int] = frozenset()
    """The ids of those among `brokers` that are fenced."""


@dataclass(frozen=True, slots=True)
class ReplicaSize:
    """One replica in a log directory."""

    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """One log directory of one broker."""

    path: str
    replicas: Mapping[TopicPartition, ReplicaSize]
    total_bytes: int = -1
    usable_bytes: int = -1
    is_cordoned: bool = False


class TopicPartitionReplica(NamedTuple):
    """A partition's replica on one broker."""

    topic: str
    partition: int
    broker_id: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}-{self.broker_id}"


@dataclass(frozen=True, slots=True)
class ReplicaLogDirs:
    """The log directory of a replica, and the directory to which the replica is moving (`future`). A directory that
    does not exist is None, with a lag of -1."""

    current: str | None = None
    current_offset_lag: int = -1
    future: str | None = None
    future_offset_lag: int = -1
    """The number of records that the copy in the `future` directory lacks."""


# -- admin: groups -----------------------------------------------------------------------------------------------------


class GroupState(Enum):
    """The states of all kinds of groups, by the names on the wire."""

    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"

    @classmethod
    def parse(cls, text: str) -> GroupState:
        return next((state for state in cls if state.value.lower() == text.lower()), cls.UNKNOWN)


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One line of a group list. `type` is classic, consumer, share or streams; empty from old brokers."""

    group_id: str
    protocol_type: str
    state: GroupState = GroupState.UNKNOWN
    type: str = ""


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """One member of a group and what it is assigned."""

    member_id: str
    client_id: str
    client_host: str
    group_instance_id: str | None = None
    assignment: frozenset[TopicPartition] = frozenset()
    target_assignment: frozenset[TopicPartition] | None = None
    member_epoch: int | None = None
    subscribed_topics: tuple[str, ...] = ()
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group, its members and its coordinator."""

    group_id: str
    type: str
    protocol_type: str
    state: GroupState
    assignor: str
    members: tuple[MemberDescription, ...]
    coordinator: int
    group_epoch: int | None = None
    target_assignment_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """The identity of a consumer in its group, for commits and for `send_offsets_to_transaction` (KIP-447)."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    topic_ids: Mapping[TopicPartition, UUID] = field(default_factory=dict, compare=False, repr=False)
    """The ids of the topics from which the consumer reads, for offsets without one."""
