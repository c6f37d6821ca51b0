"""Value: the configurations of several brokers of one host, derived from one configuration.

An event loop uses one core. `barnabas serve --processes 3` runs three brokers, which share the cores of the host:

    node.id   process.roles       listeners                                  log.dirs
    1         broker,controller   PLAINTEXT://h:9092, CONTROLLER://h:19092   data/node-1
    2         broker              PLAINTEXT://h:9093                         data/node-2
    3         broker              PLAINTEXT://h:9094                         data/node-3

All have the same `broker.rack`, by default the name of the host, so that a cluster of several hosts does not place two
replicas of a partition on one host. Only the first process is a controller: a second controller on the same host would
fail together with the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from barnabas.core.config import ConfigError
from barnabas.core.reprs import repr_without
from barnabas.protocol.transport.endpoint import EndpointError, ListenerEndpoint, parse_endpoints, parse_protocol_map
from barnabas.server.metadata.config_view import development_defaults
from barnabas.server.node.config import COMBINED_ROLES, DEFAULT_LISTENER, DEFAULT_NODE_ID
from barnabas.server.node.setup.topology import BROKER, CONTROLLER, read_topology

PROCESSES_MAX: Final = 256
_CONTROLLER_PORT_DISTANCE: Final = 10_000
"""How far the port of the generated listener for controllers lies above the port of the first listener."""
_PORT_MAX: Final = 65_535


class HostProcess(Struct, frozen=True):
    """One broker of the host. `texts` has the broker configs that replace those of the common configuration."""

    node_id: int
    texts: Mapping[str, str]
    log_dirs: tuple[str, ...]

    __repr__ = repr_without("texts")


def split_config(
    given: Mapping[str, str], processes: int, *, hostname: str, free_port: Callable[[], int]
) -> tuple[HostProcess, ...]:
    """Derive the configuration of each process. `given` contains `log.dirs`, and `listeners` unless the default is
    meant. `free_port` returns a port that no process uses; it is called only if a listener has port 0.

    Raises ConfigError if the configuration does not fit several processes.
    """
    if not 1 <= processes <= PROCESSES_MAX:
        raise ConfigError(f"--processes {processes}: the value must be from 1 to {PROCESSES_MAX}.")
    texts = {**COMBINED_ROLES, "listeners": DEFAULT_LISTENER, **given}
    first = _first_node_id(texts)
    texts["node.id"] = texts["broker.id"] = str(first)
    texts.setdefault("broker.rack", hostname)
    endpoints = _Endpoints(texts)
    if not any(texts.get(name, "").strip() for name in _QUORUM_CONFIGS):
        texts |= endpoints.found_quorum(texts, free_port)
        texts = development_defaults(texts, 1)
    if BROKER not in read_topology(texts, first).roles:
        raise ConfigError("--processes runs several brokers, but process.roles does not contain broker.")
    directories = [path.strip().rstrip("/") for path in texts.get("log.dirs", "").split(",") if path.strip()]
    common = {name: text for name, text in texts.items() if given.get(name) != text}
    return tuple(
        _process(common, texts, first + place, [f"{path}/node-{first + place}" for path in directories], own)
        for place, own in enumerate(endpoints.allocate(processes))
    )


_QUORUM_CONFIGS: Final = ("controller.quorum.voters", "controller.quorum.bootstrap.servers", "zookeeper.connect")


def _process(
    common: Mapping[str, str], texts: Mapping[str, str], node_id: int, log_dirs: list[str], own: Mapping[str, str]
) -> HostProcess:
    is_first = str(node_id) == texts["node.id"]
    changed = {
        **common,
        "node.id": str(node_id),
        "broker.id": str(node_id),
        "process.roles": texts["process.roles"] if is_first else BROKER,
        "log.dirs": ",".join(log_dirs),
        **own,
    }
    return HostProcess(node_id, changed, tuple(log_dirs))


def _first_node_id(texts: Mapping[str, str]) -> int:
    text = texts.get("node.id", texts.get("broker.id", str(DEFAULT_NODE_ID))).strip()
    if not text.isdigit():
        raise ConfigError(f"node.id={text}: the value must be an integer of 0 or more, the id of the first process.")
    return int(text)


class _Endpoints:
    """The listeners of the common configuration, and their distribution among the processes."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        names = texts.get("controller.listener.names", "")
        self._controller_names = [name.strip().upper() for name in names.split(",") if name.strip()]
        try:
            protocols = {
                **dict.fromkeys(self._controller_names, "PLAINTEXT"),
                **parse_protocol_map(texts.get("listener.security.protocol.map", "")),
            }
            self._bound = list(parse_endpoints(texts["listeners"], protocols))
            self._advertised = parse_endpoints(texts.get("advertised.listeners") or "", protocols)
        except EndpointError as error:
            raise ConfigError(str(error)) from error

    def found_quorum(self, texts: Mapping[str, str], free_port: Callable[[], int]) -> dict[str, str]:
        """The configs with which the first process founds a quorum, to which only the processes of this host belong."""
        if CONTROLLER not in texts["process.roles"] or not self._controller_names:
            return {}
        controllers = [endpoint for endpoint in self._bound if endpoint.name in self._controller_names]
        if not controllers:
            clients = [endpoint.port for endpoint in self._bound]
            port = clients[0] + _CONTROLLER_PORT_DISTANCE if clients and clients[0] else free_port()
            if port > _PORT_MAX:
                raise ConfigError(
                    f"Port {port} for controllers ({_CONTROLLER_PORT_DISTANCE} above the first listener) is too large. "
                    f"Add a listener for controllers to listeners, for example {self._controller_names[0]}"
                    "://127.0.0.1:9093."
                )
            controllers = [ListenerEndpoint(self._controller_names[0], "127.0.0.1", port)]
            self._bound += controllers
        elif not controllers[0].port:
            controllers = [controllers[0].with_port(free_port())]
            self._bound = [controllers[0] if each.name == controllers[0].name else each for each in self._bound]
        host = controllers[0].host
        host = "127.0.0.1" if host in ("", "0.0.0.0", "::") else f"[{host}]" if ":" in host else host
        return {"controller.quorum.bootstrap.servers": f"{host}:{controllers[0].port}"}

    def allocate(self, processes: int) -> list[dict[str, str]]:
        """`listeners` and `advertised.listeners` of each process.

        A listener's port is the next one after that of the process before, except ports that another listener uses. So
        the ports of a process do not change when processes are added. An advertised port has the same distance from the
        configured one as the bound port.
        """
        clients = [endpoint for endpoint in self._bound if endpoint.name not in self._controller_names]
        used = {endpoint.port for endpoint in self._bound}
        ports = {endpoint.name: endpoint.port for endpoint in clients}
        found = [self._write(self._bound, {})]
        for _ in range(1, processes):
            for endpoint in clients:
                if endpoint.port:
                    ports[endpoint.name] = _next_port(ports[endpoint.name], used)
                    used.add(ports[endpoint.name])
            distances = {endpoint.name: ports[endpoint.name] - endpoint.port for endpoint in clients}
            found.append(self._write(clients, distances))
        return found

    def _write(self, bound: list[ListenerEndpoint], distances: Mapping[str, int]) -> dict[str, str]:
        names = {endpoint.name for endpoint in bound}
        advertised = [endpoint for endpoint in self._advertised if endpoint.name in names]
        return {
            name: ",".join(str(each.with_port(each.port + distances.get(each.name, 0))) for each in endpoints)
            for name, endpoints in (("listeners", bound), ("advertised.listeners", advertised))
            if endpoints or self._advertised
        }


def _next_port(port: int, used: set[int]) -> int:
    port += 1
    while port in used:
        port += 1
    if port > _PORT_MAX:
        raise ConfigError("--processes: the ports of the listeners would exceed 65535. Choose a smaller port.")
    return port
