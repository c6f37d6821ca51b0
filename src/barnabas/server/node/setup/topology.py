"""Value: the roles of a node and the addresses of the controllers, from the configuration.

    process.roles                          broker, controller, or both (the default)
    controller.quorum.voters               1@host:port,2@host:port: a static quorum (kraft.version 0)
    controller.quorum.bootstrap.servers    host:port,...: addresses of a dynamic quorum (KIP-853, kraft.version 1)
    zookeeper.connect                      ZooKeeper stores the metadata log instead of a quorum

If none of the last three configs is set, the node is a whole cluster.
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
    """The configured topology. `voters` is empty if the quorum is not static."""

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
        """Whether this node is the only configured controller, so that the node can found a cluster without others."""
        return self.is_controller and not self.zookeeper and max(len(self.voters), len(self.bootstrap)) <= 1

    @property
    def controllers(self) -> tuple[Address, ...]:
        """The configured addresses of controllers, used while the leader is unknown."""
        return tuple(address for _, address in self.voters) or self.bootstrap


def read_topology(texts: Mapping[str, str], node_id: int | None) -> Topology:
    """The roles of this node and the addresses of the controllers or of ZooKeeper, from the texts of the configuration.
    Raises ConfigError, whose message has the correction, for an invalid configuration."""
    roles = _roles(texts.get("process.roles", ""))
    voters = _voters(texts.get("controller.quorum.voters", ""))
    bootstrap = tuple(
        _address(part, "controller.quorum.bootstrap.servers")
        for part in _parts(texts.get("controller.quorum.bootstrap.servers", ""))
    )
    topology = Topology(roles, voters, bootstrap, texts.get("zookeeper.connect", "").strip())
    if topology.zookeeper and (voters or bootstrap):
        raise ConfigError(
            "zookeeper.connect and controller.quorum.* are both set, but either ZooKeeper or a quorum of controllers "
            "stores the metadata. Remove one of them."
        )
    _check_place(topology, node_id)
    return topology


def _check_place(topology: Topology, node_id: int | None) -> None:
    ids = [voter for voter, _ in topology.voters]
    if not topology.is_controller and not (topology.controllers or topology.zookeeper):
        raise ConfigError(
            "process.roles=broker, but no controller is configured. Set controller.quorum.voters (1@host:port,...) "
            "or controller.quorum.bootstrap.servers (host:port,...)."
        )
    if node_id is None and not topology.decides_alone:
        raise ConfigError(
            "node.id is not set, and this node joins a cluster. Set node.id to a value that no other node has."
        )
    if node_id is None or not ids:
        return
    if topology.is_controller and node_id not in ids:
        raise ConfigError(
            f"controller.quorum.voters contains nodes {ids}, but not this controller, node.id={node_id}. Add this "
            "controller (on every node), or set process.roles=broker."
        )
    if not topology.is_controller and node_id in ids:
        raise ConfigError(
            f"controller.quorum.voters contains node {node_id}, but process.roles of this node is broker. Add the "
            "role controller, or choose another node.id."
        )


def _roles(text: str) -> frozenset[str]:
    roles = frozenset(_parts(text))
    if not roles or roles - {BROKER, CONTROLLER}:
        raise ConfigError(f"process.roles={text}: the value must be broker, controller, or broker,controller.")
    return roles


def _voters(text: str) -> tuple[tuple[int, Address], ...]:
    found: dict[int, Address] = {}
    for part in _parts(text):
        number, at, address = part.partition("@")
        if not at or not number.strip().isdigit():
            raise ConfigError(f"controller.quorum.voters: {part!r} does not have the form id@host:port.")
        if int(number) in found:
            raise ConfigError(f"controller.quorum.voters contains node {number} twice.")
        found[int(number)] = _address(address, "controller.quorum.voters")
    return tuple(sorted(found.items()))


def _address(text: str, setting: str) -> Address:
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise ConfigError(f"{setting}: {text!r} does not have the form host:port.")
    return host.strip("[]"), int(port)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
