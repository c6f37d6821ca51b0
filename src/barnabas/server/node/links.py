"""Shell: the cluster links of this broker: opens sources, and builds `MirrorLinks`."""

from __future__ import annotations

from barnabas.core.config import ConfigError
from barnabas.core.rng import Rng
from barnabas.protocol.transport.node_client import NodeClient
from barnabas.server.node.channels.source import LinkSource
from barnabas.server.node.parts import Parts
from barnabas.server.node.setup.link_security import link_security
from barnabas.server.replication.links.links import MirrorLinks
from barnabas.server.replication.links.ports import (
    MirrorController,
    MirrorStates,
    OppositeMirrors,
)
from barnabas.server.replication.links.settings import link_settings
from barnabas.server.replication.links.task import TaskPorts
from barnabas.server.replication.links.values import LinkDefinition
from barnabas.server.replication.partitions import Partitions


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
