"""Shell: DescribeClientQuotas (key 48), versions 0 to 1.

- 0: the quotas of the entities that a filter matches (KIP-546)
- 1: flexible

The response has the quotas that are set, not those that hold for a client.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.protocol.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from barnabas.server.broker.handlers.cluster.port import ClusterPort
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.metadata.controller.client_quotas import find_client_quotas


async def handle(
    port: ClusterPort, ctx: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    try:
        found = find_client_quotas(port.metadata.image.quotas, request.components, strict=request.strict)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=str(error), entries=None)
    return DescribeClientQuotasResponse(
        error_message=None,
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[ValueData(key=key, value=value) for key, value in limits.items()],
            )
            for entity, limits in found
        ],
    )
