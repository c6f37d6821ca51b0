"""Shell: AddRaftVoter (key 80), versions 0 and 1: a controller becomes a voter of the metadata quorum (KIP-853).

The leader first asks the new voter which kraft.versions it knows, and demands that it has caught up; one change is
under way at a time. Answered when the change is committed, or (version 1, `ack_when_committed` false) once it is in
the leader's log. Needs kraft.version 1.
"""

from __future__ import annotations

from typing import cast

from barnabas.protocol.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from barnabas.server.broker.quorum.membership import add_response, parse_add_request
from barnabas.server.broker.quorum.parts import check_cluster
from barnabas.server.broker.quorum.ports import QuorumServices
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.raft.machine import messages as raft


async def handle(services: QuorumServices, ctx: RequestContext, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    error = check_cluster(request.cluster_id, services.cluster_id)
    if error:
        return AddRaftVoterResponse(error_code=error, error_message=error.message)
    answer = await services.quorum.handle(parse_add_request(request))
    return add_response(cast("raft.ChangeVoterResponse", answer))
