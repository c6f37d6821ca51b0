"""Shell: DescribeAcls (key 29), versions 1 to 3.

- 1: lists the access control entries that a filter selects (KIP-290)
- 2: flexible
- 3: the resource type USER (KIP-373)

The response has the entries of this node's image, grouped by resource pattern. Without an authorizer the response is
SECURITY_DISABLED.
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode
from barnabas.core.work import Pauses
from barnabas.protocol.security.acls import AclBindingFilter
from barnabas.protocol.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from barnabas.server.broker.authorization.ports import NO_AUTHORIZER, keeps_acls
from barnabas.server.broker.handlers.admin.port import AdminPort
from barnabas.server.broker.request_context import RequestContext


async def handle(port: AdminPort, ctx: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    if not keeps_acls(port.authorizer):
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    selected = AclBindingFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    if selected.problem is not None:
        return DescribeAclsResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=selected.problem)
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    pauses = Pauses()
    for acl in port.metadata.image.acls.ids:
        await pauses.after(1)
        if not selected.matches(acl):
            continue
        pattern = (acl.resource_type, acl.resource_name, acl.pattern_type)
        resource = resources.get(pattern)
        if resource is None:
            resource = resources[pattern] = DescribeAclsResource(
                resource_type=acl.resource_type, resource_name=acl.resource_name, pattern_type=acl.pattern_type
            )
        resource.acls.append(
            AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission_type,
            )
        )
    return DescribeAclsResponse(error_message=None, resources=list(resources.values()))
