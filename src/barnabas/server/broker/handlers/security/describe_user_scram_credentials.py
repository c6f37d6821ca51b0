"""Shell: DescribeUserScramCredentials (key 50), version 0.

- 0: lists the users that have SCRAM credentials, with the mechanisms and iterations (KIP-554)

The response is made from this node's image. It never contains salts or keys. No list of users, or an empty one, means
all users.
"""

from __future__ import annotations

from collections import Counter

from barnabas.core.errors import ErrorCode
from barnabas.core.work import Pauses
from barnabas.protocol.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from barnabas.server.broker.handlers.security.port import SecurityPort
from barnabas.server.broker.request_context import RequestContext


async def handle(
    port: SecurityPort, ctx: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    found: dict[str, list[CredentialInfo]] = {}
    for (mechanism, user), credential in sorted(port.metadata.image.scram.credentials.items()):
        info = CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
        found.setdefault(user, []).append(info)
    asked = Counter(user.name for user in request.users or ())
    results = []
    pauses = Pauses()
    for user in asked or sorted(found):
        await pauses.after(1)
        if asked[user] > 1:
            code, message = (
                ErrorCode.DUPLICATE_RESOURCE,
                f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}",
            )
        elif user not in found:
            code, message = (
                ErrorCode.RESOURCE_NOT_FOUND,
                f"Attempt to describe a user credential that does not exist: {user}",
            )
        else:
            results.append(DescribeUserScramCredentialsResult(user=user, credential_infos=found[user]))
            continue
        results.append(DescribeUserScramCredentialsResult(user=user, error_code=code, error_message=message))
    return DescribeUserScramCredentialsResponse(results=results)
