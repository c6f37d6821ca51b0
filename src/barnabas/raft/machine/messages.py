"""Value: what replicas say to each other: KRaft's requests and responses, without topic, partition and cluster id.

The wire's own messages wrap these; whoever unwraps them checks cluster id and topic (INCONSISTENT_CLUSTER_ID,
INVALID_REQUEST) before the machine sees anything. Every response but those on membership names the leader that its
sender knows, and the epoch: that is how news travels (KIP-595).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode
from barnabas.raft.machine.values import (
    HIGH_WATERMARK_NOT_SENT,
    NO_NODE,
    NO_OFFSET,
    Batch,
    Endpoints,
    OffsetAndEpoch,
    ReplicaKey,
    Voter,
)


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """Asks for a vote in `epoch`; as a pre-vote (KIP-996), whether it would be given in the epoch after."""

    epoch: int
    candidate: ReplicaKey
    voter: ReplicaKey
    last: OffsetAndEpoch
    pre_vote: bool = False


@dataclass(frozen=True, slots=True)
class VoteResponse:
    error: ErrorCode
    epoch: int
    leader_id: int = NO_NODE
    granted: bool = False
    endpoints: Endpoints = ()


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochRequest:
    """A leader makes itself known to a voter that has not fetched from it."""

    epoch: int
    leader_id: int
    voter: ReplicaKey
    endpoints: Endpoints = ()


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochResponse:
    error: ErrorCode
    epoch: int
    leader_id: int = NO_NODE
    endpoints: Endpoints = ()


@dataclass(frozen=True, slots=True)
class EndQuorumEpochRequest:
    """A leader resigns; `successors` are the voters in the order in which they should try, furthest first."""

    epoch: int
    leader_id: int
    successors: tuple[ReplicaKey, ...] = ()
    endpoints: Endpoints = ()


@dataclass(frozen=True, slots=True)
class EndQuorumEpochResponse:
    error: ErrorCode
    epoch: int
    leader_id: int = NO_NODE
    endpoints: Endpoints = ()


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Gives the follower's place in the log, which the leader takes as an acknowledgement, and asks for more."""

    replica: ReplicaKey
    epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    max_wait_ms: int = 0
    max_bytes: int = 8 * 1024 * 1024
    high_watermark: int = HIGH_WATERMARK_NOT_SENT


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """Either batches, or where the logs part (`diverging`), or the snapshot to load first.

    The machine says in `read_offset` which offset to read from; whoever sends the response puts the batches in.
    """

    error: ErrorCode
    epoch: int
    leader_id: int = NO_NODE
    high_watermark: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    diverging: OffsetAndEpoch | None = None
    snapshot_id: OffsetAndEpoch | None = None
    batches: tuple[Batch, ...] = ()
    read_offset: int = NO_OFFSET
    max_bytes: int = 0
    endpoints: Endpoints = ()


@dataclass(frozen=True, slots=True)
class FetchSnapshotRequest:
    """Asks for a piece of a snapshot (KIP-630)."""

    replica: ReplicaKey
    epoch: int
    snapshot_id: OffsetAndEpoch
    position: int
    max_bytes: int = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FetchSnapshotResponse:
    """A piece of a snapshot. With `max_bytes` set, whoever sends it reads the piece, or says POSITION_OUT_OF_RANGE."""

    error: ErrorCode
    epoch: int
    leader_id: int = NO_NODE
    snapshot_id: OffsetAndEpoch | None = None
    size: int = 0
    position: int = 0
    data: Buffer = b""
    max_bytes: int = 0
    endpoints: Endpoints = ()


@dataclass(frozen=True, slots=True)
class VersionsRequest:
    """Asks a node which kraft.versions it understands (on the wire: ApiVersions)."""


@dataclass(frozen=True, slots=True)
class VersionsResponse:
    error: ErrorCode
    min_version: int = 0
    max_version: int = 0


@dataclass(frozen=True, slots=True)
class AddVoterRequest:
    voter: ReplicaKey
    endpoints: Endpoints
    timeout_ms: int = 0
    ack_when_committed: bool = True


@dataclass(frozen=True, slots=True)
class RemoveVoterRequest:
    voter: ReplicaKey


@dataclass(frozen=True, slots=True)
class ChangeVoterResponse:
    """The answer to AddVoter and to RemoveVoter."""

    error: ErrorCode
    message: str = ""


@dataclass(frozen=True, slots=True)
class UpdateVoterRequest:
    """A voter tells the leader its own endpoints and versions."""

    epoch: int
    voter: Voter


@dataclass(frozen=True, slots=True)
class UpdateVoterResponse:
    error: ErrorCode
    epoch: int
    leader_id: int = NO_NODE
    endpoints: Endpoints = ()


RaftRequest: TypeAlias = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | VersionsRequest
    | AddVoterRequest
    | RemoveVoterRequest
    | UpdateVoterRequest
)
QuorumResponse: TypeAlias = (
    VoteResponse
    | BeginQuorumEpochResponse
    | EndQuorumEpochResponse
    | FetchResponse
    | FetchSnapshotResponse
    | UpdateVoterResponse
)
"""Those that carry news of the leader."""
RaftResponse: TypeAlias = QuorumResponse | VersionsResponse | ChangeVoterResponse
