"""Shell: AddRaftVoter (key 80) on the brokers' listeners, versions 0 to 1.

- 0: adds an observer of the metadata quorum to its voters (KIP-853)
- 1: AckWhenCommitted false requests the response before the change is committed (KIP-1186)

The broker forwards the request to the leader of the quorum, see `handlers/quorum/add_raft_voter.py`.
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
