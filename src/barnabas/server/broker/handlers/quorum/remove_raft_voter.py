"""Shell: RemoveRaftVoter (key 81), version 0: a controller leaves the voters of the metadata quorum (KIP-853).

The leader may be told to remove itself: it leads on until that is committed, then resigns. Needs kraft.version 1.
"""

from __future__ import annotations

from typing import cast

from barnabas.protocol.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from barnabas.server.broker.quorum.membership import parse_remove_request, remove_response
from barnabas.server.broker.quorum.parts import check_cluster
from barnabas.server.broker.quorum.ports import QuorumServices
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.raft.machine import messages as raft


async def handle(
    services: QuorumServices, ctx: RequestContext, request: RemoveRaftVoterRequest
) -> RemoveRaftVoterResponse:
    error = check_cluster(request.cluster_id, services.cluster_id)
    if error:
        return RemoveRaftVoterResponse(error_code=error, error_message=error.message)
    answer = await services.quorum.handle(parse_remove_request(request))
    return remove_response(cast("raft.ChangeVoterResponse", answer))
