"""Codec: AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter and ApiVersions, between the wire and `server/raft`.

A node lists the kraft.versions that it supports in its ApiVersions response, as the supported feature `kraft.version`.
"""

from __future__ import annotations

from typing import Final

from barnabas.core.errors import error_code
from barnabas.protocol.wire.messages import add_raft_voter as add
from barnabas.protocol.wire.messages import remove_raft_voter as remove
from barnabas.protocol.wire.messages import update_raft_voter as update
from barnabas.protocol.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.server.broker.quorum.parts import LISTENER, listeners, parse_listeners
from barnabas.server.metadata.image.small import KRAFT_VERSION
from barnabas.server.raft.machine import messages as raft
from barnabas.server.raft.machine.values import NO_NODE, RaftEndpoint, ReplicaKey, VoterNode

DEFAULT_TIMEOUT_MS: Final = 2_000

# ---- AddRaftVoter, RemoveRaftVoter


def add_request(request: raft.AddVoterRequest, cluster_id: str) -> add.AddRaftVoterRequest:
    return add.AddRaftVoterRequest(
        cluster_id=cluster_id,
        timeout_ms=request.timeout_ms or DEFAULT_TIMEOUT_MS,
        voter_id=request.voter.id,
        voter_directory_id=request.voter.directory_id,
        listeners=listeners(add.Listener, request.endpoints),
        ack_when_committed=request.ack_when_committed,
    )


def parse_add_request(request: add.AddRaftVoterRequest) -> raft.AddVoterRequest:
    return raft.AddVoterRequest(
        ReplicaKey(request.voter_id, request.voter_directory_id),
        parse_listeners(request.listeners),
        max(request.timeout_ms, 0),
        request.ack_when_committed,
    )


def add_response(response: raft.ChangeVoterResponse) -> add.AddRaftVoterResponse:
    return add.AddRaftVoterResponse(error_code=response.error, error_message=_message(response))


def remove_request(request: raft.RemoveVoterRequest, cluster_id: str) -> remove.RemoveRaftVoterRequest:
    return remove.RemoveRaftVoterRequest(
        cluster_id=cluster_id, voter_id=request.voter.id, voter_directory_id=request.voter.directory_id
    )


def parse_remove_request(request: remove.RemoveRaftVoterRequest) -> raft.RemoveVoterRequest:
    return raft.RemoveVoterRequest(ReplicaKey(request.voter_id, request.voter_directory_id))


def remove_response(response: raft.ChangeVoterResponse) -> remove.RemoveRaftVoterResponse:
    return remove.RemoveRaftVoterResponse(error_code=response.error, error_message=_message(response))


def parse_change_response(
    response: add.AddRaftVoterResponse | remove.RemoveRaftVoterResponse,
) -> raft.ChangeVoterResponse:
    return raft.ChangeVoterResponse(error_code(response.error_code), response.error_message or "")


def _message(response: raft.ChangeVoterResponse) -> str | None:
    return response.message or (response.error.message if response.error else None)


# ---- UpdateRaftVoter


def update_request(request: raft.UpdateVoterRequest, cluster_id: str) -> update.UpdateRaftVoterRequest:
    voter = request.voter
    return update.UpdateRaftVoterRequest(
        cluster_id=cluster_id,
        current_leader_epoch=request.epoch,
        voter_id=voter.key.id,
        voter_directory_id=voter.key.directory_id,
        listeners=listeners(update.Listener, voter.endpoints),
        kraft_version_feature=update.KRaftVersionFeature(
            min_supported_version=voter.min_version, max_supported_version=voter.max_version
        ),
    )


def parse_update_request(request: update.UpdateRaftVoterRequest) -> raft.UpdateVoterRequest:
    versions = request.kraft_version_feature
    voter = VoterNode(
        ReplicaKey(request.voter_id, request.voter_directory_id),
        parse_listeners(request.listeners),
        versions.min_supported_version,
        versions.max_supported_version,
    )
    return raft.UpdateVoterRequest(request.current_leader_epoch, voter)


def update_response(response: raft.UpdateVoterResponse) -> update.UpdateRaftVoterResponse:
    host, port = response.endpoints[0][1:] if response.endpoints else ("", 0)
    leader = update.CurrentLeader(leader_id=response.leader_id, leader_epoch=response.epoch, host=host, port=port)
    return update.UpdateRaftVoterResponse(error_code=response.error, current_leader=leader)


def parse_update_response(response: update.UpdateRaftVoterResponse) -> raft.UpdateVoterResponse:
    leader = response.current_leader
    known = leader.leader_id != NO_NODE and leader.host
    return raft.UpdateVoterResponse(
        error_code(response.error_code),
        leader.leader_epoch,
        leader.leader_id,
        (RaftEndpoint(LISTENER, leader.host, leader.port),) if known else (),
    )


# ---- ApiVersions


def versions_request() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="barnabas-node", client_software_version="1")


def parse_versions_response(response: ApiVersionsResponse) -> raft.VersionsResponse:
    """The supported kraft.versions; a node that does not list the feature supports version 0 only."""
    for feature in response.supported_features:
        if feature.name == KRAFT_VERSION:
            return raft.VersionsResponse(error_code(response.error_code), feature.min_version, feature.max_version)
    return raft.VersionsResponse(error_code(response.error_code))
