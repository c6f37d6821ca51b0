"""Codec: converts the requests and responses of Raft to wire messages, and back.

`QuorumNetwork` imports this module with its first request, so that a node that is the only voter starts faster.
"""

from __future__ import annotations

from typing import Any, assert_never

from barnabas.protocol.wire.schema import Request
from barnabas.server.broker.quorum import fetches, membership, votes
from barnabas.server.raft.machine import messages as raft
from barnabas.server.raft.machine.messages import RaftRequest, RaftResponse


def encode(request: RaftRequest, cluster_id: str) -> Request:
    match request:
        case raft.VoteRequest():
            return votes.vote_request(request, cluster_id)
        case raft.BeginQuorumEpochRequest():
            return votes.begin_request(request, cluster_id)
        case raft.EndQuorumEpochRequest():
            return votes.end_request(request, cluster_id)
        case raft.FetchRequest():
            return fetches.fetch_request(request, cluster_id)
        case raft.FetchSnapshotRequest():
            return fetches.snapshot_request(request, cluster_id)
        case raft.VersionsRequest():
            return membership.versions_request()
        case raft.AddVoterRequest():
            return membership.add_request(request, cluster_id)
        case raft.RemoveVoterRequest():
            return membership.remove_request(request, cluster_id)
        case raft.UpdateVoterRequest():
            return membership.update_request(request, cluster_id)
        case _:
            assert_never(request)


def decode(request: RaftRequest, response: Any) -> RaftResponse:
    """Convert `response`, the wire response to `request`. Raises KafkaError if `response` is invalid."""
    match request:
        case raft.VoteRequest():
            return votes.parse_vote_response(response)
        case raft.BeginQuorumEpochRequest():
            return votes.parse_begin_response(response)
        case raft.EndQuorumEpochRequest():
            return votes.parse_end_response(response)
        case raft.FetchRequest():
            return fetches.parse_fetch_response(response)
        case raft.FetchSnapshotRequest():
            return fetches.parse_snapshot_response(response)
        case raft.VersionsRequest():
            return membership.parse_versions_response(response)
        case raft.AddVoterRequest() | raft.RemoveVoterRequest():
            return membership.parse_change_response(response)
        case raft.UpdateVoterRequest():
            return membership.parse_update_response(response)
        case _:
            assert_never(request)
