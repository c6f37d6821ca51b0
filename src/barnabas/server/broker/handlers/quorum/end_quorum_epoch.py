"""Shell: EndQuorumEpoch (key 54), versions 0 to 1.

- 0: the leader of the metadata quorum resigns and lists its preferred successors (KIP-595)
- 1: flexible; the successors' directory ids, and the leader's endpoints (KIP-853)
"""

from __future__ import annotations

from typing import cast

from barnabas.protocol.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from barnabas.server.broker.quorum.parts import at_listener, check_request
from barnabas.server.broker.quorum.ports import QuorumServices
from barnabas.server.broker.quorum.votes import end_response, parse_end_request
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.raft.machine import messages as raft


async def handle(
    services: QuorumServices, ctx: RequestContext, request: EndQuorumEpochRequest
) -> EndQuorumEpochResponse:
    error = check_request(request.cluster_id, request.topics, services.cluster_id)
    if error:
        return EndQuorumEpochResponse(error_code=error)
    answer = await services.quorum.handle(parse_end_request(request))
    return end_response(at_listener(cast("raft.EndQuorumEpochResponse", answer), ctx.client.listener), ctx.api_version)
