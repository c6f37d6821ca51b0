"""Shell: opens the logs that were found on disk, before the first image gives their partitions a role.

A node may have tens of thousands of logs, and recovery after a crash reads them. The event loop gets its turn in
between, so that this node keeps its place in the quorum.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from barnabas.core.ids import TopicPartition
from barnabas.core.telemetry import get_logger
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.replication.directories.replica_directories import ReplicaDirectories
from barnabas.server.storage.config import LogConfig

log = get_logger("barnabas.server.replication")

_TURN_S: Final = 0.02
"""After this time the event loop runs other tasks."""
_PROGRESS_EVERY_S: Final = 5.0


async def open_found_logs(
    directories: ReplicaDirectories,
    image: ClusterImage,
    node_id: int,
    log_config: Callable[[ClusterImage, str], LogConfig],
) -> None:
    """Open the found logs of the partitions that `image` assigns to this broker, and log the progress of a long start.

    `ReplicaDirectories.open` returns the opened logs afterwards.
    """
    loop = asyncio.get_running_loop()
    began = turn = reported = loop.time()
    total, opened = directories.found_count, 0
    if not total:
        return
    for topic in image.topics:
        mine = [(index, state) for index, state in enumerate(topic.partitions) if node_id in state.replicas]
        if not mine:
            continue
        config = log_config(image, topic.name)
        for index, state in mine:
            name = TopicPartition(topic.name, index)
            opened += directories.open_found(name, topic.topic_id, config, state.directory_of(node_id))
            now = loop.time()
            if now - turn < _TURN_S:
                continue
            await asyncio.sleep(0)
            turn = loop.time()
            if turn - reported >= _PROGRESS_EVERY_S:
                reported = turn
                log.warning("still opening logs", opened=opened, of=total, seconds=round(turn - began, 1))
    if opened:
        rebuilt = sum(directory.indexes_rebuilt for directory in directories.directories)
        log.info("logs opened", logs=opened, seconds=round(loop.time() - began, 3), segments_with_new_indexes=rebuilt)
