"""Port: what a broker's replicas need of other brokers and of the controller, in values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from msgspec import Struct

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode
from barnabas.core.ids import TopicId, TopicPartition
from barnabas.server.replication.config import ReplicationConfig
from barnabas.server.replication.rules.follower import FetchFrom
from barnabas.server.replication.rules.isr import CommittedIsr
from barnabas.server.replication.rules.leader import IsrProposal
from barnabas.server.storage.values import EpochEndOffset

PartitionKey = tuple[TopicId, int]


class FetchCall(NamedTuple):
    """One Fetch of a follower, incremental where it has a session (KIP-227)."""

    session_id: int
    session_epoch: int
    wanted: Sequence[tuple[PartitionKey, FetchFrom]]
    forgotten: Sequence[PartitionKey]


class Fetched(Struct, frozen=True):
    """What the leader says of one partition."""

    key: PartitionKey
    error: ErrorCode
    high_watermark: int
    log_start_offset: int
    records: Buffer
    diverging: EpochEndOffset | None


class FetchReply(Struct, frozen=True):
    """`error` is that of the request as a whole; `session_id` is 0 when there is no session."""

    error: ErrorCode
    session_id: int
    partitions: Sequence[Fetched]


class LogBounds(NamedTuple):
    """Where the leader's log begins and ends, or why it does not say."""

    error: ErrorCode
    log_start_offset: int = -1
    log_end_offset: int = -1


class IsrAnswer(Struct, frozen=True):
    """The controller's answer to one proposal."""

    error: ErrorCode
    committed: CommittedIsr | None = None


class PeerChannel(Protocol):
    """The other brokers, and the controller. Each raises KafkaError when it got no answer: it may have arrived."""

    async def fetch(self, leader_id: int, fetcher_id: int, call: FetchCall, limits: ReplicationConfig) -> FetchReply:
        """The fetches of one fetcher are sent and answered in order."""
        ...

    async def list_bounds(
        self, leader_id: int, wanted: Sequence[tuple[TopicPartition, int]], limits: ReplicationConfig
    ) -> Sequence[LogBounds]:
        """For each (partition, leader epoch), as a replica."""
        ...

    async def alter_isr(self, proposals: Sequence[tuple[PartitionKey, IsrProposal]]) -> Sequence[IsrAnswer]:
        """AlterPartition, in the broker epoch of now; an answer for each."""
        ...

    async def assign_dirs(self, replicas: Sequence[tuple[PartitionKey, UUID]]) -> None:
        """AssignReplicasToDirs: in which directory each of this broker's replicas lies."""
        ...
