"""Shell: PushTelemetry (key 72), version 0 (KIP-714).

- 0: metrics of a client, as OTLP's MetricsData, compressed or not

A thread inflates and reads the metrics. The decompressed size is limited to ten times `telemetry.max.bytes`. Metrics
that cannot be read are INVALID_RECORD.
"""

from __future__ import annotations

import asyncio
from typing import Final

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.records.compression import CompressionType, decompress
from barnabas.protocol.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from barnabas.server.broker.client_metrics.instances import Push
from barnabas.server.broker.client_metrics.otlp import MetricPoint, OtlpError, read_metrics
from barnabas.server.broker.handlers.telemetry.get_telemetry_subscriptions import attributes_of
from barnabas.server.broker.handlers.telemetry.port import TelemetryPort
from barnabas.server.broker.request_context import RequestContext

_INFLATED: Final = 10


async def handle(port: TelemetryPort, ctx: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
    metrics, limit = port.client_metrics, port.config.current.telemetry_max_bytes
    push = Push(
        request.client_instance_id,
        request.subscription_id,
        request.terminating,
        request.compression_type,
        len(request.metrics),
    )
    try:
        instance = metrics.instances.push(push, attributes_of(ctx), ctx.now_ms, limit)
        points: list[MetricPoint] = []
        if push.size:
            loop = asyncio.get_running_loop()
            points = await loop.run_in_executor(port.disk, _read, bytes(request.metrics), push.codec, limit)
        metrics.add(instance, points)
    except KafkaError as error:
        metrics.count(error)
        return PushTelemetryResponse(error_code=error.code)
    metrics.count(None)
    return PushTelemetryResponse()


def _read(data: bytes, codec: int, limit: int) -> list[MetricPoint]:
    try:
        if codec != CompressionType.NONE:
            data = decompress(CompressionType(codec), data, limit * _INFLATED)
        return read_metrics(data)
    except (OtlpError, KafkaError) as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
