"""Shell: reports the log directory of each replica of this broker to the controller (KIP-858, `AssignmentsManager`).

The controller needs the directories to know the replicas that a failed directory affects. Every replica whose directory
differs from the image is reported, many replicas in one AssignReplicasToDirs request, until an image shows the reported
directory. A replica without a log is reported as lost, and so is one whose log is damaged, if another replica is in
sync, or was so and has lost no record since (KIP-966). The target directory of a move (`mover.py`) is reported before
the move ends. Otherwise, if the new directory failed before the report, the controller would still consider a replica
without a log in sync.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final
from uuid import UUID

from barnabas.core.backoff import Backoff
from barnabas.core.errors import KafkaError
from barnabas.core.rng import Rng
from barnabas.core.telemetry import get_logger
from barnabas.server.metadata.image.cluster import ClusterImage, PartitionImage, TopicImage
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.metadata.image.topics import LOST_DIRECTORY
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.partitions import Partitions
from barnabas.server.replication.ports import PartitionKey, PeerChannel

log = get_logger("barnabas.server.replication")

_BATCH_MAX: Final = 2_250
"""The maximum number of replicas in one request, as in Kafka."""
_DIRECTORIES_LEVEL: Final = 17
"""metadata.version 3.7-IV2: from this level on, the metadata contains the directory of each replica."""
_RETRY_S: Final = 5.0
"""A report is sent again if no image shows the reported directories within this time after the response."""


class DirectoryReporter:
    """Compares the directories of the replicas with the image, and reports the differences."""

    def __init__(self, partitions: Partitions, channel: PeerChannel, rng: Rng) -> None:
        self._partitions = partitions
        self._channel = channel
        self._rng = rng
        self._backoff = Backoff(100, 10_000)
        self._unreported: dict[PartitionKey, UUID] = {}
        """The directories of the replicas for which the image has another directory, or none."""
        self._wake = asyncio.Event()
        self._image = ClusterImage()

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        """Compare the changed replicas with the image."""
        self._image = image
        if image.features.metadata_version < _DIRECTORIES_LEVEL:
            return
        for topic_id in delta.topics.deleted:
            for key in [key for key in self._unreported if key[0] == topic_id]:
                del self._unreported[key]
        for topic_id in delta.topics.changed:
            topic = image.topics.get_by_id(topic_id)
            if topic is None:
                continue
            for index, state in enumerate(topic.partitions):
                self._compare(topic, index, state)
        self._wake.set()

    def on_moved(self, partition: Partition) -> bool:
        """The replica's current or planned directory changed. Returns True if the image already has that directory."""
        if self._image.features.metadata_version < _DIRECTORIES_LEVEL:
            return True  # this metadata.version has no directories
        topic = self._image.topics.get_by_id(partition.topic_id)
        index = partition.name.partition
        state = None if topic is None else topic.partition(index)
        if topic is None or state is None:
            return False
        self._compare(topic, index, state)
        self._wake.set()
        return (topic.topic_id, index) not in self._unreported

    def _compare(self, topic: TopicImage, index: int, state: PartitionImage) -> None:
        node_id, key = self._partitions.context.node_id, (topic.topic_id, index)
        if node_id not in state.replicas:
            self._unreported.pop(key, None)
            return
        known, home = state.directory_of(node_id), self._directory_of(topic.name, index)
        if home == LOST_DIRECTORY and self._is_known_offline(known):
            home = known  # the log may still be in that directory
        elif self._is_damaged(topic.name, index) and (known == LOST_DIRECTORY or {*state.isr, *state.elr} - {node_id}):
            # The controller removes this replica from the ISR, and another one leads that has all committed records.
            # Without another one nothing is reported: the log is complete again once it is restored, and must be
            # allowed to lead.
            home = LOST_DIRECTORY
        if home is None or home == known:
            self._unreported.pop(key, None)
        else:
            self._unreported[key] = home

    def _is_damaged(self, topic: str, index: int) -> bool:
        found = self._partitions.get(topic, index)
        return found is not None and self._partitions.is_damaged(found)

    def _is_known_offline(self, directory: UUID) -> bool:
        """Whether the controller knows that the directory is offline, or learns it with the next heartbeat."""
        partitions = self._partitions
        online = self._image.brokers.has_online_dir(partitions.context.node_id, directory)
        return not online or directory in partitions.offline_dirs

    def _directory_of(self, topic: str, index: int) -> UUID | None:
        """The replica's directory, online or offline. None if this broker does not host the replica yet."""
        partitions = self._partitions
        found = partitions.get(topic, index)
        if found is None:
            return None
        home = partitions.log_dir_of(found)
        if found.log is not None:
            home = partitions.planned_directories.get((topic, index), home)
        return LOST_DIRECTORY if home is None else home.directory_id

    async def run(self) -> None:
        """Report replicas whose directory differs from the image to the controller, until cancelled."""
        failures = 0
        while True:
            while not self._unreported:
                self._wake.clear()
                await self._wake.wait()
            batch = list(self._unreported.items())[:_BATCH_MAX]
            try:
                await self._channel.assign_dirs(batch)
            except KafkaError as error:
                log.info("AssignReplicasToDirs failed; it is sent again", replicas=len(batch), reason=str(error))
                await asyncio.sleep(self._backoff.delay_ms(failures, self._rng) / 1000)
                failures += 1
                continue
            failures = 0
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RETRY_S):
                    while any(self._unreported.get(key) == home for key, home in batch):
                        self._wake.clear()
                        await self._wake.wait()
