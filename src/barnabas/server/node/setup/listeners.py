"""Value: the listeners of a node: the addresses to bind, the advertised addresses, and the purpose of each listener.

listeners                    PLAINTEXT://:9092,CONTROLLER://:9093
controller.listener.names    CONTROLLER: these listeners serve controllers and brokers, the others serve clients
inter.broker.listener.name   the listener for clients that brokers use for requests to each other
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from barnabas.core.config import ConfigError
from barnabas.protocol.transport.endpoint import EndpointError, ListenerEndpoint, parse_endpoints, parse_protocol_map
from barnabas.server.node.setup.topology import Topology

SERVED_PROTOCOLS: Final = frozenset({"PLAINTEXT"})
_META_ADDRESSES: Final = frozenset({"0.0.0.0", "::"})


class Listeners(Struct, frozen=True):
    """The endpoints to bind and, in the same order, the advertised endpoints."""

    bound: tuple[ListenerEndpoint, ...]
    advertised: tuple[ListenerEndpoint, ...]


def read_listeners(texts: Mapping[str, str], topology: Topology) -> tuple[Listeners, Listeners]:
    """Returns (listeners for clients, listeners for controllers). Raises ConfigError."""
    names = {name.strip().upper() for name in texts.get("controller.listener.names", "").split(",") if name.strip()}
    try:
        protocols = {
            **dict.fromkeys(names, "PLAINTEXT"),
            **parse_protocol_map(texts.get("listener.security.protocol.map", "")),
        }
        endpoints = parse_endpoints(texts["listeners"], protocols)
        advertised = parse_endpoints(texts.get("advertised.listeners") or "", protocols)
    except EndpointError as error:
        raise ConfigError(str(error)) from error
    for endpoint in endpoints:
        if endpoint.security_protocol not in SERVED_PROTOCOLS:
            raise ConfigError(f"{endpoint}: {endpoint.security_protocol} is not implemented. Use PLAINTEXT.")
    clients = tuple(endpoint for endpoint in endpoints if endpoint.name not in names)
    controllers = tuple(endpoint for endpoint in endpoints if endpoint.name in names)
    _check(clients, controllers, topology)
    by_name = {endpoint.name: endpoint for endpoint in advertised}
    for name in by_name.keys() - {endpoint.name for endpoint in endpoints}:
        raise ConfigError(f"advertised.listeners names {name}, which is not one of the listeners.")
    for endpoint in advertised:
        if endpoint.host in _META_ADDRESSES:
            raise ConfigError(
                f"advertised.listeners cannot contain {endpoint.host}, because clients cannot connect to it. "
                "Use a host name or address at which clients reach this host."
            )
    return _with_advertised(clients if topology.is_broker else (), by_name), _with_advertised(
        controllers if topology.is_controller else (), by_name
    )


def inter_broker_listener(texts: Mapping[str, str], clients: Listeners) -> str:
    """The name of the listener for requests between brokers: `inter.broker.listener.name`, or the first listener."""
    name = texts.get("inter.broker.listener.name", "").strip().upper()
    names = [endpoint.name for endpoint in clients.bound]
    if name and name not in names:
        raise ConfigError(f"inter.broker.listener.name={name} is not one of the listeners for clients: {names}.")
    return name or names[0]


def _check(
    clients: tuple[ListenerEndpoint, ...], controllers: tuple[ListenerEndpoint, ...], topology: Topology
) -> None:
    if topology.is_broker and not clients:
        raise ConfigError("listeners has no listener for clients. Add one, for example PLAINTEXT://127.0.0.1:9092.")
    if topology.is_controller and not controllers and not (topology.decides_alone and topology.is_broker):
        raise ConfigError(
            "listeners has no listener for controllers, but other nodes must connect to this controller. Add, for "
            "example, CONTROLLER://:9093 to listeners, and set controller.listener.names=CONTROLLER."
        )


def _with_advertised(bound: tuple[ListenerEndpoint, ...], by_name: Mapping[str, ListenerEndpoint]) -> Listeners:
    return Listeners(bound, tuple(by_name.get(endpoint.name, endpoint) for endpoint in bound))
