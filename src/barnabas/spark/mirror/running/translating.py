"""Shell: what the checkpoints of a target cluster say about a group, as Kafka's `RemoteClusterUtils` reads them."""

from __future__ import annotations

from barnabas.client.admin import AsyncAdmin
from barnabas.core.ids import TopicPartition
from barnabas.spark.mirror.config.values import PairConfig
from barnabas.spark.mirror.records import Checkpoint, decode_checkpoint
from barnabas.spark.mirror.running.topic_reader import TopicReader


async def read_checkpoints(config: PairConfig, group: str) -> list[Checkpoint]:
    """The newest checkpoint of each partition, sorted. Only the target cluster is asked. Raises KafkaError,
    UNKNOWN_TOPIC_OR_PARTITION if there are no checkpoints at all."""
    newest: dict[TopicPartition, Checkpoint] = {}

    def on_record(key: bytes, value: bytes | None) -> None:
        if value is not None and (found := decode_checkpoint(key, value)).group == group:
            newest[found.partition] = found

    async with AsyncAdmin({"default.api.timeout.ms": config.admin_timeout_ms, **config.target_clients.admin}) as admin:
        await TopicReader(admin.cluster, config.checkpoints_topic).read_new(on_record)
    return [newest[partition] for partition in sorted(newest)]
