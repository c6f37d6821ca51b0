"""Value: the nodes of a simulated cluster, and their configuration by Kafka's names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from barnabas.server.broker.fetching.reads import RACK_AWARE
from barnabas.testing.sim.cluster.logins import NODE_LOGINS
from barnabas.testing.sim.node import CONTROLLER_PORT, DATA_DIR, PORT

FIRST_CONTROLLER_ID: Final = 101
"""The node id of the first controller that is not also a broker."""
RACKS: Final = ("left", "right")
DIRECTORIES: Final = (DATA_DIR, "/data2")
QUICK: Final[Mapping[str, str]] = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "controller.quorum.election.timeout.ms": "600",
    "controller.quorum.fetch.timeout.ms": "1200",
    "controller.quorum.election.backoff.max.ms": "500",
    "controller.quorum.request.timeout.ms": "1000",
    "replica.lag.time.max.ms": "2000",
    "replica.socket.timeout.ms": "3000",
    "replica.fetch.backoff.ms": "200",
    "controlled.shutdown.retry.backoff.ms": "500",
    "leader.imbalance.check.interval.seconds": "5",
    "log.segment.delete.delay.ms": "2000",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
    "mirror.state.topic.num.partitions": "2",
}
"""Time-outs of seconds instead of minutes, so that more happens in each simulated run."""


@dataclass(frozen=True, slots=True)
class SimHost:
    """One node of a cluster. The name of a broker begins with b, of a separate controller with c, after the prefix of
    the cluster."""

    name: str
    node_id: int
    is_broker: bool
    is_controller: bool

    @property
    def controller_address(self) -> str:
        return f"{self.name}:{CONTROLLER_PORT}"


@dataclass(frozen=True, slots=True)
class ClusterLayout:
    """The shape of a cluster. `combined`: the first brokers are the controllers. `dynamic`: the quorum may change
    (KIP-853). `racks`: the brokers are in two racks, and consumers fetch from the nearest replica (KIP-392).
    `directories`: each broker has two log directories. `sasl`: clients and nodes log in (`logins.py`). `prefix`: the
    beginning of the names of all hosts, for a world with several clusters."""

    brokers: int = 3
    controllers: int = 3
    combined: bool = False
    dynamic: bool = False
    racks: bool = False
    directories: bool = False
    sasl: bool = False
    prefix: str = ""

    def __str__(self) -> str:
        roles = f"{self.brokers} brokers, {self.controllers} " + (
            "of them controllers" if self.combined else "controllers"
        )
        extras = {
            "dynamic quorum": self.dynamic,
            "racks": self.racks,
            "two directories": self.directories,
            "SASL": self.sasl,
        }
        return ", ".join([roles, *(extra for extra, is_so in extras.items() if is_so)])

    def hosts(self) -> Iterator[SimHost]:
        for i in range(self.brokers):
            yield SimHost(f"{self.prefix}b{i + 1}", i + 1, True, self.combined and i < self.controllers)
        if not self.combined:
            for i in range(self.controllers):
                yield SimHost(f"{self.prefix}c{i + 1}", FIRST_CONTROLLER_ID + i, False, True)

    def config(self, host: SimHost) -> dict[str, str]:
        """The configuration of a node, except its id."""
        controllers = [other for other in self.hosts() if other.is_controller]
        clients = "CLIENTS" if self.sasl else "PLAINTEXT"
        listeners = [f"{clients}://{host.name}:{PORT}"] if host.is_broker else []
        roles = ["broker"] if host.is_broker else []
        if host.is_controller:
            listeners.append(f"CONTROLLER://{host.controller_address}")
            roles.append("controller")
        texts = {
            **QUICK,
            "process.roles": ",".join(roles),
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "default.replication.factor": str(min(3, self.brokers)),
            "min.insync.replicas": str(min(2, self.brokers)),
            "offsets.topic.replication.factor": str(min(3, self.brokers)),
            "transaction.state.log.replication.factor": str(min(3, self.brokers)),
            "transaction.state.log.min.isr": str(min(2, self.brokers)),
            "share.coordinator.state.topic.replication.factor": str(min(3, self.brokers)),
            "share.coordinator.state.topic.min.isr": str(min(2, self.brokers)),
            "mirror.state.topic.replication.factor": str(min(3, self.brokers)),
            "mirror.state.topic.min.isr": str(min(2, self.brokers)),
        }
        if self.racks and host.is_broker:
            texts["broker.rack"] = RACKS[host.node_id % len(RACKS)]
            texts["replica.selector.class"] = RACK_AWARE
        if self.directories and host.is_broker:
            texts["log.dirs"] = ",".join(DIRECTORIES)
        if self.sasl:
            texts |= NODE_LOGINS
        if self.dynamic:
            texts["controller.quorum.bootstrap.servers"] = ",".join(c.controller_address for c in controllers)
            texts["controller.quorum.auto.join.enable"] = "true"
        else:
            texts["controller.quorum.voters"] = ",".join(f"{c.node_id}@{c.controller_address}" for c in controllers)
        return texts
