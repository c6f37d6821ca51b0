"""Machine: the fixed limits of listeners, and the limit for requests that wait (Kafka's request queue and memory pool).

`connection_quotas.py` has the limits for connections.
"""

from __future__ import annotations

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
    pipelined_requests_max: int = 64
    """The limit for complete requests of one connection that wait to be handled or answered. Not a config."""
    write_buffer_bytes: int = 1_048_576
    """While a connection has more unsent response bytes than this, its next request does not start. Not a config."""


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
