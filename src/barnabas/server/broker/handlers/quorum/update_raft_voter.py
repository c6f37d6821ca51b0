"""Shell: UpdateRaftVoter (key 82), version 0: a voter tells its leader where it is reached and what it knows (KIP-853).

Voters send it by themselves after a start. In a quorum of kraft.version 0 the leader only remembers it, which is what
an upgrade to 1 needs.
"""

from __future__ import annotations

from typing import cast

from barnabas.protocol.wire.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from barnabas.server.broker.quorum.membership import parse_update_request, update_response
from barnabas.server.broker.quorum.parts import check_cluster
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
    return update_response(cast("raft.UpdateVoterResponse", answer))
