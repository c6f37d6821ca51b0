"""Port: what the leaders of mirror partitions need from the rest of the cluster.

The coordinator of a link is the leader of the partition of `__mirror_state` to which the link's name hashes. Methods
raise KafkaError; a retriable code, REQUEST_TIMED_OUT and NOT_COORDINATOR make the leader try again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from msgspec import Struct, field

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode
from barnabas.core.ids import TopicId
from barnabas.server.links.fetching.settings import LinkSettings
from barnabas.server.links.fetching.values import LinkDefinition, MirrorPosition, StoredMirror
from barnabas.server.replication.ports import LogBounds
from barnabas.server.storage.values import EpochEndOffset


class MirrorPartition(NamedTuple):
    """Names a mirror partition of this cluster. The coordinator's key is (link, topic id, partition)."""

    link: str
    topic: str
    topic_id: TopicId
    partition: int


class MirrorStates(Protocol):
    """The coordinators of links, as the leaders of mirror partitions use them."""

    async def definition(self, link: str) -> LinkDefinition | None:
        """The newest definition, or None if the link was deleted."""
        ...

    async def read(self, partition: MirrorPartition, leader_epoch: int) -> StoredMirror | None:
        """The stored state; None if there is none. Stores `leader_epoch`, so that an earlier leader cannot write any
        more. Raises FENCED_LEADER_EPOCH if a later leader has read or written."""
        ...

    async def write(self, partition: MirrorPartition, state: StoredMirror) -> None:
        """Store the state. A write that equals the stored state changes nothing. Raises FENCED_LEADER_EPOCH and
        FENCED_STATE_EPOCH (`StoredMirror`)."""
        ...


class MirrorController(Protocol):
    """What the leaders of mirror partitions want from the controller."""

    async def raise_leader_epoch(self, partition: MirrorPartition, leader_epoch: int, minimum: int) -> None:
        """Raise the leader epoch to at least `minimum`, with the same leader, ISR and replicas (a PartitionRecord).

        `leader_epoch` is the caller's: FENCED_LEADER_EPOCH if the partition has another one. The new epoch arrives with
        the next image. No effect if the epoch is at least `minimum` already.
        """
        ...

    async def raise_producer_ids(self, above: int) -> None:
        """Let no broker hand out a producer id of `above` or less from now on (a ProducerIdsRecord). Returns when the
        controller has committed this; brokers drop the blocks that they hold when the image arrives."""
        ...


class SourceRequests(Protocol):
    """Requests to the cluster that a link mirrors, over the connections of the link."""

    async def request(self, message: Any, node_id: int | None = None) -> Any:
        """The response of a node, or of any node, in the newest version that both sides have. Raises KafkaError."""
        ...


class SourcePartition(NamedTuple):
    """A partition in the source's metadata."""

    leader: int
    """The broker that leads the partition; -1 if there is none."""
    leader_epoch: int
    """-1 if the source does not say."""


class SourceTopic(Struct, frozen=True):
    """A topic in the source's metadata, or the error that the source has for its name."""

    error: ErrorCode
    topic_id: TopicId | None = None
    """The topic's id; None if the source has no topic ids."""
    partitions: Mapping[int, SourcePartition] = field(default_factory=dict)


class SourceFetch(Struct, frozen=True):
    """The entry of one partition in a Fetch request to the source."""

    topic_id: TopicId | None
    leader_epoch: int
    """The source's leader epoch, -1 if unknown."""
    fetch_offset: int
    last_fetched_epoch: int


SourceKey = tuple[str, int]
"""The key of a partition of the source: topic and partition."""


class SourceCall(NamedTuple):
    """One Fetch request, incremental if a fetch session is open (KIP-227)."""

    session_id: int
    session_epoch: int
    wanted: Sequence[tuple[SourceKey, SourceFetch]]
    forgotten: Sequence[tuple[SourceKey, SourceFetch]]
    with_ids: bool
    """Whether every partition of the session has a topic id."""


class SourceFetched(Struct, frozen=True):
    """One partition of the source's Fetch response."""

    key: SourceKey
    error: ErrorCode
    high_watermark: int
    log_start_offset: int
    records: Buffer
    diverging: EpochEndOffset | None


class SourceReply(Struct, frozen=True):
    """The source's Fetch response. `error` is the top-level error."""

    error: ErrorCode
    session_id: int
    throttle_time_ms: int
    partitions: Sequence[SourceFetched]


class SourceCluster(SourceRequests, Protocol):
    """The cluster that a link mirrors, over the connections of the link. The methods raise KafkaError."""

    async def run(self) -> None:
        """Own the connections until cancelled."""
        ...

    async def topics(self, names: Sequence[str]) -> Mapping[str, SourceTopic]:
        """Metadata of these topics, which are not created."""
        ...

    async def fetch(self, node_id: int, fetcher_id: int, call: SourceCall, settings: LinkSettings) -> SourceReply:
        """Fetch as a consumer with isolation level read_uncommitted."""
        ...

    async def bounds(self, node_id: int, key: SourceKey, leader_epoch: int) -> LogBounds:
        """The log start offset and the high watermark (ListOffsets, as a consumer)."""
        ...

    async def epoch_end(self, node_id: int, key: SourceKey, leader_epoch: int, epoch: int) -> EpochEndOffset:
        """OffsetForLeaderEpoch: where `epoch` ended on the source."""
        ...

    async def reports_divergence(self, node_id: int) -> bool:
        """Whether the node's responses to Fetch report diverging epochs (version 12)."""
        ...


OpenSource = Callable[[LinkDefinition], SourceCluster]
"""Opens no connection yet. Raises ConfigError if the definition is wrong."""


class OppositeMirrors(Protocol):
    """What the source says about its own mirrors, if it is a cluster that has links."""

    async def stopped_position(self, source: SourceRequests, partition: MirrorPartition) -> MirrorPosition | None:
        """The stored position of the source's mirror of this partition. None if the source has no such mirror, or has
        no links at all. Raises INVALID_REQUEST with the reason while that mirror is not STOPPED."""
        ...
