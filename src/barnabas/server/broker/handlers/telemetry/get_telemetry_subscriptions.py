"""Shell: GetTelemetrySubscriptions (key 71), version 0 (KIP-714).

- 0: the metrics that a client is to push, the interval, the codecs, and the id of this answer

A client without an instance id gets one. `broker/client_metrics` decides; a client that asks too early gets
THROTTLING_QUOTA_EXCEEDED.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.protocol.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from barnabas.server.broker.client_metrics.instances import ACCEPTED_CODECS
from barnabas.server.broker.client_metrics.subscriptions import ClientAttributes
from barnabas.server.broker.handlers.telemetry.port import TelemetryPort
from barnabas.server.broker.request_context import RequestContext


async def handle(
    port: TelemetryPort, ctx: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    try:
        found = port.client_metrics.instances.subscribe(request.client_instance_id, attributes_of(ctx), ctx.now_ms)
    except KafkaError as error:
        return GetTelemetrySubscriptionsResponse(error_code=error.code, client_instance_id=request.client_instance_id)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=found.instance_id,
        subscription_id=found.subscription_id,
        accepted_compression_types=[int(codec) for codec in ACCEPTED_CODECS],
        push_interval_ms=found.wanted.interval_ms,
        telemetry_max_bytes=port.config.current.telemetry_max_bytes,
        delta_temporality=True,
        requested_metrics=list(found.wanted.metrics),
    )


def attributes_of(ctx: RequestContext) -> ClientAttributes:
    """The attributes of the client of a request, without its instance id."""
    client = ctx.client
    return ClientAttributes(
        client_id=ctx.client_id or "",
        client_software_name=client.software_name,
        client_software_version=client.software_version,
        client_source_address=client.host,
        client_source_port=str(client.port),
        principal=str(client.principal),
    )
