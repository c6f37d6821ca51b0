"""Shell: builds the objects of tiered storage of this broker, and runs them."""

from __future__ import annotations

import asyncio
from typing import Final

from msgspec import Struct

from barnabas.core.backoff import Backoff
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.core.telemetry import get_logger
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.node.channels.peer_router import PeerRouter
from barnabas.server.node.monitoring.tiered import TieredMonitor
from barnabas.server.node.parts import Parts
from barnabas.server.node.tiered.event_topic import PeerEventTopic
from barnabas.server.node.tiered.hosted import HostedPartitions
from barnabas.server.node.tiered.settings import read_settings
from barnabas.server.node.typed_configs import INDEX_CACHE, TIERING
from barnabas.server.replication.partitions import Partitions
from barnabas.server.storage.errors import StorageError
from barnabas.server.tiering.copier import SegmentCopier
from barnabas.server.tiering.events import RemoteEvents
from barnabas.server.tiering.leaders import TieredLeaders
from barnabas.server.tiering.reading.chunks import ChunkLimits, ChunkReader
from barnabas.server.tiering.reading.index_cache import DIRECTORY, IndexCache
from barnabas.server.tiering.reading.partition_reader import RemotePartitionReader
from barnabas.server.tiering.reading.reader import RemoteReader
from barnabas.server.tiering.replicas import RemoteReplicas
from barnabas.server.tiering.store.opening import open_store
from barnabas.server.tiering.store.retrying import RetryingStore, StorePatience
from barnabas.server.tiering.traffic import RemoteTraffic

log = get_logger("barnabas.server.tiering")

CHUNK_CACHE_BYTES: Final = 64 * 1024 * 1024
"""The memory for parts of log files that are read from the store or fetched ahead."""
_ATTEMPTS: Final = 3
_BACKOFF: Final = Backoff(100, 2_000)


class TieredStorage(Struct):
    """Tiered storage of one broker."""

    replicas: RemoteReplicas
    leaders: TieredLeaders
    traffic: RemoteTraffic
    events: RemoteEvents
    chunks: ChunkReader
    hosted: HostedPartitions

    async def run(self) -> None:
        """Run the tasks until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.events.run(), name="events of remote segments")
            tasks.create_task(self.chunks.run(), name="reads of remote segments")
            tasks.create_task(self.leaders.run(), name="tiered leaders")
            tasks.create_task(self.hosted.run(), name="tiered partitions")
            await asyncio.sleep(0)

    # -- LeadershipListener and ImageSubscriber --------------------------------------------------------------------

    def on_elected(self, partition: TopicPartition, leader_epoch: int) -> None:
        self.hosted.on_elected(partition, leader_epoch)

    def on_resigned(self, partition: TopicPartition, leader_epoch: int | None) -> None:
        self.hosted.on_resigned(partition, leader_epoch)

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        self.hosted.on_image(delta, image)


def build_tiered_storage(parts: Parts, partitions: Partitions, router: PeerRouter) -> TieredStorage | None:
    """Tiered storage of this broker, or None without remote.log.storage.system.enable. Raises ConfigError, and
    KafkaError if the local disk fails."""
    config = parts.config
    if not config["remote.log.storage.system.enable"]:
        return None
    settings = read_settings(config)
    opened = open_store(settings.store, parts.fs, parts.disk, of=settings.store_prefix)
    store = RetryingStore(
        parts.objects or opened.store, StorePatience(opened.timeout_ms, _ATTEMPTS, _BACKOFF), parts.rng
    )
    traffic = RemoteTraffic()
    events = RemoteEvents(PeerEventTopic(router, settings.topic, parts.clock), parts.rng)
    copier = SegmentCopier(
        store, events, parts.disk, parts.clock, parts.rng,
        broker_id=parts.node_id, prefix=opened.prefix, traffic=traffic,
    )  # fmt: skip
    tasks = TIERING.build(config.__getitem__)
    leaders = TieredLeaders(copier, events, parts.clock, parts.rng, tasks, broker_id=parts.node_id)
    chunks = ChunkReader(
        store,
        ChunkLimits(
            config["remote.log.reader.threads"], config["remote.log.reader.max.pending.tasks"], CHUNK_CACHE_BYTES
        ),
    )
    indexes = IndexCache(
        store,
        parts.fs,
        f"{parts.dirs[0].path}/{DIRECTORY}",
        parts.disk,
        parts.clock,
        INDEX_CACHE.build(config.__getitem__),
        prefix=opened.prefix,
    )
    try:
        indexes.prepare()
    except StorageError as error:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The cache of remote indexes failed: {error}") from error
    segments = RemoteReader(store, chunks, indexes, prefix=opened.prefix)
    reader = RemotePartitionReader(
        events,
        segments,
        parts.disk,
        remote_fetch_max_wait_ms=config["remote.fetch.max.wait.ms"],
        remote_list_offsets_request_timeout_ms=config["remote.list.offsets.request.timeout.ms"],
        traffic=traffic,
    )
    replicas = RemoteReplicas(
        events,
        segments,
        reader,
        remote_log_manager_follower_thread_pool_size=config["remote.log.manager.follower.thread.pool.size"],
    )
    hosted = HostedPartitions(
        partitions, events, leaders, traffic, parts.clock, lambda: parts.image,
        remote_log_manager_task_interval_ms=tasks.remote_log_manager_task_interval_ms,
    )  # fmt: skip
    partitions.context.tiered = replicas
    parts.metrics.collectors.append(TieredMonitor(traffic, leaders, chunks).collect)
    return TieredStorage(replicas, leaders, traffic, events, chunks, hosted)
