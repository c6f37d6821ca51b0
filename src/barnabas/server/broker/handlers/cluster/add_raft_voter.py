"""Shell: AddRaftVoter (key 80), versions 0 to 1.

Makes an observer of the metadata log a voter (KIP-853). Answered by the leader of the quorum, to whom this broker hands
it.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.protocol.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    try:
        response = await services.controller.call(request, ctx.api_version, ctx)
    except KafkaError as error:
        return AddRaftVoterResponse(error_code=error.code, error_message=str(error))
    assert isinstance(response, AddRaftVoterResponse)
    return response
