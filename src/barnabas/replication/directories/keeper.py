"""Shell: tells the controller in which directory each replica of this broker lies (KIP-858, `AssignmentsManager`).

Where a broker has several directories, the controller must know what a failed one takes with it. Whatever the image has
otherwise is told, many replicas in one AssignReplicasToDirs, and again until the image says so. Of a replica that moves
(`mover.py`) the controller knows before it has moved: were it to hear of it later, and the new directory were lost
in between, it would go on trusting a replica whose log is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final
from uuid import UUID

from barnabas.core.backoff import Backoff
from barnabas.core.errors import KafkaError
from barnabas.core.rng import Rng
from barnabas.metadata.image.cluster import ClusterImage, PartitionImage, TopicImage
from barnabas.metadata.image.delta import ClusterDelta
from barnabas.replication.partition import Partition
from barnabas.replication.partitions import Partitions
from barnabas.replication.ports import PartitionKey, PeerChannel
from barnabas.telemetry import get_logger

log = get_logger("barnabas.replication")

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
        if len(self._partitions.log_dirs) < 2:
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
        partitions, key = self._partitions, (topic.topic_id, index)
        node_id = partitions.host.node_id
        found = partitions.get(topic.name, index)
        home = None if found is None or found.log is None else partitions.log_dir_of(found)
        if home is not None:
            home = partitions.promised.get((topic.name, index), home)
        if home is None or node_id not in state.replicas or state.directory_of(node_id) == home.directory_id:
            self._wrong.pop(key, None)
        else:
            self._wrong[key] = home.directory_id

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
