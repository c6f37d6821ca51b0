"""Machine: limits for connections and for requests that wait (Kafka's ConnectionQuotas and request queue)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct


class TransportConfig(Struct, frozen=True):
    """The configs of one node's listeners, and two limits that are not configs."""

    socket_request_max_bytes: int
    """A connection that announces a larger request is closed before any byte of the request is stored."""
    queued_max_requests: int
    """The limit for complete requests, over all connections, that wait to be handled."""
    queued_max_request_bytes: int
    """The limit for the bytes of the complete requests, over all connections, that wait to be handled.

    -1 means unlimited.
    """
    connections_max_idle_ms: int
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: Mapping[str, int]
    """Limits that replace `max_connections_per_ip`, by host name or address."""
    pipelined_requests_max: int = 64
    """The limit for complete requests of one connection that wait to be handled or answered. Not a config."""
    write_buffer_bytes: int = 1_048_576
    """While a connection has more unsent response bytes than this, its next request does not start. Not a config."""


class ConnectionQuota:
    """Counts open connections, in total and by address."""

    def __init__(self, limits: TransportConfig) -> None:
        self._limits = limits
        self._by_host: Counter[str] = Counter()
        self.open = 0

    def try_admit(self, host: str) -> str | None:
        """Count a new connection and return None; or, at a limit, return which limit was reached."""
        limits = self._limits
        if self.open >= limits.max_connections:
            return f"max.connections={limits.max_connections} reached"
        allowed = limits.max_connections_per_ip_overrides.get(host, limits.max_connections_per_ip)
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
    """Counts the requests that wait to be handled, over all connections.

    At the limit, a connection on which a request waits is not read.
    """

    def __init__(self, limits: TransportConfig) -> None:
        self._requests_max = limits.queued_max_requests
        self._bytes_max = limits.queued_max_request_bytes
        self.requests = 0
        self.bytes = 0
        self.unsent = 0
        """Response bytes, over all connections, that slow clients have not received yet. For metrics."""

    def take(self, size: int) -> None:
        """Count a request of `size` bytes that was received."""
        self.requests += 1
        self.bytes += size

    def give_back(self, size: int) -> None:
        """Stop counting a request of `size` bytes, because its handler was started or the request was dropped."""
        self.requests -= 1
        self.bytes -= size
        assert self.requests >= 0
        assert self.bytes >= 0

    @property
    def spent(self) -> bool:
        return self.requests >= self._requests_max or 0 <= self._bytes_max <= self.bytes
