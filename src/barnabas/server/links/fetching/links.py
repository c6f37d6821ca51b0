"""Shell: the mirror partitions that this broker leads, and their links.

`MirrorLinks` is notified of leaderships and images, after `Partitions`. A topic is a mirror while its configs say so
(`LogConfig.is_mirror`); each of its partitions that this broker leads then has a `MirrorTask`, and each link with such
a partition is open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.server.links.fetching.link import ActiveLink
from barnabas.server.links.fetching.ports import OpenSource, SourceCluster
from barnabas.server.links.fetching.task import MirrorTask, TaskPorts
from barnabas.server.links.fetching.values import MirrorMode, MirrorReport
from barnabas.server.metadata.image.cluster import ClusterImage, ResourceType
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.replication.partition import Partition

FindPartition = Callable[[str, int], Partition | None]
"""Finds a partition of this broker, as `Partitions.get` does."""


class MirrorLinks:
    """All mirror partitions that this broker leads. Implements `LeadershipListener` and `ImageSubscriber`."""

    def __init__(self, find: FindPartition, open_source: OpenSource, ports: TaskPorts) -> None:
        self._find = find
        self._open_source = open_source
        self._ports = ports
        self._tasks: dict[TopicPartition, MirrorTask] = {}
        self._running: dict[MirrorTask, asyncio.Task[None]] = {}
        self._links: dict[str, ActiveLink] = {}
        self._open: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Mirror until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._group:
                for link in list(self._links.values()):
                    self._start_link(link)
                for task in list(self._tasks.values()):
                    self._start_task(task)
                await asyncio.get_running_loop().create_future()
        finally:
            self._group = None

    # -- questions ---------------------------------------------------------------------------------------------------

    def reports(self, link: str | None = None) -> list[MirrorReport]:
        """The mirror partitions that this broker leads, of one link or of all, sorted by topic and partition."""
        chosen = [task for task in self._tasks.values() if link is None or task.link.name == link]
        return [task.report() for task in sorted(chosen, key=lambda task: task.key)]

    def source(self, link: str) -> SourceCluster:
        """The source of a link that has a mirror partition here. Raises KafkaError while it is not open."""
        found = self._links.get(link)
        if found is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"This broker leads no mirror partition of the link {link}.")
        return found.source

    # -- events ------------------------------------------------------------------------------------------------------

    def on_elected(self, partition: TopicPartition, leader_epoch: int) -> None:
        self._settle(partition)

    def on_resigned(self, partition: TopicPartition, leader_epoch: int | None) -> None:
        self._settle(partition)

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        for resource in delta.configs.changed:
            topic = image.topics.get(resource.name) if resource.type == ResourceType.TOPIC else None
            for index in range(0 if topic is None else len(topic.partitions)):
                self._settle(TopicPartition(resource.name, index))

    def on_link_changed(self, link: str) -> None:
        """The definition of a link has changed: read it again."""
        found = self._links.get(link)
        if found is not None:
            found.on_definition_changed()

    # -- tasks -------------------------------------------------------------------------------------------------------

    def _settle(self, name: TopicPartition) -> None:
        """Begin, change or end the task of a partition, as its role and its configs say."""
        hosted = self._find(name.topic, name.partition)
        wanted = None
        if hosted is not None and hosted.is_leader and hosted.log is not None and hosted.log.config.is_mirror:
            wanted = hosted
        present = self._tasks.get(name)
        config = None if wanted is None or wanted.log is None else wanted.log.config
        if present is not None and (
            wanted is None
            or config is None
            or not present.belongs_to(wanted)
            or present.link.name != config.mirror_name
        ):
            self._end(name, present)
            present = None
        if wanted is None or config is None or config.mirror_name is None:
            return
        mode = MirrorMode(config.mirror_state)
        if present is None:
            self._begin(name, wanted, config.mirror_name, mode)
        else:
            present.set_mode(mode, recovers=config.mirror_support_unclean_leader_election)

    def _begin(self, name: TopicPartition, partition: Partition, link_name: str, mode: MirrorMode) -> None:
        link = self._links.get(link_name)
        if link is None:
            link = self._links[link_name] = ActiveLink(
                link_name,
                self._ports.states,
                self._open_source,
                self._ports.rng,
                partial(self._topics_of, link_name),
                partial(self._on_metadata, link_name),
                partial(self._on_reopened, link_name),
            )
            self._start_link(link)
        task = self._tasks[name] = MirrorTask(partition, link, mode, self._ports)
        self._start_task(task)

    def _end(self, name: TopicPartition, task: MirrorTask) -> None:
        del self._tasks[name]
        running = self._running.pop(task, None)
        if running is not None:
            running.cancel()
        link = task.link.name
        if all(other.link.name != link for other in self._tasks.values()):
            self._links.pop(link, None)
            opened = self._open.pop(link, None)
            if opened is not None:
                opened.cancel()

    def _start_task(self, task: MirrorTask) -> None:
        if self._group is not None:
            self._running[task] = self._group.create_task(task.run(), name=f"mirror {task.name.topic}-{task.key[1]}")

    def _start_link(self, link: ActiveLink) -> None:
        if self._group is not None:
            self._open[link.name] = self._group.create_task(link.run(), name=f"link {link.name}")

    def _topics_of(self, link: str) -> list[str]:
        return sorted({task.name.topic for task in self._tasks.values() if task.link.name == link})

    def _on_metadata(self, link: str) -> None:
        for task in list(self._tasks.values()):
            if task.link.name == link:
                task.on_metadata()

    def _on_reopened(self, link: str) -> None:
        for task in list(self._tasks.values()):
            if task.link.name == link:
                task.on_reopened()
