"""Shell: RemoveRaftVoter (key 81) on the controllers' listener, version 0.

- 0: removes a controller from the voters of the metadata quorum (KIP-853)

A leader that removes itself continues to lead until the change is committed, and then resigns. The quorum must have
kraft.version 1.
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
