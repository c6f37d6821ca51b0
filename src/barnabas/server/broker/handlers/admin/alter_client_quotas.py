"""Shell: AlterClientQuotas (key 49), versions 0 to 1.

- 0: sets and removes the quotas of users, client ids and addresses (KIP-546)
- 1: flexible

The controller decides. The changes of one entity are applied together or not at all.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.protocol.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryDataResponse,
)
from barnabas.server.broker.handlers.admin.port import AdminPort
from barnabas.server.broker.request_context import RequestContext


async def handle(port: AdminPort, ctx: RequestContext, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    try:
        response = await port.controller.call(request, ctx.api_version, ctx)
    except KafkaError as error:
        return AlterClientQuotasResponse(
            entries=[
                EntryDataResponse(error_code=error.code, error_message=error.detail, entity=entry.entity)
                for entry in request.entries
            ]
        )
    assert isinstance(response, AlterClientQuotasResponse)
    return response
