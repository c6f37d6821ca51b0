"""Port: the requests that a broker's replicas send to other brokers and to the controller."""

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
from barnabas.server.storage.log import Log
from barnabas.server.storage.values import EpochEndOffset
from barnabas.server.tiering.reading.partition_reader import RemotePartitionReader
from barnabas.server.tiering.values import CopiedState, RemotePartition, RemoteSegment

PartitionKey = tuple[TopicId, int]


class FetchCall(NamedTuple):
    """One Fetch request of a follower, incremental if a fetch session is open (KIP-227)."""

    session_id: int
    session_epoch: int
    wanted: Sequence[tuple[PartitionKey, FetchFrom]]
    forgotten: Sequence[PartitionKey]


class Fetched(Struct, frozen=True):
    """One partition of a Fetch response."""

    key: PartitionKey
    error: ErrorCode
    high_watermark: int
    log_start_offset: int
    records: Buffer
    diverging: EpochEndOffset | None


class FetchReply(Struct, frozen=True):
    """A Fetch response. `error` is the top-level error; `session_id` is 0 if there is no fetch session."""

    error: ErrorCode
    session_id: int
    partitions: Sequence[Fetched]


class LogBounds(NamedTuple):
    """The leader's log start and end offsets, or the error."""

    error: ErrorCode
    log_start_offset: int = -1
    log_end_offset: int = -1


class LocalStart(NamedTuple):
    """Where the leader's log starts, and where its local log starts; or the error."""

    error: ErrorCode
    log_start_offset: int = -1
    local_log_start_offset: int = -1


class IsrAnswer(Struct, frozen=True):
    """The controller's response to one ISR proposal."""

    error: ErrorCode
    committed: CommittedIsr | None = None


class TieredReplicas(Protocol):
    """What the replicas of a broker need from tiered storage."""

    @property
    def reader(self) -> RemotePartitionReader:
        """Reads records, and finds offsets, below the local start of a log."""
        ...

    def note_copied(self, partition: RemotePartition, log: Log) -> None:
        """Set `Log.highest_copied_offset`: the log may delete local segments up to this offset."""
        ...

    def candidates(self, partition: RemotePartition, local_log_start_offset: int) -> list[tuple[RemoteSegment, int]]:
        """The segments from whose end a follower can go on, if its leader's log is local from `local_log_start_offset`
        on, each with the leader epoch of its last record. Raises RemoteStorageError."""
        ...

    async def read_state(self, segment: RemoteSegment) -> CopiedState:
        """The state of the log at the end of a segment. Raises RemoteStorageError."""
        ...


class PeerChannel(Protocol):
    """Connections to the other brokers and to the controller.

    A method raises KafkaError if there is no response; the request may have been processed in that case.
    """

    async def fetch(self, leader_id: int, fetcher_id: int, call: FetchCall, config: ReplicationConfig) -> FetchReply:
        """Send a Fetch. The requests of one fetcher are sent and answered in order."""
        ...

    async def list_bounds(
        self, leader_id: int, wanted: Sequence[tuple[TopicPartition, int]], config: ReplicationConfig
    ) -> Sequence[LogBounds]:
        """ListOffsets, sent as a replica, for each (partition, leader epoch)."""
        ...

    async def list_local_start(
        self, leader_id: int, wanted: tuple[TopicPartition, int], config: ReplicationConfig
    ) -> LocalStart:
        """ListOffsets, sent as a replica: the leader's log start, and the start of its local log (KIP-405)."""
        ...

    async def list_pending_upload(
        self, leader_id: int, wanted: tuple[TopicPartition, int], config: ReplicationConfig
    ) -> int:
        """ListOffsets, sent as a replica: the first offset that the leader has not copied to the object store; -1 if
        the leader does not know it, or is of a version without this request (KIP-1023)."""
        ...

    async def epoch_end(
        self, leader_id: int, wanted: tuple[TopicPartition, int], leader_epoch: int, config: ReplicationConfig
    ) -> EpochEndOffset:
        """OffsetForLeaderEpoch, sent as a replica: the end of `leader_epoch` in the leader's log. Raises KafkaError,
        also if the leader rejects the request."""
        ...

    async def alter_partition(self, proposals: Sequence[tuple[PartitionKey, IsrProposal]]) -> Sequence[IsrAnswer]:
        """AlterPartition with the current broker epoch. Returns a response for each proposal, in the same order."""
        ...

    async def assign_dirs(self, replicas: Sequence[tuple[PartitionKey, UUID]]) -> None:
        """AssignReplicasToDirs: report the log directory of each of this broker's replicas."""
        ...
