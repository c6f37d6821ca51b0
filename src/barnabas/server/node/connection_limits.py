"""Shell: the limits of a node's connections, kept up to date with the configs and quotas in the cluster's metadata."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor

from msgspec.structs import replace

from barnabas.core.config import ConfigError
from barnabas.core.telemetry import Metrics, get_logger
from barnabas.protocol.security.quotas.limits import CONNECTION_RATE, IP, QuotaEntity
from barnabas.protocol.security.quotas.rates import QuotaWindows
from barnabas.protocol.transport.connection_quotas import (
    AddressRates,
    ConnectionLimits,
    ConnectionQuotas,
    DescriptorLimits,
)
from barnabas.protocol.transport.limits import RequestBudget
from barnabas.server.metadata.config_view import ConfigView
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.metadata.image.small import ConfigsImage
from barnabas.server.node.config import NodeConfig
from barnabas.server.node.typed_configs import build_connection_limits

log = get_logger("barnabas.server.node")


def build_connection_quotas(
    config: NodeConfig, listeners: Sequence[str], descriptors: DescriptorLimits | None = None
) -> ConnectionQuotas:
    """The limits of the configuration file; `ConnectionLimitsUpdater` replaces them. Raises ConfigError if
    `max.connections.per.ip.overrides` cannot be parsed."""
    view = ConfigView(ConfigsImage(), node_id=config.node_id or 0, static=config.given)
    limits = build_connection_limits(view, listeners)
    return ConnectionQuotas(
        replace(limits, max_connections_per_ip_overrides=_addresses(limits.max_connections_per_ip_overrides, {})),
        windows=QuotaWindows(config["quota.window.num"], config["quota.window.size.seconds"]),
        inter_broker_listener=config.inter_broker_listener,
        descriptors=descriptors,
    )


def measure_request_memory(metrics: Metrics, budget: RequestBudget) -> None:
    """Register the metrics of the memory of requests (Kafka's MemoryPoolUsed and MemoryPoolAvailable)."""
    metrics.gauge(
        "barnabas_net_request_memory_bytes",
        "Bytes of requests that are not answered, counted if queued.max.request.bytes is set.",
        lambda: budget.bytes,
    )
    metrics.gauge(
        "barnabas_net_request_memory_free_bytes",
        "Bytes until queued.max.request.bytes; -1 if it is not set.",
        lambda: budget.free_bytes,
    )


class ConnectionLimitsUpdater:
    """An image subscriber that changes `quotas` with the dynamic configs of this node and the quotas of addresses."""

    def __init__(
        self,
        quotas: ConnectionQuotas,
        listeners: Sequence[str],
        node_id: int,
        static: Mapping[str, str],
        pool: Executor,
    ) -> None:
        """`static` are the texts of the configuration file. `pool` resolves the names of hosts."""
        self._quotas = quotas
        self._listeners = listeners
        self._node_id = node_id
        self._static = static
        self._pool = pool
        self._limits: ConnectionLimits | None = None
        self._hosts: dict[str, tuple[str, ...]] = {}
        """The addresses of the hosts in `max.connections.per.ip.overrides` that are names."""

    def refresh(self, image: ClusterImage) -> None:
        """Set the limits again, because the names of the listeners have changed."""
        self._limits = None
        self.on_image(ClusterDelta(image), image)

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        if delta.configs or self._limits is None:
            view = ConfigView(image.configs, node_id=self._node_id, static=self._static)
            try:
                self._limits = build_connection_limits(view, self._listeners)
            except ConfigError as error:  # our controllers reject such a value
                log.error("invalid limits of connections: the previous limits stay in effect", reason=str(error))
            else:
                self._apply()
        if any(entity[0][0] == IP for entity in delta.quotas.changed):
            self._quotas.set_address_rates(_address_rates(image.quotas.by_entity))

    def _apply(self) -> None:
        """Set the limits. Hosts whose addresses are unknown are resolved first, which may take seconds; until then
        their limits are not in effect."""
        assert self._limits is not None
        overrides = self._limits.max_connections_per_ip_overrides
        self._quotas.set_limits(
            replace(self._limits, max_connections_per_ip_overrides=_addresses(overrides, self._hosts))
        )
        unknown = [host for host in overrides if _canonical(host) is None and host not in self._hosts]
        if unknown:
            loop = asyncio.get_running_loop()
            resolved = loop.run_in_executor(self._pool, _resolve, unknown)
            resolved.add_done_callback(self._on_resolved)

    def _on_resolved(self, hosts: asyncio.Future[dict[str, tuple[str, ...]]]) -> None:
        if not hosts.cancelled():
            self._hosts.update(hosts.result())
            self._apply()


def _resolve(hosts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The addresses of each host; none for a host that is unknown."""
    found: dict[str, tuple[str, ...]] = {}
    for host in hosts:
        try:
            infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            infos = []
            log.warning(
                "the limit of a host in max.connections.per.ip.overrides is not in effect, because the host is unknown",
                host=host, reason=str(error),
            )  # fmt: skip
        found[host] = tuple(dict.fromkeys(str(info[4][0]) for info in infos))
    return found


def _addresses(overrides: Mapping[str, int], hosts: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """The limits by address, as sockets write addresses. Names that are not in `hosts` are left out."""
    limits: dict[str, int] = {}
    for host, limit in overrides.items():
        address = _canonical(host)
        for one in (address,) if address is not None else hosts.get(host, ()):
            limits[one] = limit
    return limits


def _address_rates(quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> AddressRates:
    """The quotas of addresses out of the quotas of all entities."""
    rates: dict[str, float] = {}
    default: float | None = None
    for entity, limits in quotas.items():
        kind, name = entity[0]
        if kind != IP or CONNECTION_RATE not in limits:
            continue
        if name is None:
            default = limits[CONNECTION_RATE]
        else:
            rates[_canonical(name) or name] = limits[CONNECTION_RATE]
    return AddressRates(rates, default)


def _canonical(host: str) -> str | None:
    """An address as sockets write it; None for a name."""
    from ipaddress import IPv6Address, ip_address  # imported here: a node without limits of addresses needs no 0.6 MB

    try:
        address = ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)
