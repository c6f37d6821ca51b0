"""A client pushes metrics to a running broker, and they are on its page of metrics; levels of loggers are changed."""

from __future__ import annotations

import asyncio
from uuid import UUID

from barnabas import AsyncAdmin
from barnabas.client.values import AlterOp, ConfigChange, ConfigResource, ConfigResourceType
from barnabas.core.errors import ErrorCode
from barnabas.core.telemetry import render
from barnabas.protocol.records.compression import CompressionType, compress
from barnabas.protocol.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from barnabas.protocol.wire.messages.push_telemetry import PushTelemetryRequest
from barnabas.testing.embedded import AsyncEmbeddedBroker
from tests.system.broker.wire_client import WireClient
from tests.unit.server.broker.client_metrics.otlp_bytes import attribute, data, double, gauge, integer, message, total

SUBSCRIPTION = ConfigResource(ConfigResourceType.CLIENT_METRICS, "all")


async def subscribe(admin: AsyncAdmin) -> None:
    changes = [ConfigChange("metrics", "org.apache.kafka.producer.", AlterOp.SET)]
    changes.append(ConfigChange("interval.ms", "3600000", AlterOp.SET))
    assert await admin.incremental_alter_configs({SUBSCRIPTION: changes}) == {SUBSCRIPTION: None}


def pushed() -> bytes:
    point = attribute(7, "node", message(1, b"1")) + double(4, 2.5)
    return data(
        gauge("org.apache.kafka.producer.rate", point),
        total("org.apache.kafka.producer.sent", integer(6, 3), delta=True),
    )


def push(address: str) -> None:
    """Ask what to push, push it, push again too early, and end with bytes that are no metrics."""
    with WireClient(address) as client:
        asked = client.call(GetTelemetrySubscriptionsRequest(), 0)
        assert (asked.error_code, asked.push_interval_ms) == (0, 3_600_000)
        assert asked.requested_metrics == ["org.apache.kafka.producer."]
        assert asked.client_instance_id != UUID(int=0)
        codec = CompressionType.GZIP
        request = PushTelemetryRequest(
            client_instance_id=asked.client_instance_id, subscription_id=asked.subscription_id,
            compression_type=codec, metrics=compress(codec, pushed()),
        )  # fmt: skip
        assert client.call(request, 0).error_code == 0
        assert client.call(request, 0).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        request.metrics, request.compression_type, request.terminating = b"\x0b", 0, True
        assert client.call(request, 0).error_code == ErrorCode.INVALID_RECORD


def test_pushed_metrics_are_on_the_page() -> None:
    async def main() -> str:
        async with AsyncEmbeddedBroker() as broker:
            async with AsyncAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
                await subscribe(admin)
            await asyncio.to_thread(push, broker.bootstrap_servers)
            assert broker.node is not None
            return render(broker.node.metrics)

    page = asyncio.run(main())
    lines = [line for line in page.splitlines() if line.startswith("barnabas_client_metric{")]
    assert [line.rpartition(" ")[2] for line in lines] == ["2.5", "3.0"]
    assert 'name="org.apache.kafka.producer.rate",attributes="node=1"' in lines[0]
    assert 'barnabas_client_metrics_pushes_total{result="NONE"} 1\n' in page
    assert 'barnabas_client_metrics_pushes_total{result="INVALID_RECORD"} 1\n' in page


def test_levels_of_loggers_are_described_and_changed() -> None:
    name = "barnabas.server.broker"

    async def main() -> None:
        async with (
            AsyncEmbeddedBroker() as broker,
            AsyncAdmin(bootstrap_servers=broker.bootstrap_servers) as admin,
        ):
            resource = ConfigResource(ConfigResourceType.BROKER_LOGGER, "1")

            async def level() -> str | None:
                entries = (await admin.describe_configs([resource]))[resource]
                assert not isinstance(entries, BaseException)
                return entries[name].value

            async def alter(op: AlterOp, value: str | None, logger: str = name) -> ErrorCode:
                change = ConfigChange(logger, value, op)
                error = (await admin.incremental_alter_configs({resource: [change]}))[resource]
                return ErrorCode.NONE if error is None else error.code

            before = await level()
            assert await alter(AlterOp.SET, "TRACE") is ErrorCode.NONE
            assert await level() == "TRACE"
            assert await alter(AlterOp.SET, "loud") is ErrorCode.INVALID_CONFIG
            assert await alter(AlterOp.SET, "INFO", "no.such") is ErrorCode.INVALID_CONFIG
            assert await alter(AlterOp.APPEND, "INFO") is ErrorCode.INVALID_REQUEST
            assert await alter(AlterOp.DELETE, None, "root") is ErrorCode.INVALID_REQUEST
            assert await alter(AlterOp.DELETE, None) is ErrorCode.NONE
            assert await level() == before

    asyncio.run(main())
