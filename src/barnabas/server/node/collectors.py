"""Shell: registers the collectors of a node with its registry of metrics.

Every node has those of the process, the quorum and the cluster. A broker adds those of its replicas, topics, network
and coordinators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from barnabas.core.telemetry import Metrics
from barnabas.core.telemetry.exposition import Exposition, label_text
from barnabas.core.telemetry.log import LINES
from barnabas.core.version import VERSION
from barnabas.protocol.transport.limits import RequestBudget
from barnabas.server.broker.client_usage.tables import ClientUsage
from barnabas.server.monitoring.clients import ClientMonitor
from barnabas.server.monitoring.cluster import ClusterMonitor
from barnabas.server.monitoring.groups import GroupMonitor
from barnabas.server.monitoring.limits import LeftOut
from barnabas.server.monitoring.links import LinkMonitor
from barnabas.server.monitoring.network import NetworkMonitor
from barnabas.server.monitoring.process import ProcessMonitor
from barnabas.server.monitoring.quorum import QuorumMonitor
from barnabas.server.monitoring.replicas import ReplicaMonitor
from barnabas.server.monitoring.topics import TopicMonitor
from barnabas.server.node.health import Health
from barnabas.server.node.links import ClusterLinks
from barnabas.server.replication.partitions import Partitions

if TYPE_CHECKING:
    from barnabas.server.node.config import NodeConfig
    from barnabas.server.node.parts import Parts
    from barnabas.server.node.setup.identity import Identity


def node_labels(config: NodeConfig, identity: Identity) -> Mapping[str, str]:
    """The version, the node and the cluster, for `barnabas_info` and the page `/version`."""
    topology = config.topology
    roles = [role for role, has in (("broker", topology.is_broker), ("controller", topology.is_controller)) if has]
    return {
        "version": VERSION,
        "node_id": str(identity.node_id),
        "cluster_id": identity.cluster_id,
        "roles": ",".join(roles),
    }


class HealthMonitor:
    """Shows the health pages as metrics, and the number of lines in the log."""

    def __init__(self, health: Callable[[], Health]) -> None:
        self._health = health

    def collect(self, page: Exposition) -> Iterator[None]:
        """Add the samples."""
        health = self._health()
        page.family("barnabas_ready").add(int(health.ready))
        part_family = page.family("barnabas_ready_part")
        for part in health.parts:
            part_family.add(int(part.ready), label_text(part=part.name))
        lines = page.family("barnabas_log_lines_total")
        for level, count in sorted(LINES.items()):
            lines.add(count, label_text(level=level))
        yield


def monitor_cluster(parts: Parts, is_active: Callable[[], bool], without_leader_s: Callable[[], float]) -> None:
    """Register the collectors of the quorum and of the whole cluster."""
    cluster = ClusterMonitor(parts.node_id, is_active, parts.clock)
    parts.publisher.subscribe(cluster)
    quorum = QuorumMonitor(parts.metadata, without_leader_s, lambda: parts.image.offset)
    parts.metrics.collectors += [quorum.collect, cluster.collect]


def monitor_process(metrics: Metrics, info: Callable[[], Mapping[str, str]], health: Callable[[], Health]) -> None:
    """Register the collectors that every node has from its start."""
    metrics.collectors += [ProcessMonitor(info).collect, HealthMonitor(health).collect]


def monitor_broker(
    parts: Parts,
    partitions: Partitions,
    groups: GroupMonitor,
    links: ClusterLinks,
    clients: ClientUsage,
    budget: RequestBudget,
    broker_state: Callable[[], int],
    left_out: LeftOut,
) -> None:
    """Register the collectors of a broker. `run` of the monitor of groups must be running."""
    replicas = ReplicaMonitor(partitions, parts.fs, parts.missing_dirs, left_out, broker_state)
    topics = TopicMonitor(partitions.context.traffic, left_out)
    network = NetworkMonitor(parts.metrics, budget)
    mirrors = LinkMonitor(links.mirrors.reports, links.workers.troubles, left_out)
    usage = ClientMonitor(clients, parts.clock.monotonic)
    own = [replicas.collect, topics.collect, groups.collect, mirrors.collect, network.collect, usage.collect]
    parts.metrics.collectors += [*own, left_out.collect]
