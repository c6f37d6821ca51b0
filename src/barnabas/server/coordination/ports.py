"""Port: what the coordinators need from the node: a partition to write to, and names of topics.

The runtime owns one *shard* (a machine) per partition of its topic that this node leads. It writes through
`PartitionWriter`, which the node fills with an adapter over the replicated partitions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from msgspec import Struct

from barnabas.core.buffers import Buffer
from barnabas.core.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicId, TopicPartition


class LogRecord(Struct, frozen=True):
    """One record as it stands in the coordinator's topic; `value` None is a tombstone."""

    key: bytes
    value: bytes | None


class ProducerIdAndEpoch(Struct, frozen=True):
    """The producer on whose behalf transactional offsets are written."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH


class Marker(Struct, frozen=True):
    """The end of a transaction: a control batch that commits or aborts what the producer wrote."""

    producer: ProducerIdAndEpoch
    coordinator_epoch: int
    committed: bool


class PartitionWriter(Protocol):
    """The replicated partition under a coordinator. Everything but the two waiting methods is immediate.

    A refusal is a `KafkaError` with the code the partition gave (NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS,
    MESSAGE_TOO_LARGE, KAFKA_STORAGE_ERROR ...); the runtime translates it for group and transaction clients.
    """

    def append(
        self, tp: TopicPartition, records: Sequence[LogRecord], now_ms: int, producer: ProducerIdAndEpoch | None = None
    ) -> int:
        """Append the records as one batch (transactional when `producer` is given). Returns the log end
        offset after it.

        The batch carries `now_ms` as every record's timestamp; it is an internal write (origin: coordinator).
        """
        ...

    def append_marker(self, tp: TopicPartition, marker: Marker, now_ms: int) -> int:
        """Append an EndTxn control batch. Returns the log end offset after it."""
        ...

    def high_watermark(self, tp: TopicPartition) -> int:
        """Offsets below this are committed. Raises NOT_LEADER_OR_FOLLOWER when the node does not lead it."""
        ...

    async def wait_committed(self, tp: TopicPartition, offset: int) -> None:
        """Return when the high watermark is at least `offset`. Raises when the node stops leading the partition."""
        ...

    def read_log(self, tp: TopicPartition) -> AsyncIterator[Buffer]:
        """All batches from the log's start to its end at the time of the call, in chunks of whole batches."""
        ...


class CatalogTopic(Struct, frozen=True):
    """What a coordinator may know of a topic. `racks[p]` are the racks of the replicas of partition p."""

    name: str
    topic_id: TopicId
    partitions: int
    racks: tuple[frozenset[str], ...] = ()


class TopicCatalog(Protocol):
    """The topics of the newest metadata image."""

    def by_name(self, name: str) -> CatalogTopic | None: ...

    def by_id(self, topic_id: TopicId) -> CatalogTopic | None: ...

    def names(self) -> Sequence[str]:
        """All topic names, sorted."""
        ...


class GroupRequestContext(Protocol):
    """What a coordinator may know of a request besides its message. The broker's own context satisfies it."""

    @property
    def api_version(self) -> int: ...

    @property
    def client_id(self) -> str | None: ...

    @property
    def client_host(self) -> str: ...
