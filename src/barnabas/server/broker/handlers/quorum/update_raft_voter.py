"""Shell: UpdateRaftVoter (key 82), version 0.

- 0: a voter sends its endpoints and supported kraft.versions to the leader of the quorum (KIP-853)

Voters send this request after they start. In a quorum with kraft.version 0 the leader keeps the data in memory only;
an upgrade to kraft.version 1 needs it.
"""

from __future__ import annotations

from typing import cast

from barnabas.protocol.wire.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from barnabas.server.broker.quorum.membership import parse_update_request, update_response
from barnabas.server.broker.quorum.parts import at_listener, check_cluster
from barnabas.server.broker.quorum.ports import QuorumServices
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.raft.machine import messages as raft


async def handle(
    services: QuorumServices, ctx: RequestContext, request: UpdateRaftVoterRequest
) -> UpdateRaftVoterResponse:
    error = check_cluster(request.cluster_id, services.cluster_id)
    if error:
        return UpdateRaftVoterResponse(error_code=error)
    answer = await services.quorum.handle(parse_update_request(request))
    return update_response(at_listener(cast("raft.UpdateVoterResponse", answer), ctx.client.listener))
