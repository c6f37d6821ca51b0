"""Shell: creates the internal topics of a pair, and reads positions from `mm2-offsets`."""

from __future__ import annotations

from barnabas.client.admin import AsyncAdmin
from barnabas.client.values import NewTopic
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.core.telemetry import get_logger
from barnabas.spark.mirror.config.values import PairConfig
from barnabas.spark.mirror.deciding.topics import internal_topic
from barnabas.spark.mirror.records import decode_source_offset
from barnabas.spark.mirror.running.clusters import ClusterClients, PairClients
from barnabas.spark.mirror.running.topic_reader import TopicReader, partition_count

log = get_logger("barnabas.mirror")


async def create_internal_topics(config: PairConfig, clients: PairClients) -> None:
    """Create those that the pair needs and that do not exist. Raises KafkaError."""
    brokers = await clients.target.broker_count()
    wanted: list[NewTopic] = []
    if config.heartbeats.enabled:
        wanted.append(internal_topic(config.heartbeats_topic, config.replication.heartbeats, brokers))
    if config.enabled and config.checkpoints.enabled:
        wanted.append(internal_topic(config.checkpoints_topic, config.replication.checkpoints, brokers))
    if config.enabled:
        offsets = config.replication.offsets
        wanted.append(internal_topic(config.offsets_topic, offsets, brokers, config.offsets_partitions))
    await _create(clients.target, wanted)
    if config.enabled and config.offset_syncs_enabled:
        having = clients.having_syncs(config)
        topic = internal_topic(config.offset_syncs_topic, config.replication.offset_syncs, await having.broker_count())
        await _create(having, [topic])


async def _create(clients: ClusterClients, topics: list[NewTopic]) -> None:
    found = await clients.admin.create_topics(topics) if topics else {}
    for name, outcome in found.items():
        if isinstance(outcome, KafkaError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise type(outcome)(outcome.code, f"the topic {name} of the cluster {clients.alias}: {outcome}")
        if not isinstance(outcome, KafkaError):
            log.info("created an internal topic", topic=name, cluster=clients.alias)


async def read_positions(config: PairConfig, admin: AsyncAdmin) -> dict[TopicPartition, int]:
    """The next upstream offset of each source partition that has been copied before, by this or by Kafka's
    MirrorMaker. Raises KafkaError."""
    partitions = await partition_count(admin.cluster, config.offsets_topic)
    positions: dict[TopicPartition, int] = {}

    def on_record(key: bytes, value: bytes | None) -> None:
        found = decode_source_offset(key, value)
        if found is None or found.source_alias != config.source:
            return
        if found.offset is None:
            positions.pop(found.partition, None)
        else:
            positions[found.partition] = found.offset + 1

    if partitions:
        await TopicReader(admin.cluster, config.offsets_topic, partitions).read_new(on_record)
    return positions
