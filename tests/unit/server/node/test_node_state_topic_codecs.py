"""The configs of the codecs of `__consumer_offsets` and `__share_group_state` apply to what the coordinators append."""

from __future__ import annotations

import asyncio
from pathlib import Path

from barnabas.client.admin import AsyncAdmin
from barnabas.client.consumer.consumer import AsyncConsumer
from barnabas.client.producer.producer import AsyncProducer
from barnabas.client.share.consumer import AsyncShareConsumer
from barnabas.client.values import ConfigChange, ConfigResource
from barnabas.core.ids import CONSUMER_OFFSETS_TOPIC, SHARE_STATE_TOPIC
from barnabas.protocol.records.batch import iter_batches
from barnabas.protocol.records.compression import CompressionType
from barnabas.testing import AsyncEmbeddedBroker

CONFIG = {
    "offsets.topic.compression.codec": "1",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.compression.codec": "4",
    "share.coordinator.state.topic.num.partitions": "1",
}


def codecs_of(folder: Path, topic: str) -> set[CompressionType]:
    data = b"".join(path.read_bytes() for path in sorted(folder.glob(f"{topic}-0/*.log")))
    return {header.codec for _, header in iter_batches(data) if not header.is_control}


async def consume_from_both_kinds_of_group(servers: str) -> None:
    async with AsyncAdmin(bootstrap_servers=servers) as admin:
        changes = [ConfigChange("share.auto.offset.reset", "earliest")]
        await admin.incremental_alter_configs({ConfigResource.group("shared"): changes})
    async with AsyncProducer(bootstrap_servers=servers) as producer:
        await producer.send("t", b"value")
    async with AsyncConsumer(bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["t"])
        while not await consumer.poll(100):
            pass
        await consumer.commit()
    async with AsyncShareConsumer(bootstrap_servers=servers, group_id="shared") as shared:
        shared.subscribe(["t"])
        while not await shared.poll(100):
            pass
        await shared.commit()


def test_state_topics_are_compressed_with_the_configured_codecs(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncEmbeddedBroker(CONFIG, data_dir=str(tmp_path)) as broker:
            async with asyncio.timeout(60):
                await consume_from_both_kinds_of_group(broker.bootstrap_servers)

    asyncio.run(main())
    assert codecs_of(tmp_path, CONSUMER_OFFSETS_TOPIC) == {CompressionType.GZIP}
    assert codecs_of(tmp_path, SHARE_STATE_TOPIC) == {CompressionType.ZSTD}
