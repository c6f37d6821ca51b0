"""Shell: BeginQuorumEpoch (key 53), versions 0 and 1: a leader makes itself known to a voter (KIP-595).

Version 1 names the voter with its disk, and says where the leader is reached (KIP-853).
"""

from __future__ import annotations

from typing import cast

from barnabas.protocol.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from barnabas.server.broker.quorum.parts import check_request
from barnabas.server.broker.quorum.ports import QuorumServices
from barnabas.server.broker.quorum.votes import begin_response, parse_begin_request
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.raft.machine import messages as raft


async def handle(
    services: QuorumServices, ctx: RequestContext, request: BeginQuorumEpochRequest
) -> BeginQuorumEpochResponse:
    error = check_request(request.cluster_id, request.topics, services.cluster_id)
    if error:
        return BeginQuorumEpochResponse(error_code=error)
    answer = await services.quorum.handle(parse_begin_request(request, services.node_id))
    return begin_response(cast("raft.BeginQuorumEpochResponse", answer), ctx.api_version)
