"""Shell: the handlers of the metadata quorum that pass the request on to this node's replica."""

from __future__ import annotations

from typing import Final, cast

from barnabas.protocol.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from barnabas.protocol.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from barnabas.protocol.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from barnabas.protocol.wire.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from barnabas.protocol.wire.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from barnabas.protocol.wire.messages.vote import VoteRequest, VoteResponse
from barnabas.server.broker.handlers.quorum.port import QuorumPort
from barnabas.server.broker.quorum.fetches import fetch_response, parse_fetch_request
from barnabas.server.broker.quorum.membership import (
    add_response,
    parse_add_request,
    parse_remove_request,
    parse_update_request,
    remove_response,
    update_response,
)
from barnabas.server.broker.quorum.parts import at_listener, check_cluster, check_request
from barnabas.server.broker.quorum.votes import (
    begin_response,
    end_response,
    parse_begin_request,
    parse_end_request,
    parse_vote_request,
    vote_response,
)
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.raft.machine import messages as raft

FETCH_BYTES_MAX: Final = 8 * 1024 * 1024
"""The largest size of a response, whatever MaxBytes is; the first batch is sent whole even if it is larger."""


async def fetch(port: QuorumPort, ctx: RequestContext, request: FetchRequest) -> FetchResponse:
    """Fetch (key 1) on the controllers' listener, versions 12 to 18.

    - 12: fetches from the metadata log, which is named as a topic (KIP-595)
    - 13: the topic id in place of the name (KIP-516)
    - 14: as 13
    - 15: the replica id is in ReplicaState (KIP-903)
    - 16: the leader's endpoint in the response (KIP-951)
    - 17: the replica's directory id (KIP-853)
    - 18: the high watermark that the replica knows (KIP-1166)

    Followers and observers copy the metadata log with this request; their fetch offsets show their progress. The
    response is delayed until there are records or a high watermark that the replica does not know. The response may
    instead contain the offset at which the logs diverge (DivergingEpoch) or the snapshot that the replica has to load
    first (SnapshotId). There are no fetch sessions, and no other partition can be fetched.
    """
    error = check_request(request.cluster_id, request.topics, port.cluster_id)
    if error:
        return FetchResponse(error_code=error)
    answer = await port.quorum.handle(parse_fetch_request(request, ctx.api_version, FETCH_BYTES_MAX))
    return fetch_response(at_listener(cast("raft.FetchResponse", answer), ctx.client.listener), ctx.api_version)


async def vote(port: QuorumPort, ctx: RequestContext, request: VoteRequest) -> VoteResponse:
    """Vote (key 52), versions 0 to 2.

    - 0: a candidate requests the vote of this node in the metadata quorum (KIP-595)
    - 1: flexible; the voter's id, and the directory ids of both nodes (KIP-853)
    - 2: pre-votes (KIP-996)
    """
    error = check_request(request.cluster_id, request.topics, port.cluster_id)
    if error:
        return VoteResponse(error_code=error)
    answer = await port.quorum.handle(parse_vote_request(request, port.node_id))
    return vote_response(at_listener(cast("raft.VoteResponse", answer), ctx.client.listener), ctx.api_version)


async def begin_quorum_epoch(
    port: QuorumPort, ctx: RequestContext, request: BeginQuorumEpochRequest
) -> BeginQuorumEpochResponse:
    """BeginQuorumEpoch (key 53), versions 0 to 1.

    - 0: a new leader of the metadata quorum announces itself to a voter (KIP-595)
    - 1: flexible; the voter's id and directory id, and the leader's endpoints (KIP-853)
    """
    error = check_request(request.cluster_id, request.topics, port.cluster_id)
    if error:
        return BeginQuorumEpochResponse(error_code=error)
    answer = await port.quorum.handle(parse_begin_request(request, port.node_id))
    return begin_response(
        at_listener(cast("raft.BeginQuorumEpochResponse", answer), ctx.client.listener), ctx.api_version
    )


async def end_quorum_epoch(
    port: QuorumPort, ctx: RequestContext, request: EndQuorumEpochRequest
) -> EndQuorumEpochResponse:
    """EndQuorumEpoch (key 54), versions 0 to 1.

    - 0: the leader of the metadata quorum resigns and lists its preferred successors (KIP-595)
    - 1: flexible; the successors' directory ids, and the leader's endpoints (KIP-853)
    """
    error = check_request(request.cluster_id, request.topics, port.cluster_id)
    if error:
        return EndQuorumEpochResponse(error_code=error)
    answer = await port.quorum.handle(parse_end_request(request))
    return end_response(at_listener(cast("raft.EndQuorumEpochResponse", answer), ctx.client.listener), ctx.api_version)


async def add_raft_voter(port: QuorumPort, ctx: RequestContext, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    """AddRaftVoter (key 80) on the controllers' listener, versions 0 to 1.

    - 0: adds a controller to the voters of the metadata quorum (KIP-853)
    - 1: AckWhenCommitted false requests the response once the change is in the leader's log (KIP-1186)

    The leader requests the kraft.versions that the new voter supports (ApiVersions), and requires that the new voter
    has caught up. It makes one change of the voters at a time. The response is sent when the change is committed. The
    quorum must have kraft.version 1.
    """
    error = check_cluster(request.cluster_id, port.cluster_id)
    if error:
        return AddRaftVoterResponse(error_code=error, error_message=error.message)
    answer = await port.quorum.handle(parse_add_request(request))
    return add_response(cast("raft.ChangeVoterResponse", answer))


async def remove_raft_voter(
    port: QuorumPort, ctx: RequestContext, request: RemoveRaftVoterRequest
) -> RemoveRaftVoterResponse:
    """RemoveRaftVoter (key 81) on the controllers' listener, version 0.

    - 0: removes a controller from the voters of the metadata quorum (KIP-853)

    A leader that removes itself continues to lead until the change is committed, and then resigns. The quorum must have
    kraft.version 1.
    """
    error = check_cluster(request.cluster_id, port.cluster_id)
    if error:
        return RemoveRaftVoterResponse(error_code=error, error_message=error.message)
    answer = await port.quorum.handle(parse_remove_request(request))
    return remove_response(cast("raft.ChangeVoterResponse", answer))


async def update_raft_voter(
    port: QuorumPort, ctx: RequestContext, request: UpdateRaftVoterRequest
) -> UpdateRaftVoterResponse:
    """UpdateRaftVoter (key 82), version 0.

    - 0: a voter sends its endpoints and supported kraft.versions to the leader of the quorum (KIP-853)

    Voters send this request after they start. In a quorum with kraft.version 0 the leader keeps the data in memory
    only; an upgrade to kraft.version 1 needs it.
    """
    error = check_cluster(request.cluster_id, port.cluster_id)
    if error:
        return UpdateRaftVoterResponse(error_code=error)
    answer = await port.quorum.handle(parse_update_request(request))
    return update_response(at_listener(cast("raft.UpdateVoterResponse", answer), ctx.client.listener))
