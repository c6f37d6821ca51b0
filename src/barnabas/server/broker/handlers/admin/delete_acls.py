"""Shell: DeleteAcls (key 31), versions 1 to 3.

- 1: deletes the access control entries that filters select (KIP-290)
- 2: flexible
- 3: the resource type USER (KIP-373)

The controller decides, and deletes the entries of all filters in one batch of records. Without an authorizer every
filter is answered with SECURITY_DISABLED.
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from barnabas.server.broker.authorization.ports import NO_AUTHORIZER, keeps_acls
from barnabas.server.broker.handlers.admin.port import AdminPort
from barnabas.server.broker.request_context import RequestContext


async def handle(port: AdminPort, ctx: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    if not keeps_acls(port.authorizer):
        return _failed(request, KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER))
    try:
        response = await port.controller.call(request, ctx.api_version, ctx)
    except KafkaError as error:
        return _failed(request, error)
    assert isinstance(response, DeleteAclsResponse)
    return response


def _failed(request: DeleteAclsRequest, error: KafkaError) -> DeleteAclsResponse:
    """Each entry has the same result, which is one object: the request may have 100,000 entries."""
    result = DeleteAclsFilterResult(error_code=error.code, error_message=str(error))
    return DeleteAclsResponse(filter_results=[result] * len(request.filters))
