"""Shell: tells the controller in which directory each replica of this broker lies (KIP-858, `AssignmentsManager`).

The controller must know what a failed directory takes with it, and that a replica lies in another one now: its disk was
replaced. Whatever the image has otherwise is told, many replicas in one AssignReplicasToDirs, and again until the image
says so; of a replica that has no log here, that it is lost. Of one that moves (`mover.py`) the controller knows before
it has moved: were it to hear of it later, and the new directory were lost in between, it would go on trusting a replica
whose log is gone.
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
"""Replicas in one request, as in Kafka."""
_DIRECTORIES_LEVEL: Final = 17
"""metadata.version 3.7-IV2: from here on the metadata says in which directory a replica lies."""
_AGAIN_S: Final = 5.0
"""After so long an answer without an image that shows it is not trusted."""


class DirKeeper:
    """`run` until cancelled."""

    def __init__(self, partitions: Partitions, channel: PeerChannel, rng: Rng) -> None:
        self._partitions = partitions
        self._channel = channel
        self._rng = rng
        self._backoff = Backoff(100, 10_000)
        self._wrong: dict[PartitionKey, UUID] = {}
        """Where these replicas lie, of which the image has another directory, or none."""
        self._wake = asyncio.Event()
        self._image = ClusterImage()

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        """Look at what has changed."""
        self._image = image
        if image.features.metadata_version < _DIRECTORIES_LEVEL:
            return
        for topic_id in delta.topics.deleted:
            for key in [key for key in self._wrong if key[0] == topic_id]:
                del self._wrong[key]
        for topic_id in delta.topics.changed:
            topic = image.topics.get_by_id(topic_id)
            if topic is None:
                continue
            for index, state in enumerate(topic.partitions):
                self._compare(topic, index, state)
        self._wake.set()

    def on_moved(self, partition: Partition) -> bool:
        """It is (or is about to be, or is not after all) in another directory. Whether the controller knows already."""
        if self._image.features.metadata_version < _DIRECTORIES_LEVEL:
            return True  # this cluster's controllers do not ask
        topic = self._image.topics.get_by_id(partition.topic_id)
        index = partition.name.partition
        state = None if topic is None else topic.partition(index)
        if topic is None or state is None:
            return False
        self._compare(topic, index, state)
        self._wake.set()
        return (topic.topic_id, index) not in self._wrong

    def _compare(self, topic: TopicImage, index: int, state: PartitionImage) -> None:
        node_id, key = self._partitions.context.node_id, (topic.topic_id, index)
        if node_id not in state.replicas:
            self._wrong.pop(key, None)
            return
        told, home = state.directory_of(node_id), self._home_of(topic.name, index)
        if home == LOST_DIRECTORY and self._is_known_to_be_out(told):
            home = told  # it may be there still
        if home is None or home == told:
            self._wrong.pop(key, None)
        else:
            self._wrong[key] = home

    def _is_known_to_be_out(self, directory: UUID) -> bool:
        """To the controller, or it will be with the next heartbeat."""
        partitions = self._partitions
        online = self._image.brokers.has_online_dir(partitions.context.node_id, directory)
        return not online or directory in partitions.offline_dirs

    def _home_of(self, topic: str, index: int) -> UUID | None:
        """Where the replica lies, or lay until its disk failed; None before it is here."""
        partitions = self._partitions
        found = partitions.get(topic, index)
        if found is None:
            return None
        home = partitions.log_dir_of(found)
        if found.log is not None:
            home = partitions.promised.get((topic, index), home)
        return LOST_DIRECTORY if home is None else home.directory_id

    async def run(self) -> None:
        failures = 0
        while True:
            while not self._wrong:
                self._wake.clear()
                await self._wake.wait()
            batch = list(self._wrong.items())[:_BATCH_MAX]
            try:
                await self._channel.assign_dirs(batch)
            except KafkaError as error:
                log.info("the controller was not told of directories", replicas=len(batch), reason=str(error))
                await asyncio.sleep(self._backoff.delay_ms(failures, self._rng) / 1000)
                failures += 1
                continue
            failures = 0
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN_S):
                    while any(self._wrong.get(key) == home for key, home in batch):
                        self._wake.clear()
                        await self._wake.wait()
