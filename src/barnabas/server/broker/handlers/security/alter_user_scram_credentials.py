"""Shell: AlterUserScramCredentials (key 51), version 0.

- 0: sets and removes the SCRAM credentials of users (KIP-554)

The controller decides. The client sends a salt and the salted password, never the password. Each user succeeds or fails
by itself.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.protocol.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from barnabas.server.broker.handlers.security.port import SecurityPort
from barnabas.server.broker.request_context import RequestContext


async def handle(
    port: SecurityPort, ctx: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    try:
        response = await port.controller.call(request, ctx.api_version, ctx)
    except KafkaError as error:
        users = dict.fromkeys([*(d.name for d in request.deletions), *(u.name for u in request.upsertions)])
        return AlterUserScramCredentialsResponse(
            results=[
                AlterUserScramCredentialsResult(user=user, error_code=error.code, error_message=str(error))
                for user in users
            ]
        )
    assert isinstance(response, AlterUserScramCredentialsResponse)
    return response
