"""Shell: RemoveRaftVoter (key 81) on the brokers' listeners, version 0.

- 0: removes a voter from the metadata quorum (KIP-853)

The broker forwards the request to the leader of the quorum, see `handlers/quorum/remove_raft_voter.py`.
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
