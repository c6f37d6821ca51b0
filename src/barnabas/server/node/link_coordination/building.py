"""Shell: builds the objects of cluster links on this node, and notifies them of leaderships and images."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct

from barnabas.core.ids import MIRROR_STATE_TOPIC, TopicPartition
from barnabas.server.broker.forward import ControllerChannel
from barnabas.server.coordination.links.service import LinkCoordinator
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.node.adapters import ReplicatedWriter
from barnabas.server.node.channels.coordination import CoordinationChannels
from barnabas.server.node.link_coordination.announcing import Announcer
from barnabas.server.node.link_coordination.changes import LocalMirrors
from barnabas.server.node.link_coordination.group_offsets import PeerRequests
from barnabas.server.node.link_coordination.leaders import CoordinatorStates, MirrorMetadata, SourceMirrors
from barnabas.server.node.link_coordination.references import LinkReferences
from barnabas.server.node.link_coordination.requests import LinkRequests
from barnabas.server.node.link_coordination.work import LinkWorkers, SourceOpening
from barnabas.server.node.links import build_links, open_source
from barnabas.server.node.parts import Parts
from barnabas.server.replication.links.links import MirrorLinks
from barnabas.server.replication.links.ports import SourceCluster
from barnabas.server.replication.links.values import LinkDefinition
from barnabas.server.replication.partitions import Partitions


class ClusterLinks(Struct):
    """The cluster links of this broker."""

    mirrors: MirrorLinks
    """The mirror partitions that this broker leads."""
    coordinator: LinkCoordinator
    workers: LinkWorkers
    requests: LinkRequests

    async def run(self) -> None:
        """Run the links' tasks until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.coordinator.run(), name="coordinator of links")
            tasks.create_task(self.workers.run(), name="links")
            tasks.create_task(self.mirrors.run(), name="mirrors")
            await asyncio.sleep(0)

    # -- LeadershipListener and ImageSubscriber ------------------------------------------------------------------

    def on_elected(self, partition: TopicPartition, leader_epoch: int) -> None:
        if partition.topic == MIRROR_STATE_TOPIC:
            self.coordinator.on_elected(partition.partition, leader_epoch)
        else:
            self.mirrors.on_elected(partition, leader_epoch)

    def on_resigned(self, partition: TopicPartition, leader_epoch: int | None) -> None:
        if partition.topic == MIRROR_STATE_TOPIC:
            self.coordinator.on_resigned(partition.partition, leader_epoch)
        else:
            self.mirrors.on_resigned(partition, leader_epoch)

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        topic = image.topics.get(MIRROR_STATE_TOPIC)
        self.coordinator.on_partition_count(0 if topic is None else len(topic.partitions))
        self.mirrors.on_image(delta, image)
        self.workers.on_image(delta)


def build_cluster_links(
    parts: Parts,
    partitions: Partitions,
    channels: CoordinationChannels,
    controller: ControllerChannel,
    broker_epoch: Callable[[], int],
) -> ClusterLinks:
    router = channels.links
    metadata = MirrorMetadata(controller, parts.node_id, broker_epoch)
    references = LinkReferences(parts.config.given)
    states = CoordinatorStates(router, lambda: router.router.local.link_requests, references.resolve)
    mirrors = build_links(parts, partitions, states, metadata, SourceMirrors())

    def opened(definition: LinkDefinition) -> SourceCluster:
        return open_source(definition, parts.node_id, parts.rng)

    coordinator = LinkCoordinator(ReplicatedWriter(partitions, parts.disk), parts.clock, parts.rng)
    local = LocalMirrors(lambda: parts.image, metadata, controller, router.router)
    announcer = Announcer(router.router)

    async def on_definition_changed(link: str) -> None:
        mirrors.on_link_changed(link)
        await announcer.announce(link)

    sources = SourceOpening(references.resolve, opened)
    workers = LinkWorkers(coordinator, local, PeerRequests(router.router), sources, on_definition_changed)
    requests = LinkRequests(router, coordinator, workers, mirrors, sources.check)
    return ClusterLinks(mirrors, coordinator, workers, requests)
