"""Shell: the cluster links of this broker: builds their objects, opens sources, and notifies the links of leaderships
and images."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct

from barnabas.core.config import ConfigError
from barnabas.core.ids import MIRROR_STATE_TOPIC, TopicPartition
from barnabas.core.rng import Rng
from barnabas.protocol.transport.node_client import NodeClient
from barnabas.server.broker.forward import ControllerChannel
from barnabas.server.links.announcing import Announcer
from barnabas.server.links.changes import LocalMirrors
from barnabas.server.links.coordination.service import LinkCoordinator
from barnabas.server.links.fetching.links import MirrorLinks
from barnabas.server.links.fetching.ports import (
    MirrorController,
    MirrorStates,
    OppositeMirrors,
    SourceCluster,
)
from barnabas.server.links.fetching.settings import link_settings
from barnabas.server.links.fetching.task import TaskPorts
from barnabas.server.links.fetching.values import LinkDefinition
from barnabas.server.links.group_offsets import PeerRequests
from barnabas.server.links.leaders import CoordinatorStates, MirrorMetadata, SourceMirrors
from barnabas.server.links.references import LinkReferences
from barnabas.server.links.requests import LinkRequests
from barnabas.server.links.router import LinkRouter
from barnabas.server.links.source import LinkSource
from barnabas.server.links.work import LinkWorkers, SourceOpening
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.node.adapters import ReplicatedWriter
from barnabas.server.node.parts import Parts
from barnabas.server.node.setup.link_security import link_security
from barnabas.server.peers.coordination import CoordinationChannels
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
    router = LinkRouter(channels.router)
    metadata = MirrorMetadata(controller, parts.node_id, broker_epoch)
    references = LinkReferences(parts.config.given)
    states = CoordinatorStates(router, lambda: router.router.local.link_requests, references.resolve)
    mirrors = build_links(parts, partitions, states, metadata, SourceMirrors())

    def opened(definition: LinkDefinition) -> SourceCluster:
        return open_source(definition, parts.node_id, parts.rng)

    writer = ReplicatedWriter(partitions, parts.disk)
    coordinator = LinkCoordinator(writer, parts.clock, parts.rng, lambda link: workers.on_changed(link))
    local = LocalMirrors(lambda: parts.image, metadata, controller, router.router)
    announcer = Announcer(router.router)

    async def on_definition_changed(link: str) -> None:
        mirrors.on_link_changed(link)
        await announcer.announce(link)

    sources = SourceOpening(references.resolve, opened)
    workers = LinkWorkers(coordinator, local, PeerRequests(router.router), sources, on_definition_changed)
    requests = LinkRequests(router, coordinator, workers, mirrors, sources.check)
    return ClusterLinks(mirrors, coordinator, workers, requests)


def open_source(definition: LinkDefinition, node_id: int, rng: Rng) -> LinkSource:
    """The source of a link; its connections are opened when they are needed, while `LinkSource.run` runs. Raises
    ConfigError."""
    settings = link_settings(definition.settings)
    client_id = definition.client.get("client.id", f"barnabas-link-{definition.name}-{node_id}")
    client = NodeClient(client_id, rng, link_security(definition.client))
    servers = parse_servers(definition.bootstrap_servers)
    return LinkSource(servers, client, settings.mirror_request_timeout_ms, rng)


def parse_servers(text: str) -> list[tuple[str, int]]:
    """`host:port,host:port` as pairs. Raises ConfigError."""
    servers = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, _, port = part.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65_536:
            raise ConfigError(f"bootstrap.servers: {part!r} is not host:port, for example kafka-1:9092.")
        servers.append((host.strip("[]"), int(port)))
    if not servers:
        raise ConfigError("bootstrap.servers is empty: name at least one broker of the source.")
    return servers


def build_links(
    parts: Parts,
    partitions: Partitions,
    states: MirrorStates,
    controller: MirrorController,
    opposite: OppositeMirrors,
) -> MirrorLinks:
    """The mirror partitions of this broker, with the ports that reach coordinators, controller and sources."""

    def opener(definition: LinkDefinition) -> LinkSource:
        return open_source(definition, parts.node_id, parts.rng)

    ports = TaskPorts(states, controller, opposite, parts.disk, parts.clock, parts.rng)
    return MirrorLinks(partitions.get, opener, ports)
