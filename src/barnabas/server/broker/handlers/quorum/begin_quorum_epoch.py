"""Shell: BeginQuorumEpoch (key 53), versions 0 to 1.

- 0: a new leader of the metadata quorum announces itself to a voter (KIP-595)
- 1: flexible; the voter's id and directory id, and the leader's endpoints (KIP-853)
"""

from __future__ import annotations

from typing import cast

from barnabas.protocol.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from barnabas.server.broker.quorum.parts import at_listener, check_request
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
    return begin_response(
        at_listener(cast("raft.BeginQuorumEpochResponse", answer), ctx.client.listener), ctx.api_version
    )
