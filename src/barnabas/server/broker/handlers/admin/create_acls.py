"""Shell: CreateAcls (key 30), versions 1 to 3.

- 1: adds access control entries, with the type of the pattern (KIP-290)
- 2: flexible
- 3: the resource type USER (KIP-373)

The controller decides. Each entry succeeds or fails by itself; an entry that exists is a success. Without an
authorizer every entry is answered with SECURITY_DISABLED.
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from barnabas.server.broker.authorization.ports import NO_AUTHORIZER, keeps_acls
from barnabas.server.broker.handlers.admin.port import AdminPort
from barnabas.server.broker.request_context import RequestContext


async def handle(port: AdminPort, ctx: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    if not keeps_acls(port.authorizer):
        return _failed(request, KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER))
    try:
        response = await port.controller.call(request, ctx.api_version, ctx)
    except KafkaError as error:
        return _failed(request, error)
    assert isinstance(response, CreateAclsResponse)
    return response


def _failed(request: CreateAclsRequest, error: KafkaError) -> CreateAclsResponse:
    """Each entry has the same result, which is one object: the request may have 100,000 entries."""
    result = AclCreationResult(error_code=error.code, error_message=str(error))
    return CreateAclsResponse(results=[result] * len(request.creations))
