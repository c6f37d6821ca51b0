"""Value: a node's place in its cluster: its roles, the controllers it knows, and the listeners between nodes.

    process.roles                          broker, controller, or both (the default)
    controller.quorum.voters               1@host:port,2@host:port: a quorum that does not change (kraft.version 0)
    controller.quorum.bootstrap.servers    host:port,...: where to ask for a quorum that may (KIP-853, kraft.version 1)
    zookeeper.connect                      ZooKeeper keeps the metadata instead of a quorum of ours

A node that names none of the last three is a whole cluster by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from barnabas.core.config import ConfigError

BROKER: Final = "broker"
CONTROLLER: Final = "controller"
Address = tuple[str, int]
"""(host, port)"""


class Topology(Struct, frozen=True):
    """What the configuration says of the cluster; `voters` is empty where they are not static."""

    roles: frozenset[str] = frozenset({BROKER, CONTROLLER})
    voters: tuple[tuple[int, Address], ...] = ()
    bootstrap: tuple[Address, ...] = ()
    zookeeper: str = ""

    @property
    def is_broker(self) -> bool:
        return BROKER in self.roles

    @property
    def is_controller(self) -> bool:
        return CONTROLLER in self.roles

    @property
    def decides_alone(self) -> bool:
        """This node is the only controller that its configuration knows: it need ask nobody to found a cluster."""
        return self.is_controller and not self.zookeeper and max(len(self.voters), len(self.bootstrap)) <= 1

    @property
    def controllers(self) -> tuple[Address, ...]:
        """Where controllers are to be found before anyone has said who leads."""
        return tuple(address for _, address in self.voters) or self.bootstrap


def read_topology(texts: Mapping[str, str], node_id: int | None) -> Topology:
    """Raises ConfigError for what cannot work, with what to do."""
    roles = _roles(texts.get("process.roles", ""))
    voters = _voters(texts.get("controller.quorum.voters", ""))
    bootstrap = tuple(
        _address(part, "controller.quorum.bootstrap.servers")
        for part in _parts(texts.get("controller.quorum.bootstrap.servers", ""))
    )
    topology = Topology(roles, voters, bootstrap, texts.get("zookeeper.connect", "").strip())
    if topology.zookeeper and (voters or bootstrap):
        raise ConfigError(
            "zookeeper.connect and controller.quorum.* are both set: the metadata is kept either by ZooKeeper or by a "
            "quorum of controllers. Remove one of them."
        )
    _check_place(topology, node_id)
    return topology


def _check_place(topology: Topology, node_id: int | None) -> None:
    ids = [voter for voter, _ in topology.voters]
    if not topology.is_controller and not (topology.controllers or topology.zookeeper):
        raise ConfigError(
            "process.roles=broker: a broker that is no controller must know one. Set controller.quorum.voters "
            "(1@host:port,...) or controller.quorum.bootstrap.servers (host:port,...)."
        )
    if node_id is None and not topology.decides_alone:
        raise ConfigError("This node is to join a cluster: set node.id, which no other node of the cluster may have.")
    if node_id is None or not ids:
        return
    if topology.is_controller and node_id not in ids:
        raise ConfigError(
            f"controller.quorum.voters names {ids}, not this controller, node.id={node_id}: add it there (the setting "
            "must be the same on every node), or set process.roles=broker."
        )
    if not topology.is_controller and node_id in ids:
        raise ConfigError(
            f"controller.quorum.voters names node {node_id} as a controller, but process.roles makes this node a "
            "broker only: add the role controller, or choose another node.id."
        )


def _roles(text: str) -> frozenset[str]:
    roles = frozenset(_parts(text))
    if not roles or roles - {BROKER, CONTROLLER}:
        raise ConfigError(f"process.roles={text}: the roles are broker and controller; name one or both.")
    return roles


def _voters(text: str) -> tuple[tuple[int, Address], ...]:
    found: dict[int, Address] = {}
    for part in _parts(text):
        number, at, address = part.partition("@")
        if not at or not number.strip().isdigit():
            raise ConfigError(f"controller.quorum.voters: {part!r} is not id@host:port")
        if int(number) in found:
            raise ConfigError(f"controller.quorum.voters names node {number} twice.")
        found[int(number)] = _address(address, "controller.quorum.voters")
    return tuple(sorted(found.items()))


def _address(text: str, setting: str) -> Address:
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise ConfigError(f"{setting}: {text!r} is not host:port")
    return host.strip("[]"), int(port)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
