"""Machine: the fixed limits of listeners, and the limit for requests that wait (Kafka's request queue and memory pool).

`connection_quotas.py` has the limits for connections.
"""

from __future__ import annotations

from typing import Final, Protocol

from msgspec import Struct


class TransportConfig(Struct, frozen=True):
    """The configs of one node's listeners, and two limits that are not configs."""

    socket_request_max_bytes: int
    """A connection that announces a larger request is closed before any byte of the request is stored."""
    queued_max_requests: int
    """The limit for complete requests, over all connections, that wait to be handled."""
    queued_max_request_bytes: int
    """The limit for the memory of requests, over all connections: received in part, waiting, and being handled.

    0 and -1 mean unlimited.
    """
    connections_max_idle_ms: int
    pipelined_requests_max: int = 64
    """The limit for complete requests of one connection that wait to be handled or answered. Not a config."""
    write_buffer_bytes: int = 1_048_576
    """While a connection has more unsent response bytes than this, its next request does not start. Not a config."""
    unsent_bytes_max: int = 256 * 1024 * 1024
    """The total of the unsent response bytes of all connections. Beyond it, the connection whose client has received
    nothing for the longest time is closed. Not a config."""


SCANT_BYTES: Final = 512
"""How much is read at once from a connection while the limit of bytes is reached."""


class PausedConnection(Protocol):
    """A connection that is not read because the memory for requests is exhausted."""

    def on_memory_free(self) -> None: ...


class SlowConnection(Protocol):
    """A connection whose client has not received all of its responses yet."""

    def unsent_bytes(self) -> int:
        """The bytes that the client has not received now."""
        ...

    def drop(self) -> None:
        """Close the connection, without its unsent bytes."""
        ...


UNSENT_COUNTED_BYTES: Final = 16 * 1024
"""Fewer unsent bytes of a connection are not counted: the loop usually sends them in its next turn."""


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
    """Counts the requests of all connections that wait to be handled, and with `queued.max.request.bytes` the memory
    of all requests that are not answered (Kafka's `MemoryPool`).

    At the limit of requests, a connection on which a request waits is not read. At the limit of bytes, a connection is
    read only if it is in the middle of a large request, whose whole length is counted since its beginning. The memory
    may exceed the limit by one request, and by `SCANT_BYTES` for each connection.
    """

    def __init__(self, limits: TransportConfig) -> None:
        self._requests_max = limits.queued_max_requests
        self._bytes_max = limits.queued_max_request_bytes
        self.counts_bytes = self._bytes_max > 0
        """Whether there is a limit of bytes."""
        self.is_exhausted = False
        """Whether the limit of bytes is reached."""
        self.requests = 0
        self.bytes = 0
        self.unsent = 0
        """Response bytes, over all connections, that slow clients have not received yet. For metrics."""
        self._paused: dict[PausedConnection, None] = {}
        self._unsent_max = limits.unsent_bytes_max
        self._slow: dict[SlowConnection, int] = {}
        """The unsent bytes of the connections; first those whose clients have received nothing for the longest time."""

    def add(self, requests: int, size: int) -> None:
        """Count requests, and bytes of requests. Negative numbers stand for requests that wait no longer, and for
        bytes of requests that were answered or dropped."""
        self.requests += requests
        self.bytes += size
        assert self.requests >= 0
        assert self.bytes >= 0
        if not self.counts_bytes:
            return
        was_exhausted = self.is_exhausted
        self.is_exhausted = self.bytes >= self._bytes_max
        if was_exhausted and not self.is_exhausted:
            paused, self._paused = self._paused, {}
            for connection in paused:
                connection.on_memory_free()

    def count_unsent(self, connection: SlowConnection, size: int, *, is_progress: bool) -> None:
        """Count the unsent bytes of a connection. `is_progress` says that the client has received some since the last
        call. Above the total, connections are closed whose clients receive nothing."""
        slow = self._slow
        before = slow.pop(connection, 0) if is_progress or not size else slow.get(connection, 0)
        if size:
            slow[connection] = size
        self.unsent += size - before
        while self.unsent > self._unsent_max:
            victim = next(iter(slow))
            known, now = slow.pop(victim), victim.unsent_bytes()
            self.unsent -= known
            if 0 < now < known:  # this client does receive
                slow[victim] = now
                self.unsent += now
            elif now:
                victim.drop()

    def pause(self, connection: PausedConnection) -> None:
        """Call the connection's `on_memory_free` when the limit of bytes is not reached any longer."""
        self._paused[connection] = None

    def forget(self, connection: PausedConnection) -> None:
        """The connection was closed."""
        self._paused.pop(connection, None)

    @property
    def spent(self) -> bool:
        """Whether the limit of requests is reached."""
        return self.requests >= self._requests_max

    @property
    def free_bytes(self) -> int:
        """The bytes that are left until the limit; -1 if there is no limit. For metrics."""
        return max(self._bytes_max - self.bytes, 0) if self.counts_bytes else -1
