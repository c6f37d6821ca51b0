"""Shell: the tiered partitions of this broker: whose events it reads, which it copies as a leader, which it cleans up.

hosted and tiered                    the events are read
led, tiered                          segments are copied, and expire (`TieredLeaders`)
led, remote.log.delete.on.disable    all remote segments are deleted
topic deleted                        the broker that leads the partition of `__remote_log_metadata` with the events
                                     deletes the remote segments
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from barnabas.core.clock import Clock
from barnabas.core.ids import REMOTE_LOG_METADATA_TOPIC, TopicId, TopicPartition
from barnabas.core.telemetry import get_logger
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.partitions import Partitions
from barnabas.server.tiering.errors import RemoteStorageError
from barnabas.server.tiering.events import RemoteEvents
from barnabas.server.tiering.leaders import TieredLeaders
from barnabas.server.tiering.remote_log import RemoteLog
from barnabas.server.tiering.traffic import RemoteTraffic
from barnabas.server.tiering.values import RemotePartition

log = get_logger("barnabas.server.tiering")

ORPHAN_AFTER_MS: Final = 10 * 60 * 1000
"""A topic id that is in the events and not in the metadata belongs to a deleted topic, or to a new one that this broker
does not know yet. After this time it is taken for deleted, unless its deletion was seen."""


class HostedPartitions:
    """Notified of leaderships (`LeadershipListener`) and images (`ImageSubscriber`)."""

    def __init__(
        self,
        partitions: Partitions,
        events: RemoteEvents,
        leaders: TieredLeaders,
        traffic: RemoteTraffic,
        clock: Clock,
        image: Callable[[], ClusterImage],
        *,
        remote_log_manager_task_interval_ms: int,
    ) -> None:
        self._partitions = partitions
        self._events = events
        self._leaders = leaders
        self._traffic = traffic
        self._clock = clock
        self._image = image
        self._interval_s = remote_log_manager_task_interval_ms / 1000
        self._changed = asyncio.Event()
        self._deleted: dict[TopicId, int] = {}
        """When this broker saw the deletion of a topic. An entry is kept for ORPHAN_AFTER_MS: after that time an absent
        topic counts as deleted anyway."""
        self._deletion_seen = asyncio.Event()
        self._absent_since: dict[RemotePartition, int] = {}
        self._led: dict[TopicPartition, RemotePartition] = {}
        self._led_numbers: frozenset[int] = frozenset()
        """The partitions of `__remote_log_metadata` that this broker leads."""

    # -- LeadershipListener and ImageSubscriber --------------------------------------------------------------------

    def on_elected(self, partition: TopicPartition, leader_epoch: int) -> None:
        self._changed.set()

    def on_resigned(self, partition: TopicPartition, leader_epoch: int | None) -> None:
        self._resign(partition)
        self._changed.set()

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        if delta.topics or delta.configs:
            self._changed.set()
        now_ms = self._clock.now_ms()
        for topic_id in [known for known, seen_ms in self._deleted.items() if now_ms - seen_ms >= ORPHAN_AFTER_MS]:
            del self._deleted[topic_id]
        for topic_id, gone in delta.topics.deleted.items():
            self._deleted[topic_id] = now_ms
            self._deletion_seen.set()
            if gone.name not in image.topics:
                self._traffic.forget(gone.name)

    # -- hosted partitions ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Follow the changes until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._clean_up())
            while True:
                await self._changed.wait()
                self._changed.clear()
                self._settle()
                await asyncio.sleep(0)

    def _settle(self) -> None:
        """Follow and lead what this broker hosts now."""
        followed: list[RemotePartition] = []
        numbers: set[int] = set()
        for partition in self._partitions:
            target = partition.log
            if target is None:
                continue
            if partition.is_leader and partition.name.topic == REMOTE_LOG_METADATA_TOPIC:
                numbers.add(partition.name.partition)
            config = target.config
            leads = partition.is_leader and (config.tiered or config.remote_log_delete_on_disable)
            if config.tiered or leads:
                followed.append(partition.remote)
            if leads:
                self._lead(partition)
            else:
                self._resign(partition.name)
        self._led_numbers = frozenset(numbers)
        self._events.follow(followed, numbers)

    def _lead(self, partition: Partition) -> None:
        remote = partition.remote
        if self._led.get(partition.name) != remote:
            self._resign(partition.name)
            self._led[partition.name] = remote
            self._leaders.lead(remote, partition)

    def _resign(self, name: TopicPartition) -> None:
        remote = self._led.pop(name, None)
        if remote is not None:
            self._leaders.resign(remote)

    # -- deleted topics ------------------------------------------------------------------------------------------------

    async def _clean_up(self) -> None:
        while True:
            self._deletion_seen.clear()
            for number in sorted(self._led_numbers):
                for partition, remote in sorted(self._events.known(number).items()):
                    await self._clean_up_partition(partition, remote)
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._deletion_seen.wait()
                    await asyncio.sleep(min(1.0, self._interval_s / 2))  # the partition's leader stops copying first
            except TimeoutError:
                pass

    async def _clean_up_partition(self, partition: RemotePartition, remote: RemoteLog) -> None:
        has_something = bool(remote.segments()) or remote.delete_state is not None
        if not has_something or self._image().topics.get_by_id(partition.topic_id) is not None:
            self._absent_since.pop(partition, None)
            return
        now_ms = self._clock.now_ms()
        since_ms = self._absent_since.setdefault(partition, now_ms)
        if partition.topic_id not in self._deleted and now_ms - since_ms < ORPHAN_AFTER_MS:
            return
        try:
            await self._leaders.delete_partition(partition)
        except RemoteStorageError as error:
            log.warning(
                "the remote segments of a deleted topic could not be deleted; it is repeated",
                partition=str(partition),
                reason=str(error),
            )
            return
        log.info("the remote segments of a deleted topic are deleted", partition=str(partition))
        self._absent_since.pop(partition, None)
