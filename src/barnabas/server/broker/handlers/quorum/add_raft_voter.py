"""Shell: AddRaftVoter (key 80) on the controllers' listener, versions 0 to 1.

- 0: adds a controller to the voters of the metadata quorum (KIP-853)
- 1: AckWhenCommitted false requests the response once the change is in the leader's log (KIP-1186)

The leader requests the kraft.versions that the new voter supports (ApiVersions), and requires that the new voter has
caught up. It makes one change of the voters at a time. The response is sent when the change is committed. The quorum
must have kraft.version 1.
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
