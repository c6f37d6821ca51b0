"""Shell: RemoveRaftVoter (key 81), version 0.

Takes a voter out of the quorum (KIP-853). Answered by the leader of the quorum, to whom this broker hands it.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.protocol.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
    try:
        response = await services.controller.call(request, ctx.api_version, ctx)
    except KafkaError as error:
        return RemoveRaftVoterResponse(error_code=error.code, error_message=str(error))
    assert isinstance(response, RemoveRaftVoterResponse)
    return response
