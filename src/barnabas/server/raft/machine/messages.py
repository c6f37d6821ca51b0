"""Value: what replicas say to each other: KRaft's requests and responses, without topic, partition and cluster id.

The wire's own messages wrap these; whoever unwraps them checks cluster id and topic (INCONSISTENT_CLUSTER_ID,
INVALID_REQUEST) before the machine sees anything. Every response but those on membership names the leader that its
sender knows, and the epoch: that is how news travels (KIP-595).

They and the events are named tuples, not dataclasses: forty of those would be a twentieth of a node's start.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode
from barnabas.server.raft.machine.values import (
    HIGH_WATERMARK_NOT_SENT,
    NO_NODE,
    NO_OFFSET,
    Endpoints,
    OffsetAndEpoch,
    RaftBatch,
    ReplicaKey,
    VoterNode,
)


class VoteRequest(Struct, frozen=True):
    """Asks for a vote in `epoch`; as a pre-vote (KIP-996), whether it would be given in the epoch after."""

    epoch: int
    candidate: ReplicaKey
    voter: ReplicaKey
    last: OffsetAndEpoch
    pre_vote: bool = False


class VoteResponse(Struct, frozen=True):
    error: ErrorCode
    epoch: int
    leader_id: int = NO_NODE
    granted: bool = False
    endpoints: Endpoints = ()


class BeginQuorumEpochRequest(Struct, frozen=True):
    """A leader makes itself known to a voter that has not fetched from it."""

    epoch: int
    leader_id: int
    voter: ReplicaKey
    endpoints: Endpoints = ()


class BeginQuorumEpochResponse(Struct, frozen=True):
    error: ErrorCode
    epoch: int
    leader_id: int = NO_NODE
    endpoints: Endpoints = ()


class EndQuorumEpochRequest(Struct, frozen=True):
    """A leader resigns; `successors` are the voters in the order in which they should try, furthest first."""

    epoch: int
    leader_id: int
    successors: tuple[ReplicaKey, ...] = ()
    endpoints: Endpoints = ()


class EndQuorumEpochResponse(Struct, frozen=True):
    error: ErrorCode
    epoch: int
    leader_id: int = NO_NODE
    endpoints: Endpoints = ()


class FetchRequest(Struct, frozen=True):
    """Gives the follower's place in the log, which the leader takes as an acknowledgement, and asks for more."""

    replica: ReplicaKey
    epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    max_wait_ms: int = 0
    max_bytes: int = 8 * 1024 * 1024
    high_watermark: int = HIGH_WATERMARK_NOT_SENT


class FetchResponse(Struct, frozen=True):
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
    batches: tuple[RaftBatch, ...] = ()
    read_offset: int = NO_OFFSET
    max_bytes: int = 0
    endpoints: Endpoints = ()


class FetchSnapshotRequest(Struct, frozen=True):
    """Asks for a piece of a snapshot (KIP-630)."""

    replica: ReplicaKey
    epoch: int
    snapshot_id: OffsetAndEpoch
    position: int
    max_bytes: int = 8 * 1024 * 1024


class FetchSnapshotResponse(Struct, frozen=True):
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


class VersionsRequest(Struct, frozen=True):
    """Asks a node which kraft.versions it understands (on the wire: ApiVersions)."""


class VersionsResponse(Struct, frozen=True):
    error: ErrorCode
    min_version: int = 0
    max_version: int = 0


class AddVoterRequest(Struct, frozen=True):
    voter: ReplicaKey
    endpoints: Endpoints
    timeout_ms: int = 0
    ack_when_committed: bool = True


class RemoveVoterRequest(Struct, frozen=True):
    voter: ReplicaKey


class ChangeVoterResponse(Struct, frozen=True):
    """The answer to AddVoter and to RemoveVoter."""

    error: ErrorCode
    message: str = ""


class UpdateVoterRequest(Struct, frozen=True):
    """A voter tells the leader its own endpoints and versions."""

    epoch: int
    voter: VoterNode


class UpdateVoterResponse(Struct, frozen=True):
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
