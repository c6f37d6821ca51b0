"""Shell: Vote (key 52), versions 0 to 2.

- 0: a candidate requests the vote of this node in the metadata quorum (KIP-595)
- 1: flexible; the voter's id, and the directory ids of both nodes (KIP-853)
- 2: pre-votes (KIP-996)
"""

from __future__ import annotations

from typing import cast

from barnabas.protocol.wire.messages.vote import VoteRequest, VoteResponse
from barnabas.server.broker.quorum.parts import at_listener, check_request
from barnabas.server.broker.quorum.ports import QuorumServices
from barnabas.server.broker.quorum.votes import parse_vote_request, vote_response
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.raft.machine import messages as raft


async def handle(services: QuorumServices, ctx: RequestContext, request: VoteRequest) -> VoteResponse:
    error = check_request(request.cluster_id, request.topics, services.cluster_id)
    if error:
        return VoteResponse(error_code=error)
    answer = await services.quorum.handle(parse_vote_request(request, services.node_id))
    return vote_response(at_listener(cast("raft.VoteResponse", answer), ctx.client.listener), ctx.api_version)
