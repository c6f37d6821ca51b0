"""Machine: finds out that the process of a broker has ended, without waiting for the end of the broker's session.

    connected ── the connection of its heartbeats is lost,      ──► suspect ── a probe is due ──► probed
        ▲        or no heartbeat came to this controller yet          │  ▲                          │
        └──────────────────── a heartbeat ◄───────────────────────────┘  └─ accepted, or no answer ─┤
                                                                                                    ▼
    dead ◄── refused again, `CONFIRM_MS` or more after the first refusal ◄───────────────────── refused

The operating system of a host closes the connections of a process that ends, and refuses new ones. So this machine
takes a broker for dead if no heartbeat has come since its connection was lost, and its host has twice refused a
connection to each address that the broker has registered. A connection that is accepted, or gets no answer, proves
nothing: the process may be paused, or the network may be cut. Then the session decides, as in Apache Kafka.

A live broker sends a heartbeat as soon as it loses its connection to the controller, so it is rarely suspected for
long. If a broker that was taken for dead sends a heartbeat of the same epoch, the refusals came from something else,
such as a firewall in front of the registered address. This controller does not suspect that process again.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import Final

from msgspec import Struct

CONFIRM_MS: Final = 200
"""The shortest time between the first refusal and the one that proves that the process has ended. In this time a live
broker can connect to the controller again."""
FIRST_MS: Final = 100
"""A new active controller waits for this time before it probes the brokers that have sent no heartbeat to it."""
AGAIN_MS: Final = 500
"""The time between a probe that proved nothing and the next one."""
PROBES_MAX: Final = 16
"""The limit for probes at the same time."""


class ProbeOutcome(Enum):
    REFUSED = auto()
    """The host refused a connection to every registered address: no process listens there."""
    ACCEPTED = auto()
    SILENT = auto()
    """No address accepted a connection, and at least one did not refuse it in time."""


class Probe(Struct, frozen=True):
    """Connect to the registered addresses of a broker, and pass the outcome to `on_probed`."""

    broker_id: int
    broker_epoch: int
    suspicion: int
    """The number of the suspicion. The outcome of a probe for an earlier suspicion is ignored."""


class _Suspicion(Struct):
    number: int
    broker_epoch: int
    probe_at_ms: int
    probing: bool = False
    refused_ms: int | None = None
    """The time of the first refusal after the last other outcome."""


class BrokerSuspicions:
    """The suspicions of the active controller in one epoch."""

    def __init__(self, node_id: int = -1) -> None:
        """`node_id`: the node of this controller. Its own broker is never suspected."""
        self._node_id = node_id
        self._brokers: dict[int, int] = {}
        """The broker of each connection over which heartbeats came, by the number of the connection."""
        self._connections: dict[int, int] = {}
        """The connection of the last heartbeat of each broker."""
        self._suspicions: dict[int, _Suspicion] = {}
        self._dead: dict[int, int] = {}
        """The epochs of the brokers that were taken for dead."""
        self._exempt: dict[int, int] = {}
        """The epochs of the brokers that were taken for dead, and then sent a heartbeat."""
        self._count = 0

    # ---- events

    def on_active(self, brokers: Iterable[tuple[int, int]], now_ms: int) -> None:
        """This controller has become active. `brokers` are the ids and epochs of the brokers that are not fenced: all
        of them may have died with the previous controller."""
        for broker_id, broker_epoch in brokers:
            self.suspect(broker_id, broker_epoch, now_ms + FIRST_MS)

    def on_heartbeat(self, broker_id: int, broker_epoch: int, connection_id: int | None) -> bool:
        """A broker is alive. Returns False if this machine has taken this process for dead before. `connection_id` is
        None for the broker in the controller's own process. Call this only with the registered broker epoch."""
        self.forget(broker_id)
        if connection_id is not None:
            self._connections[broker_id] = connection_id
            self._brokers[connection_id] = broker_id
        if self._dead.pop(broker_id, None) != broker_epoch:
            return True
        self._exempt[broker_id] = broker_epoch
        return False

    def on_connection_lost(self, connection_id: int) -> int | None:
        """Returns the broker whose last heartbeat came over this connection; the caller calls `suspect`."""
        broker_id = self._brokers.pop(connection_id, None)
        if broker_id is not None:
            del self._connections[broker_id]
        return broker_id

    def suspect(self, broker_id: int, broker_epoch: int, at_ms: int) -> None:
        """Probe the broker from `at_ms` on, unless a suspicion of this process exists already."""
        if broker_id == self._node_id or self._exempt.get(broker_id) == broker_epoch:
            return
        known = self._suspicions.get(broker_id)
        if known is not None and known.broker_epoch == broker_epoch:
            return
        self._count += 1
        self._suspicions[broker_id] = _Suspicion(self._count, broker_epoch, at_ms)

    def forget(self, broker_id: int) -> None:
        """The broker is fenced or unregistered, so that there is nothing to find out."""
        self._suspicions.pop(broker_id, None)
        connection = self._connections.pop(broker_id, None)
        if connection is not None:
            del self._brokers[connection]

    def on_probed(self, probe: Probe, outcome: ProbeOutcome, now_ms: int) -> bool:
        """Returns whether the broker is dead. False if the broker has sent a heartbeat since the probe began."""
        suspicion = self._suspicions.get(probe.broker_id)
        if suspicion is None or suspicion.number != probe.suspicion:
            return False
        suspicion.probing = False
        if outcome is not ProbeOutcome.REFUSED:
            suspicion.refused_ms = None
            suspicion.probe_at_ms = now_ms + AGAIN_MS
            return False
        if suspicion.refused_ms is None:
            suspicion.refused_ms = now_ms
        if now_ms - suspicion.refused_ms < CONFIRM_MS:
            suspicion.probe_at_ms = suspicion.refused_ms + CONFIRM_MS
            return False
        del self._suspicions[probe.broker_id]
        self._dead[probe.broker_id] = probe.broker_epoch
        return True

    # ---- what to do

    def take_due(self, now_ms: int) -> list[Probe]:
        """The probes to begin now. Each needs a call of `on_probed`."""
        room = PROBES_MAX - sum(suspicion.probing for suspicion in self._suspicions.values())
        due = [(s.probe_at_ms, b) for b, s in self._suspicions.items() if not s.probing and s.probe_at_ms <= now_ms]
        probes = []
        for _, broker_id in sorted(due)[: max(room, 0)]:
            suspicion = self._suspicions[broker_id]
            suspicion.probing = True
            probes.append(Probe(broker_id, suspicion.broker_epoch, suspicion.number))
        return probes

    def next_ms(self) -> int | None:
        """When to call `take_due` next, if there is no event before; None if there is nothing to wait for."""
        waiting = [suspicion for suspicion in self._suspicions.values() if not suspicion.probing]
        if not waiting or len(self._suspicions) - len(waiting) >= PROBES_MAX:
            return None
        return min(suspicion.probe_at_ms for suspicion in waiting)
