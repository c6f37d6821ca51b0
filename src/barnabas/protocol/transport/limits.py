"""Machine: who may connect, and how much may wait. Kafka's ConnectionQuotas and request queue, as plain counting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct, field


class NetLimits(Struct, frozen=True):
    """The bounds of one node's network side; names and defaults are Kafka's where Kafka has them."""

    request_bytes_max: int = 104_857_600
    """socket.request.max.bytes: a larger frame closes its connection before any of it is kept."""
    queued_requests_max: int = 500
    """queued.max.requests: complete requests waiting for their turn, over all connections."""
    queued_bytes_max: int = -1
    """queued.max.request.bytes: their bytes; -1 means no limit of its own."""
    pipelined_requests_max: int = 64
    """Complete requests of one connection waiting for their turn or for their answer."""
    idle_ms_max: int = 600_000
    """connections.max.idle.ms"""
    connections_max: int = 2_147_483_647
    """max.connections"""
    connections_per_ip_max: int = 2_147_483_647
    """max.connections.per.ip"""
    connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    """max.connections.per.ip.overrides"""
    write_buffer_bytes: int = 1_048_576
    """Unsent answer bytes above which a connection's next request is not started."""


class ConnectionQuota:
    """Counts open connections, in total and by address."""

    def __init__(self, limits: NetLimits) -> None:
        self._limits = limits
        self._by_host: Counter[str] = Counter()
        self.open = 0

    def try_admit(self, host: str) -> str | None:
        """Count the connection in, or say in a sentence which limit refuses it."""
        limits = self._limits
        if self.open >= limits.connections_max:
            return f"max.connections={limits.connections_max} reached"
        allowed = limits.connections_per_ip_overrides.get(host, limits.connections_per_ip_max)
        if self._by_host[host] >= allowed:
            return f"max.connections.per.ip={allowed} reached for {host}"
        self.open += 1
        self._by_host[host] += 1
        return None

    def release(self, host: str) -> None:
        assert self._by_host[host] > 0
        self.open -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]


class RequestBudget:
    """Requests received but not yet started, over all connections. When it is spent, sockets are not read."""

    def __init__(self, limits: NetLimits) -> None:
        self._requests_max = limits.queued_requests_max
        self._bytes_max = limits.queued_bytes_max
        self.requests = 0
        self.bytes = 0
        self.unsent = 0
        """Bytes of answers that wait for clients who do not take them."""

    def take(self, size: int) -> None:
        self.requests += 1
        self.bytes += size

    def give_back(self, size: int) -> None:
        self.requests -= 1
        self.bytes -= size
        assert self.requests >= 0
        assert self.bytes >= 0

    @property
    def spent(self) -> bool:
        return self.requests >= self._requests_max or 0 <= self._bytes_max <= self.bytes
