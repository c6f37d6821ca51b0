"""Machine: limits for connections and for requests that wait (Kafka's ConnectionQuotas and request queue).

Each connection takes a file descriptor, of which a process has a limited number. When connections have used their
share, the connections that have been idle for the longest time are closed to make room for new ones. If none is idle,
new connections are refused. Kafka closes the least recently used connection for a new one of the inter-broker listener
(KIP-402).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import nsmallest
from typing import Final, Protocol

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


class DescriptorLimits(Struct, frozen=True):
    """How many of the process's file descriptors connections may use."""

    connections: int = 1 << 31
    """The number of connections that may be open at the same time."""
    highest: int = 1 << 31
    """A connection whose descriptor has this number or a larger one is refused. The kernel gives out the lowest free
    number, so such a number means that nearly all descriptors of the process are open."""


class IdleConnection(Protocol):
    """A connection, as `ConnectionQuota` needs it to make room."""

    last_active: float

    @property
    def idle(self) -> bool:
        """Whether no request of the connection is handled or waits."""
        ...

    def close(self, reason: str, *, expected: bool = False) -> None: ...


class ConnectionOwner(Protocol):
    """A listener, as `ConnectionQuota` needs it to make room."""

    @property
    def connections(self) -> Sequence[IdleConnection]: ...


_IDLE_S: Final = 5.0
"""Only a connection that has been idle for this long is closed to make room for another one."""
_ROOM_MADE_EVERY_S: Final = 0.25
"""The search for idle connections visits all connections, so it is not made for every new one."""
_ROOM: Final = 32
"""How many idle connections are closed at once."""


class ConnectionQuota:
    """Counts open connections, in total and by address."""

    def __init__(self, limits: TransportConfig, descriptors: DescriptorLimits | None = None) -> None:
        self.limits = limits
        """May be replaced; connections above a lower limit stay open."""
        self._descriptors = descriptors or DescriptorLimits()
        self._by_host: Counter[str] = Counter()
        self._room_made_at = float("-inf")
        self.owners: list[ConnectionOwner] = []
        """The listeners that share this quota."""
        self.open = 0

    @property
    def is_nearly_short_of_descriptors(self) -> bool:
        """Whether idle connections should be closed, so that later connections find a descriptor."""
        limit = self._descriptors.connections
        return self.open >= limit - min(_ROOM, limit // 4)

    def is_short_of_descriptors(self, descriptor: int) -> bool:
        """Whether there is no descriptor for the new connection that has got the number `descriptor` (-1: unknown)."""
        return self.open >= self._descriptors.connections or descriptor >= self._descriptors.highest

    def make_room(self, now: float) -> int:
        """Close the connections that have been idle for the longest time. Returns their number; they are still counted
        until they are closed."""
        if now - self._room_made_at < _ROOM_MADE_EVERY_S:
            return 0
        self._room_made_at = now
        horizon = now - _IDLE_S
        idle = [c for owner in self.owners for c in owner.connections if c.last_active < horizon and c.idle]
        oldest = nsmallest(_ROOM, idle, key=lambda connection: connection.last_active)
        for connection in oldest:
            connection.close("closed while idle, because the broker is short of file descriptors", expected=True)
        return len(oldest)

    def try_admit(self, host: str) -> str | None:
        """Count a new connection and return None; or, at a limit, return which limit was reached."""
        limits = self.limits
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


class OccasionalWarning:
    """Counts events, and says when to log a warning with their number: at most once in each interval."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._next_at = float("-inf")
        self._count = 0

    def count(self, now: float) -> int:
        """Count an event. Returns the number of events since the last warning if one is due now, and otherwise 0."""
        self._count += 1
        if now < self._next_at:
            return 0
        self._next_at = now + self._interval_s
        count, self._count = self._count, 0
        return count


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

    def add(self, requests: int, size: int) -> None:
        """Count requests of `size` bytes together that have begun to wait. Negative numbers stand for requests that
        wait no longer, because their handlers were started or the requests were dropped."""
        self.requests += requests
        self.bytes += size
        assert self.requests >= 0
        assert self.bytes >= 0

    @property
    def spent(self) -> bool:
        return self.requests >= self._requests_max or 0 <= self._bytes_max <= self.bytes
