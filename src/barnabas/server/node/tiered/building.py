"""Shell: builds the objects of tiered storage of this broker, and runs them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from barnabas.core.backoff import Backoff
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.core.telemetry import get_logger
from barnabas.protocol.security.quotas.rates import QuotaWindows
from barnabas.server.metadata.config_view import ConfigView
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.monitoring.tiered import TieredMonitor
from barnabas.server.node.parts import Parts
from barnabas.server.node.tiered.event_topic import PeerEventTopic
from barnabas.server.node.tiered.hosted import HostedPartitions
from barnabas.server.node.tiered.settings import read_settings
from barnabas.server.node.typed_configs import build_tiering_configs
from barnabas.server.peers.peer_router import PeerRouter
from barnabas.server.replication.partitions import Partitions
from barnabas.server.storage.errors import StorageError
from barnabas.server.tiering.copier import SegmentCopier
from barnabas.server.tiering.events import RemoteEvents
from barnabas.server.tiering.leaders import TieredLeaders
from barnabas.server.tiering.quotas import RemoteQuota
from barnabas.server.tiering.reading.chunks import ChunkLimits, ChunkReader
from barnabas.server.tiering.reading.index_cache import DIRECTORY, IndexCache, IndexCacheConfig
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
    indexes: IndexCache
    hosted: HostedPartitions
    config_view: Callable[[ClusterImage], ConfigView]
    changed: asyncio.Event
    """Set when the size of the index cache may have changed."""
    cache_config: IndexCacheConfig

    async def run(self) -> None:
        """Run the tasks until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.events.run(), name="events of remote segments")
            tasks.create_task(self.chunks.run(), name="reads of remote segments")
            tasks.create_task(self.leaders.run(), name="tiered leaders")
            tasks.create_task(self.hosted.run(), name="tiered partitions")
            tasks.create_task(self._resize_cache(), name="the cache of remote indexes")
            await asyncio.sleep(0)

    async def _resize_cache(self) -> None:
        """Other than the rest of `_reconfigure`, this deletes files."""
        while True:
            await self.changed.wait()
            self.changed.clear()
            await self.indexes.reconfigure(self.cache_config)

    # -- LeadershipListener and ImageSubscriber --------------------------------------------------------------------

    def on_elected(self, partition: TopicPartition, leader_epoch: int) -> None:
        self.hosted.on_elected(partition, leader_epoch)

    def on_resigned(self, partition: TopicPartition, leader_epoch: int | None) -> None:
        self.hosted.on_resigned(partition, leader_epoch)

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        if delta.configs:
            self._reconfigure(image)
        self.hosted.on_image(delta, image)

    def _reconfigure(self, image: ClusterImage) -> None:
        tasks, reads, cache = build_tiering_configs(self.config_view(image))
        self.leaders.reconfigure(tasks)
        self.replicas.reader.reconfigure(reads)
        self.replicas.resize(reads.remote_log_manager_follower_thread_pool_size)
        self.chunks.resize(reads.remote_log_reader_threads)
        if cache != self.cache_config:
            self.cache_config = cache
            self.changed.set()


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
    tasks, reads, cache = build_tiering_configs(parts.config_view(parts.image))
    leaders = TieredLeaders(copier, events, parts.clock, parts.rng, tasks, broker_id=parts.node_id)
    chunks = ChunkReader(
        store,
        ChunkLimits(reads.remote_log_reader_threads, reads.remote_log_reader_max_pending_tasks, CHUNK_CACHE_BYTES),
    )
    indexes = IndexCache(
        store,
        parts.fs,
        f"{parts.dirs[0].path}/{DIRECTORY}",
        parts.disk,
        parts.clock,
        cache,
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
        remote_fetch_max_wait_ms=reads.remote_fetch_max_wait_ms,
        remote_list_offsets_request_timeout_ms=reads.remote_list_offsets_request_timeout_ms,
        traffic=traffic,
        quota=RemoteQuota(
            reads.remote_log_manager_fetch_max_bytes_per_second,
            QuotaWindows(
                reads.remote_log_manager_fetch_quota_window_num,
                reads.remote_log_manager_fetch_quota_window_size_seconds,
            ),
        ),
    )
    replicas = RemoteReplicas(
        events,
        segments,
        reader,
        remote_log_manager_follower_thread_pool_size=reads.remote_log_manager_follower_thread_pool_size,
    )
    hosted = HostedPartitions(
        partitions, events, leaders, traffic, parts.clock, lambda: parts.image,
        remote_log_manager_task_interval_ms=tasks.remote_log_manager_task_interval_ms,
    )  # fmt: skip
    partitions.context.tiered = replicas
    parts.metrics.collectors.append(TieredMonitor(traffic, leaders, chunks, reader.quota, parts.clock).collect)
    return TieredStorage(
        replicas, leaders, traffic, events, chunks, indexes, hosted, parts.config_view, asyncio.Event(), cache
    )
