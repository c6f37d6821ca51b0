"""Value: the settings of the nodes and of the clients of a new cluster, as `barnabas cluster init` writes them.

FOLDER/client.properties       for our commands (--command-config) and the Java clients
FOLDER/librdkafka.properties   for librdkafka: confluent-kafka, kcat -F
FOLDER/ca.pem                  the authorities that nodes and clients trust             (--secure)
FOLDER/first-users             the users that the cluster has from its start            (--secure)
FOLDER/authority/ca-1.pem      the certificate authority, and its key in ca-1.key       (--secure)
FOLDER/nodes/node-1.properties the settings of a node
FOLDER/nodes/node-1.pem        the key and the certificate of a node                    (--secure)
FOLDER/node-1                  the data of a node, made by its first start
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from barnabas.core.config import ConfigError
from barnabas.server.broker.authorization.loading import STANDARD
from barnabas.testing.process_cluster import FIRST_CONTROLLER, QUORUM_MAX

ADMIN: Final = "admin"
MECHANISM: Final = "SCRAM-SHA-512"
NODES_PORT: Final = 5_000
"""The listener for other brokers has the port of the listener for clients plus this number."""
CONTROLLER_PORT: Final = 10_000
_SESSION_MS: Final = 3_600_000
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class ClusterPlan(Struct, frozen=True):
    """What the user of `barnabas cluster init` has asked for. `folder` is absolute."""

    folder: Path
    brokers: int = 3
    controllers: int = 0
    """The number of nodes that are only controllers; 0: the first three brokers (of two, one) are controllers too."""
    hosts: tuple[str, ...] = ()
    """The host of each node in the order of the ids; empty: this machine."""
    port: int = 9092
    secure: bool = False
    settings: tuple[tuple[str, str], ...] = ()
    """Further settings of every node."""


class PlannedNode(Struct, frozen=True):
    """A node of the cluster, with the addresses of its listeners as `host:port`."""

    node_id: int
    roles: tuple[str, ...]
    host: str
    clients: str
    brokers: str
    controllers: str

    @property
    def name(self) -> str:
        """The name of the node's files, and the common name of its certificate."""
        return f"node-{self.node_id}"


def plan_nodes(plan: ClusterPlan) -> list[PlannedNode]:
    """The nodes of the cluster. Raises ConfigError if the hosts are not as many as the nodes."""
    brokers = list(range(1, plan.brokers + 1))
    own = list(range(FIRST_CONTROLLER, FIRST_CONTROLLER + plan.controllers))
    quorum = own or brokers[: QUORUM_MAX if plan.brokers >= QUORUM_MAX else 1]
    ids = [*brokers, *own]
    if plan.hosts and len(plan.hosts) != len(ids):
        raise ConfigError(f"--host is given {len(plan.hosts)} times, but the cluster has {len(ids)} nodes.")
    nodes, on_host = [], dict.fromkeys(plan.hosts, 0)
    for place, node_id in enumerate(ids):
        host = plan.hosts[place] if plan.hosts else "127.0.0.1"
        port = plan.port + on_host.get(host, 0)
        on_host[host] = on_host.get(host, 0) + 1
        roles = [("broker", node_id in brokers), ("controller", node_id in quorum)]
        at = f"[{host}]" if ":" in host else host
        addresses = [f"{at}:{port + distance}" for distance in (0, NODES_PORT, CONTROLLER_PORT)]
        nodes.append(PlannedNode(node_id, tuple(role for role, has in roles if has), host, *addresses))
    return nodes


def node_settings(plan: ClusterPlan, nodes: Sequence[PlannedNode], node: PlannedNode) -> dict[str, str]:
    """The settings of one node."""
    addresses = {}
    if "broker" in node.roles:
        addresses = {"CLIENTS": node.clients, "NODES": node.brokers} if plan.secure else {"PLAINTEXT": node.clients}
    if "controller" in node.roles:
        addresses["CONTROLLER"] = node.controllers
    advertised = ",".join(f"{name}://{address}" for name, address in addresses.items())
    settings = {
        "node.id": str(node.node_id),
        "process.roles": ",".join(node.roles),
        "controller.quorum.voters": ",".join(
            f"{each.node_id}@{each.controllers}" for each in nodes if "controller" in each.roles
        ),
        "controller.listener.names": "CONTROLLER",
        "listeners": advertised
        if node.host in _LOOPBACK
        else ",".join(f"{name}://:{address.rpartition(':')[2]}" for name, address in addresses.items()),
        "advertised.listeners": advertised,
        "log.dirs": str(plan.folder / node.name),
    }
    if plan.secure:
        settings |= _security_settings(plan, nodes, node)
    return settings | dict(plan.settings)


def _security_settings(plan: ClusterPlan, nodes: Sequence[PlannedNode], node: PlannedNode) -> dict[str, str]:
    """Certificates between nodes, passwords and TLS for clients, and ACLs; every node and the administrator may do
    everything."""
    principals = [f"User:CN={each.name}" for each in nodes]
    settings = {
        "listener.security.protocol.map": "CLIENTS:SASL_SSL,NODES:SSL,CONTROLLER:SSL",
        "listener.name.controller.ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(plan.folder / "nodes" / f"{node.name}.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(plan.folder / "ca.pem"),
        "authorizer.class.name": STANDARD,
        "super.users": ";".join([*principals, f"User:{ADMIN}"]),
        "allow.everyone.if.no.acl.found": "false",
    }
    if "broker" in node.roles:
        settings |= {
            "inter.broker.listener.name": "NODES",
            "listener.name.nodes.ssl.client.auth": "required",
            "listener.name.clients.sasl.enabled.mechanisms": f"{MECHANISM},SCRAM-SHA-256",
            "listener.name.clients.connections.max.reauth.ms": str(_SESSION_MS),
        }
    return settings


def client_settings(plan: ClusterPlan, nodes: Sequence[PlannedNode], password: str) -> dict[str, str]:
    """The settings of the administrator's clients by Java's names, which our clients have, too."""
    settings = {"bootstrap.servers": bootstrap_servers(nodes)}
    if plan.secure:
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        settings |= {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": f'{module} required username="{ADMIN}" password="{password}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(plan.folder / "ca.pem"),
        }
    return settings


def librdkafka_settings(plan: ClusterPlan, nodes: Sequence[PlannedNode], password: str) -> dict[str, str]:
    """The same by librdkafka's names. librdkafka refuses Java's."""
    settings = {"bootstrap.servers": bootstrap_servers(nodes)}
    if plan.secure:
        settings |= {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": ADMIN,
            "sasl.password": password,
            "ssl.ca.location": str(plan.folder / "ca.pem"),
        }
    return settings


def bootstrap_servers(nodes: Sequence[PlannedNode]) -> str:
    return ",".join(node.clients for node in nodes if "broker" in node.roles)


def settings_text(settings: Mapping[str, str], comment: str) -> str:
    """A file that Java, librdkafka and `parse_properties` read alike. Raises ConfigError for a value that they would
    not."""
    for name, value in settings.items():
        if "\\" in value or value != value.strip() or "\n" in value:
            raise ConfigError(f"{name}={value!r}: a backslash, a line break or outer blanks are not possible here.")
    return f"# {comment}\n" + "".join(f"{name}={value}\n" for name, value in settings.items())
