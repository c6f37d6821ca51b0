"""Machine: how many connections a node accepts, and how fast (Kafka's `ConnectionQuotas`: KIP-402, KIP-612).

                             limit of open connections        limit of new connections per second
    node                     max.connections                  max.connection.creation.rate
    listener                 listener.name.<l>.(the same)     listener.name.<l>.(the same)
    address                  max.connections.per.ip           connection_creation_rate, a client quota

A new connection that exceeds a limit of the node or of its listener waits, and so do those behind it. One that exceeds
the limit of its address is closed: at once if the address has too many connections, and after a delay if it creates
them too fast. The listener for requests between brokers is exempt from the limits of the node if there is another one:
the least recently used connection of another listener is closed instead.

Each connection takes a file descriptor, of which a process has a limited number. When connections have used their
share, the connections that have been idle for the longest time are closed to make room for new ones. If none is idle,
new connections are refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import nsmallest
from typing import Final, Protocol

from msgspec import Struct, field

from barnabas.protocol.security.quotas.rates import Meters, QuotaWindows, SampledRate

UNLIMITED: Final = (1 << 31) - 1
"""Kafka's default for all these limits."""
ADDRESSES_MAX: Final = 20_000
"""The number of addresses whose rate is measured. Beyond it, the address that connected longest ago is forgotten."""


class ListenerLimits(Struct, frozen=True):
    """The limits of one listener."""

    max_connections: int
    max_connection_creation_rate: int


class ConnectionLimits(Struct, frozen=True):
    """The configs that limit the connections of a node."""

    max_connections: int
    max_connection_creation_rate: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: Mapping[str, int]
    """Limits that replace `max_connections_per_ip`, by address."""
    listeners: Mapping[str, ListenerLimits]
    """The limits of the listeners, by name. A listener that is not named has those of the node."""

    def of_listener(self, name: str) -> ListenerLimits:
        own = self.listeners.get(name)
        return own or ListenerLimits(self.max_connections, self.max_connection_creation_rate)


class AddressRates(Struct, frozen=True):
    """The quota `connection_creation_rate` of addresses."""

    by_address: Mapping[str, float] = field(default_factory=dict)
    default: float | None = None

    def of(self, address: str) -> float | None:
        return self.by_address.get(address, self.default)


class DescriptorLimits(Struct, frozen=True):
    """How many of the process's file descriptors connections may use."""

    connections: int = 1 << 31
    """The number of connections that may be open at the same time."""
    highest: int = 1 << 31
    """A connection whose descriptor has this number or a larger one is refused. The kernel gives out the lowest free
    number, so such a number means that nearly all descriptors of the process are open."""


class Refusal(Struct, frozen=True):
    """Why a new connection is closed, and after how many milliseconds."""

    reason: str
    delay_ms: int = 0


class AdmittedConnection(Protocol):
    """An open connection, as `ConnectionQuotas` needs it to make room for another one."""

    last_active: float

    @property
    def idle(self) -> bool:
        """Whether no request of the connection is handled or waits."""
        ...

    @property
    def closing(self) -> bool:
        """Whether the connection is being closed. It is counted until it is closed."""
        ...

    def close(self, reason: str, *, expected: bool = False) -> None: ...


class ConnectionOwner(Protocol):
    """A listener, as `ConnectionQuotas` needs it."""

    @property
    def name(self) -> str: ...

    @property
    def connections(self) -> Sequence[AdmittedConnection]: ...

    def on_slot_free(self) -> None:
        """A connection that waits for a slot may be admitted now."""
        ...


_IDLE_S: Final = 5.0
"""Only a connection that has been idle for this long is closed because of a shortage of descriptors."""
_ROOM_MADE_EVERY_S: Final = 0.25
"""The search for idle connections visits all connections, so it is not made for every new one."""
_ROOM: Final = 32
"""How many idle connections are closed at once."""


class ConnectionQuotas:
    """Counts the connections of a node: in total, by listener, and by address."""

    def __init__(
        self,
        limits: ConnectionLimits,
        *,
        windows: QuotaWindows | None = None,
        inter_broker_listener: str = "",
        descriptors: DescriptorLimits | None = None,
    ) -> None:
        self._limits = limits
        self._windows = windows or QuotaWindows()
        self._inter_broker_listener = inter_broker_listener
        self._descriptors = descriptors or DescriptorLimits()
        self._rates = AddressRates()
        self._owners: dict[str, ConnectionOwner] = {}
        self._open_of: Counter[str] = Counter()
        self._by_host: Counter[str] = Counter()
        self._rate = SampledRate(self._windows)
        self._rate_of: dict[str, SampledRate] = {}
        self._rate_of_host: Meters[str, SampledRate] = Meters(lambda: SampledRate(self._windows), ADDRESSES_MAX)
        self._room_made_at = float("-inf")
        self.open = 0
        """The connections that were admitted, and are not closed."""
        self.unadmitted = 0
        """The connections that wait to be admitted or closed. Each has a descriptor."""

    # ---- the listeners and their limits

    def add_listener(self, owner: ConnectionOwner) -> None:
        self._owners[owner.name] = owner
        self._rate_of[owner.name] = SampledRate(self._windows)
        self._wake()

    def remove_listener(self, name: str) -> None:
        self._owners.pop(name, None)
        self._rate_of.pop(name, None)
        self._wake()

    def set_limits(self, limits: ConnectionLimits) -> None:
        """Replace the limits. Connections above a lower limit of the node are closed, the least recently used first."""
        self._limits = limits
        self.close_excess()
        self._wake()

    def set_address_rates(self, rates: AddressRates) -> None:
        """Replace the quotas of addresses."""
        self._rates = rates

    # ---- new connections

    def delay_ms(self, listener: str, now_ms: int) -> int:
        """Count a new connection in the rates of the node and the listener. Returns for how long it must wait."""
        limit = self._limits.of_listener(listener).max_connection_creation_rate
        delay = self._record(self._rate_of[listener], limit, now_ms)
        if not self._is_exempt(listener):
            delay = max(delay, self._record(self._rate, self._limits.max_connection_creation_rate, now_ms))
        return delay

    def has_slot(self, listener: str) -> bool:
        """Whether the listener and the node may have one more connection."""
        if self._open_of[listener] >= self._limits.of_listener(listener).max_connections:
            return False
        return self._is_exempt(listener) or self.open < self._limits.max_connections

    def try_admit(self, listener: str, host: str, now_ms: int) -> Refusal | None:
        """Count a connection for which there is a slot, and return None; or refuse it."""
        rate = self._rates.of(host)
        if rate is not None:
            meter = self._rate_of_host.of(host)
            delay = self._record(meter, rate, now_ms)
            if delay:
                self._take_back(listener, meter, now_ms)
                return Refusal(f"connection_creation_rate={rate:g} exceeded by {host}", delay)
        limits = self._limits
        allowed = limits.max_connections_per_ip_overrides.get(host, limits.max_connections_per_ip)
        if self._by_host[host] >= allowed:
            return Refusal(f"max.connections.per.ip={allowed} reached for {host}")
        self.open += 1
        self._open_of[listener] += 1
        self._by_host[host] += 1
        return None

    def release(self, listener: str, host: str) -> None:
        """An admitted connection was closed."""
        assert self._by_host[host] > 0
        self.open -= 1
        self._open_of[listener] -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]
        self._wake()

    def open_of(self, listener: str) -> int:
        """The open connections of a listener."""
        return self._open_of[listener]

    def close_excess(self) -> None:
        """Close the least recently used connections if there are more than the node may have."""
        if self.open <= self._limits.max_connections:
            return
        found = [c for name, owner in self._owners.items() if not self._is_exempt(name) for c in owner.connections]
        closing = sum(connection.closing for owner in self._owners.values() for connection in owner.connections)
        excess = self.open - closing - self._limits.max_connections
        if excess <= 0:
            return
        candidates = (connection for connection in found if not connection.closing)
        for connection in nsmallest(excess, candidates, key=lambda one: (not one.idle, one.last_active)):
            reason = f"closed for a connection between brokers: max.connections={self._limits.max_connections} reached"
            connection.close(reason, expected=True)

    # ---- file descriptors

    @property
    def unauthenticated_max(self) -> int:
        """How many of the connections may be used by clients that have not authenticated."""
        return max(1, self._descriptors.connections // 4)

    @property
    def is_nearly_short_of_descriptors(self) -> bool:
        """Whether idle connections should be closed, so that later connections find a descriptor."""
        limit = self._descriptors.connections
        return self.open + self.unadmitted >= limit - min(_ROOM, limit // 4)

    def is_short_of_descriptors(self, descriptor: int) -> bool:
        """Whether there is no descriptor for the new connection that has got the number `descriptor` (-1: unknown)."""
        limits = self._descriptors
        return self.open + self.unadmitted >= limits.connections or descriptor >= limits.highest

    def make_room(self, now: float) -> int:
        """Close the connections that have been idle for the longest time. Returns their number; they are still counted
        until they are closed."""
        if now - self._room_made_at < _ROOM_MADE_EVERY_S:
            return 0
        self._room_made_at = now
        horizon = now - _IDLE_S
        idle = [c for owner in self._owners.values() for c in owner.connections if c.last_active < horizon and c.idle]
        oldest = nsmallest(_ROOM, idle, key=lambda connection: connection.last_active)
        for connection in oldest:
            connection.close("closed while idle, because the broker is short of file descriptors", expected=True)
        return len(oldest)

    # ---- inside

    def _is_exempt(self, listener: str) -> bool:
        return listener == self._inter_broker_listener and len(self._owners) > 1

    def _record(self, meter: SampledRate, limit: float, now_ms: int) -> int:
        """Returns for how long the connection must wait. As in Kafka that is at most one window of the quota."""
        if limit >= UNLIMITED:
            return 0
        meter.record(1, now_ms)
        longest = self._windows.size_ms
        return min(meter.throttle_ms(limit, now_ms), longest) if limit > 0 else longest

    def _take_back(self, listener: str, meter: SampledRate, now_ms: int) -> None:
        """A connection that is refused because of its address does not count in any rate."""
        meter.record(-1, now_ms)
        if self._limits.of_listener(listener).max_connection_creation_rate < UNLIMITED:
            self._rate_of[listener].record(-1, now_ms)
        if not self._is_exempt(listener) and self._limits.max_connection_creation_rate < UNLIMITED:
            self._rate.record(-1, now_ms)

    def _wake(self) -> None:
        for owner in list(self._owners.values()):
            owner.on_slot_free()
