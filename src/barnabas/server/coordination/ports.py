"""Port: what the coordinators need from the node: partitions to write to, and the catalog of topics.

The runtime has one shard (state machine) for each partition of its topic that this node leads. It writes through a
`PartitionWriter`, which the node implements with its replicated partitions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Protocol

from msgspec import Struct

from barnabas.core.buffers import Buffer
from barnabas.core.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicId, TopicPartition


class LogRecord(Struct, frozen=True):
    """One encoded record of a coordinator's topic. A `value` of None is a tombstone."""

    key: bytes
    value: bytes | None


class ProducerIdAndEpoch(Struct, frozen=True):
    """A producer id with its epoch (Kafka's ProducerIdAndEpoch)."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH


class Marker(Struct, frozen=True):
    """A transaction marker: a control batch that commits or aborts the producer's open transaction."""

    producer: ProducerIdAndEpoch
    coordinator_epoch: int
    committed: bool


class PartitionWriter(Protocol):
    """The replicated partitions of a coordinator's topic. Only `wait_committed` and `read_log` may wait.

    The methods raise `KafkaError` with the partition's error code (NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS,
    MESSAGE_TOO_LARGE, KAFKA_STORAGE_ERROR ...). The runtime translates the code for the coordinator's clients.
    """

    def append(
        self, tp: TopicPartition, records: Sequence[LogRecord], now_ms: int, producer: ProducerIdAndEpoch | None = None
    ) -> int:
        """Append the records as one batch, a transactional one if `producer` is given. Returns the log end offset after
        the batch. Each record has the timestamp `now_ms`."""
        ...

    def append_marker(self, tp: TopicPartition, marker: Marker, now_ms: int) -> int:
        """Append an EndTxn control batch. Returns the log end offset after the batch."""
        ...

    def high_watermark(self, tp: TopicPartition) -> int:
        """The end of the committed records. Raises NOT_LEADER_OR_FOLLOWER if this node is not the leader."""
        ...

    async def wait_committed(self, tp: TopicPartition, offset: int) -> None:
        """Return when the high watermark is at least `offset`. Raises KafkaError if this node
        loses the leadership."""
        ...

    def read_log(self, tp: TopicPartition) -> AsyncIterator[Buffer]:
        """All batches from the log start offset to the log end offset at the time of the call, in chunks of whole
        batches."""
        ...


class CatalogTopic(Struct, frozen=True):
    """The metadata of a topic that coordinators use. `racks[p]` are the racks of the replicas of partition p."""

    name: str
    topic_id: TopicId
    partitions: int
    racks: tuple[frozenset[str], ...] = ()


class TopicCatalog(Protocol):
    """The topics of the newest metadata image."""

    def by_name(self, name: str) -> CatalogTopic | None: ...

    def by_id(self, topic_id: TopicId) -> CatalogTopic | None: ...

    def existing(self, names: Iterable[str]) -> set[str]:
        """Those of the names that are topics."""
        ...

    def names(self) -> Sequence[str]:
        """All topic names, sorted."""
        ...


class GroupRequestContext(Protocol):
    """The facts about a request, besides its message, that the group coordinator uses. The broker's request context
    implements this protocol."""

    @property
    def api_version(self) -> int: ...

    @property
    def client_id(self) -> str | None: ...

    @property
    def client_host(self) -> str: ...

    @property
    def may_describe(self) -> Callable[[str], bool] | None:
        """Whether the client may describe a topic, by its name; None if it may describe every topic."""
        ...
