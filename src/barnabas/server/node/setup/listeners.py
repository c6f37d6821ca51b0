"""Value: the listeners of a node: the addresses to bind, the advertised addresses, and the purpose of each listener.

listeners                    PLAINTEXT://:9092,CONTROLLER://:9093
controller.listener.names    CONTROLLER: these listeners serve controllers and brokers, the others serve clients
inter.broker.listener.name   the listener for clients that brokers use for requests to each other
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from msgspec import Struct

from barnabas.core.config import ConfigError
from barnabas.protocol.transport.endpoint import (
    SECURITY_PROTOCOLS,
    EndpointError,
    ListenerEndpoint,
    parse_endpoints,
    parse_protocol_map,
)
from barnabas.server.node.setup.topology import Topology

_LOOPBACK: Final = frozenset({"localhost", "::1"})
_META_ADDRESSES: Final = frozenset({"0.0.0.0", "::"})


class HasListeners(Protocol):
    """The part of `NodeConfig` that `open_listeners` reads."""

    @property
    def given(self) -> Mapping[str, str]: ...

    @property
    def listeners(self) -> tuple[ListenerEndpoint, ...]: ...

    @property
    def controller_listeners(self) -> tuple[ListenerEndpoint, ...]: ...


class Listeners(Struct, frozen=True):
    """The endpoints to bind and, in the same order, the advertised endpoints."""

    bound: tuple[ListenerEndpoint, ...]
    advertised: tuple[ListenerEndpoint, ...]


def read_listeners(texts: Mapping[str, str], topology: Topology) -> tuple[Listeners, Listeners]:
    """Returns (listeners for clients, listeners for controllers). Raises ConfigError."""
    names = _controller_names(texts)
    try:
        protocols = _protocols(texts)
        endpoints = parse_endpoints(texts["listeners"], protocols)
        advertised = parse_endpoints(texts.get("advertised.listeners") or "", protocols)
    except EndpointError as error:
        raise ConfigError(str(error)) from error
    _check_ports(endpoints)
    _check_early(texts, {endpoint.name for endpoint in endpoints} | names)
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
    """The name of the listener for requests between brokers: `inter.broker.listener.name`, or the listener of
    `security.inter.broker.protocol`, or else the first listener. Raises ConfigError."""
    name = texts.get("inter.broker.listener.name", "").strip().upper()
    protocol = texts.get("security.inter.broker.protocol", "").strip().upper()
    if name and protocol:
        raise ConfigError(
            "inter.broker.listener.name and security.inter.broker.protocol exclude each other. Remove one of them."
        )
    names = [endpoint.name for endpoint in clients.bound]
    if name and name not in names:
        raise ConfigError(f"inter.broker.listener.name={name} is not one of the listeners for clients: {names}.")
    if protocol:
        found = [endpoint.name for endpoint in clients.bound if endpoint.security_protocol == protocol]
        if not found:
            raise ConfigError(f"security.inter.broker.protocol={protocol}: no listener for clients has this protocol.")
        return protocol if protocol in found else found[0]
    return name or names[0]


def controller_listener(texts: Mapping[str, str], topology: Topology) -> tuple[str, str]:
    """The name and the security protocol of the listener at which nodes connect to controllers: the first of
    `controller.listener.names`. The name is empty if the node is a whole cluster. Raises ConfigError."""
    name = next((part.strip().upper() for part in texts.get("controller.listener.names", "").split(",")), "")
    if not name:
        return "", "PLAINTEXT"
    try:
        protocol = _protocols(texts).get(name, name)
    except EndpointError as error:
        raise ConfigError(str(error)) from error
    if protocol not in SECURITY_PROTOCOLS:
        if topology.decides_alone:
            return "", "PLAINTEXT"
        raise ConfigError(
            f"controller.listener.names={name} has no security protocol. Add {name}:PLAINTEXT, or another protocol, to"
            " listener.security.protocol.map."
        )
    return name, protocol


def open_listeners(config: HasListeners) -> list[ListenerEndpoint]:
    """The listeners that other hosts can reach and that do not authenticate their clients."""
    return [
        endpoint
        for endpoint in (*config.listeners, *config.controller_listeners)
        if endpoint.host not in _LOOPBACK
        and not endpoint.host.startswith("127.")
        and not _authenticates(config, endpoint)
    ]


def _authenticates(config: HasListeners, endpoint: ListenerEndpoint) -> bool:
    if endpoint.security_protocol != "SSL":
        return endpoint.security_protocol != "PLAINTEXT"
    given, name = config.given, "ssl.client.auth"
    return given.get(f"listener.name.{endpoint.name.lower()}.{name}", given.get(name, "none")) == "required"


def _controller_names(texts: Mapping[str, str]) -> set[str]:
    return {name.strip().upper() for name in texts.get("controller.listener.names", "").split(",") if name.strip()}


def _protocols(texts: Mapping[str, str]) -> dict[str, str]:
    """The security protocol of each listener name. As in Kafka, the listeners of controllers are PLAINTEXT without an
    entry, but only if nothing in the configuration is about another protocol."""
    given = parse_protocol_map(texts.get("listener.security.protocol.map", ""))
    names = _controller_names(texts)
    listeners = {part.partition("://")[0].strip().upper() for part in texts.get("listeners", "").split(",")}
    secure = set(given.values()) | (listeners | names) & set(SECURITY_PROTOCOLS)
    if secure <= {"PLAINTEXT"}:
        given = {**dict.fromkeys(names, "PLAINTEXT"), **given}
    return given


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


def _check_ports(endpoints: tuple[ListenerEndpoint, ...]) -> None:
    """Two listeners may have the same port only if one has an IPv4 address, and the other one an IPv6 address
    (KIP-797). Raises ConfigError."""
    by_port: dict[int, list[ListenerEndpoint]] = {}
    for endpoint in endpoints:
        if endpoint.port:
            by_port.setdefault(endpoint.port, []).append(endpoint)
    for port, same in by_port.items():
        if len(same) > 1 and sorted(map(_family, same)) != ["IPv4", "IPv6"]:
            raise ConfigError(
                f"listeners: {' and '.join(map(str, same))} have the same port {port}. Give each listener a port of "
                "its own; only a listener with an IPv4 address and one with an IPv6 address may share a port."
            )


def _family(endpoint: ListenerEndpoint) -> str:
    if ":" in endpoint.host:
        return "IPv6"
    parts = endpoint.host.split(".")
    return "IPv4" if len(parts) == 4 and all(part.isdigit() for part in parts) else "name"


def _check_early(texts: Mapping[str, str], names: set[str]) -> None:
    """Raises ConfigError if `early.start.listeners` names a listener that does not exist."""
    early = [name.strip().upper() for name in texts.get("early.start.listeners", "").split(",") if name.strip()]
    for name in early:
        if name not in names:
            raise ConfigError(f"early.start.listeners names {name}, which is no listener. There are {sorted(names)}.")


def _with_advertised(bound: tuple[ListenerEndpoint, ...], by_name: Mapping[str, ListenerEndpoint]) -> Listeners:
    return Listeners(bound, tuple(by_name.get(endpoint.name, endpoint) for endpoint in bound))
