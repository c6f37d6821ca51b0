"""The limits of tiered storage change while the broker runs, and a throttled partition does not delay the others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from barnabas import AsyncAdmin, AsyncConsumer, AsyncProducer, KafkaError, TopicPartition
from barnabas.client.values import AlterOp, ConfigChange, ConfigResource, ConfigResourceType, NewTopic
from barnabas.core.telemetry import render
from barnabas.testing.embedded import AsyncEmbeddedBroker
from tests.progress import Standstill, until
from tests.system.tiered.archive import SEGMENT_BYTES, SETTINGS, value_of

pytestmark = pytest.mark.system
RECORDS = 1_000
DEFAULT = ConfigResource(ConfigResourceType.BROKER, "")


def test_throttled_reads_do_not_delay_other_partitions(tmp_path: Path) -> None:
    settings = {
        **dict(setting.split("=", 1) for setting in SETTINGS),
        "rsm.config.storage.root": str(tmp_path),
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
    }

    async def main() -> None:
        async with AsyncEmbeddedBroker(settings) as broker:
            servers = broker.bootstrap_servers
            async with AsyncAdmin(bootstrap_servers=servers) as admin:
                await _alter(admin, {"remote.log.manager.copy.max.bytes.per.second": str(SEGMENT_BYTES // 2)})
                await _create(admin)
                await _write(servers)
                await until(lambda: _sample(broker, "remote_copy_throttle_time_max") > 0, "a copy waits")
                await _alter(admin, {"remote.log.manager.copy.max.bytes.per.second": None})
                local = Path(broker.data_dir, "archive-0")
                await until(lambda: len(list(local.glob("*.log"))) == 1, "one segment is local")
                await _alter(
                    admin,
                    {
                        "remote.log.manager.fetch.max.bytes.per.second": "1",
                        "remote.log.index.file.cache.total.size.bytes": "1",
                        "remote.log.manager.copier.thread.pool.size": "1",
                        "remote.log.reader.threads": "1",
                        "remote.fetch.max.wait.ms": "5000",
                    },
                )
                await _read_both(broker, admin)

    asyncio.run(main())


async def _read_both(broker: AsyncEmbeddedBroker, admin: AsyncAdmin) -> None:
    """Read both topics with one consumer: the local one first, and the tiered one as soon as that is allowed."""
    values: dict[str, list[bytes | None]] = {"archive": [], "fresh": []}
    servers = broker.bootstrap_servers
    async with AsyncConsumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("archive", 0), TopicPartition("fresh", 0)])
        standstill = Standstill("both topics are read")
        allowed = False
        while any(len(found) < RECORDS for found in values.values()):
            for record in await consumer.poll(timeout_ms=500):
                values[record.topic].append(record.value)
            standstill.check({topic: len(found) for topic, found in values.items()})
            if not allowed and len(values["fresh"]) == RECORDS:
                assert len(values["archive"]) < RECORDS
                assert _sample(broker, "remote_fetch_throttle_time_max") > 0
                await _alter(admin, {"remote.log.manager.fetch.max.bytes.per.second": None})
                allowed = True
    expected = [value_of(number) for number in range(RECORDS)]
    assert allowed and values == {"archive": expected, "fresh": expected}
    cached = Path(broker.data_dir, "remote-log-index-cache")
    assert list(cached.iterdir()) == [], "no index file is within one byte"


def _sample(broker: AsyncEmbeddedBroker, name: str) -> float:
    assert broker.node is not None
    page = render(broker.node.metrics).splitlines()
    return float(next(line for line in page if line.startswith(f"kafka_server_remotelogmanager_{name} ")).split()[1])


async def _alter(admin: AsyncAdmin, values: dict[str, str | None]) -> None:
    changes = [
        ConfigChange(name, value, AlterOp.SET if value is not None else AlterOp.DELETE)
        for name, value in values.items()
    ]
    assert await admin.incremental_alter_configs({DEFAULT: changes}) == {DEFAULT: None}


async def _create(admin: AsyncAdmin) -> None:
    tiered = {
        "remote.storage.enable": "true",
        "segment.bytes": str(SEGMENT_BYTES),
        "local.retention.bytes": "1",
        "retention.ms": "-1",
    }
    created = await admin.create_topics([NewTopic("archive", 1, 1, configs=tiered), NewTopic("fresh", 1, 1)])
    assert not [error for error in created.values() if isinstance(error, KafkaError)]


async def _write(servers: str) -> None:
    async with AsyncProducer(bootstrap_servers=servers) as producer:
        for topic in ("archive", "fresh"):
            sent = [await producer.send(topic, value=value_of(number), partition=0) for number in range(RECORDS)]
            await producer.flush()
            await asyncio.gather(*sent)
