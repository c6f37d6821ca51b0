"""Value: the requests and responses of KRaft, without topic, partition and cluster id.

The node converts the messages of `protocol.wire` to these, and first checks the cluster id and the topic
(INCONSISTENT_CLUSTER_ID, INVALID_REQUEST). Every response except those to AddVoter and RemoveVoter contains the epoch
and the leader that its sender knows, from which the receiver learns of a new leader (KIP-595).
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
    """Requests a vote in `epoch`. A pre-vote (KIP-996) asks whether the voter would grant a vote in the next epoch."""

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
    """Sent by a leader to a voter that has not fetched from the leader."""

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
    """Sent by a leader that resigns. `successors` are the voters in the order in which they should start elections."""

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
    """Requests the batches from `fetch_offset` on. Acknowledges that the follower's log is durable up to that
    offset."""

    replica: ReplicaKey
    epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    max_wait_ms: int = 0
    max_bytes: int = 8 * 1024 * 1024
    high_watermark: int = HIGH_WATERMARK_NOT_SENT


class FetchResponse(Struct, frozen=True):
    """Contains batches, or the offset and epoch at which the logs diverge, or the snapshot to fetch first.

    The machine sets `read_offset` and leaves `batches` empty; the driver reads the batches when it sends the response.
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
    """Requests a part of a snapshot (KIP-630)."""

    replica: ReplicaKey
    epoch: int
    snapshot_id: OffsetAndEpoch
    position: int
    max_bytes: int = 8 * 1024 * 1024


class FetchSnapshotResponse(Struct, frozen=True):
    """A part of a snapshot. If the machine has set `max_bytes`, the driver reads the part when it sends the
    response."""

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
    """Requests the range of kraft.version that a node supports (ApiVersions on the wire)."""


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
    """The response to AddVoter and to RemoveVoter."""

    error: ErrorCode
    message: str = ""


class UpdateVoterRequest(Struct, frozen=True):
    """Sent by a voter to the leader with the voter's own endpoints and versions."""

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
"""The responses that contain the sender's epoch and leader."""
RaftResponse: TypeAlias = QuorumResponse | VersionsResponse | ChangeVoterResponse
