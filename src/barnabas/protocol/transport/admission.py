"""Shell: admits the new connections of one listener, in order, as `connection_quotas.py` decides.

A connection that must wait is accepted from the operating system and not read, so that its client sees what it would
see if the connection waited in the backlog of the socket, as it does in Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from barnabas.core.telemetry import Metrics, get_logger
from barnabas.protocol.security.acls import canonical_host
from barnabas.protocol.transport.connection_quotas import ConnectionQuotas
from barnabas.protocol.transport.limits import OccasionalWarning

if TYPE_CHECKING:
    from barnabas.protocol.transport.accepted_connection import AcceptedConnection

log = get_logger("barnabas.protocol.transport")

WAITING_MAX: Final = 1024
"""The limit for connections of one listener that wait, to be admitted or to be closed. Further ones are closed at
once."""
_WARNING_EVERY_S: Final = 10.0


class _Waiting(Struct):
    """A connection that waits to be admitted. `ready_ms` is None until the rates have counted it."""

    host: str
    port: int
    since: float
    ready_ms: int | None = None


class Admission:
    """The new connections of one listener."""

    def __init__(
        self,
        name: str,
        quotas: ConnectionQuotas,
        metrics: Metrics,
        now: Callable[[], float],
        enter: Callable[[AcceptedConnection, str, int], None],
    ) -> None:
        """`enter` is called with each admitted connection, and the address and port of its client."""
        self._name = name
        self._quotas = quotas
        self._now = now
        self._enter = enter
        self._waiting: dict[AcceptedConnection, _Waiting] = {}
        self._refused: dict[AcceptedConnection, asyncio.TimerHandle] = {}
        """Connections that will be closed after a delay."""
        self._timer: asyncio.TimerHandle | None = None
        self._warnings = OccasionalWarning(_WARNING_EVERY_S)
        counter = metrics.counter
        self._accepted_total = counter(
            "barnabas_net_accepted_connections_total", "Connections that were admitted.", listener=name
        )
        self._refused_total = counter(
            "barnabas_net_refused_connections_total", "Connections closed because of a limit.", listener=name
        )
        self._delayed_total = counter(
            "barnabas_net_delayed_connections_total", "Connections that waited because of a limit.", listener=name
        )
        self._delay_total = counter(
            "barnabas_net_connection_delay_seconds_total", "How long connections have waited together.", listener=name
        )
        self._throttled_total = counter(
            "barnabas_net_throttled_connections_total",
            "Connections closed after a delay, because their address creates connections too fast.",
            listener=name,
        )
        metrics.gauge(
            "barnabas_net_waiting_connections", "Connections that wait because of a limit.",
            lambda: len(self._waiting), listener=name,
        )  # fmt: skip

    def accept(self, connection: AcceptedConnection, transport: asyncio.Transport) -> None:
        """Admit, hold or refuse a new connection."""
        address = transport.get_extra_info("peername") or ("unknown", 0)
        host, port = canonical_host(str(address[0])), int(address[1])
        quotas, now = self._quotas, self._now()
        if quotas.is_nearly_short_of_descriptors:
            quotas.make_room(now)
        sock = transport.get_extra_info("socket")
        if quotas.is_short_of_descriptors(-1 if sock is None else sock.fileno()):
            reason = "the broker is short of file descriptors: raise its limit of open files (ulimit -n)"
            self._refuse(connection, host, reason)
            return
        waiting = _Waiting(host, port, now)
        if not self._waiting and self._is_ready(waiting):
            self._admit(connection, waiting)
        elif len(self._waiting) >= WAITING_MAX:
            self._refuse(connection, host, f"{WAITING_MAX} connections wait to be admitted")
        else:
            self._waiting[connection] = waiting
            quotas.unadmitted += 1
            self._delayed_total.add()
            connection.hold()
            self._set_timer()

    def forget(self, connection: AcceptedConnection) -> None:
        """A connection that was not admitted has been closed."""
        timer = self._refused.pop(connection, None)
        if timer is not None:
            timer.cancel()
            self._quotas.unadmitted -= 1
        elif self._waiting.pop(connection, None) is not None:
            self._quotas.unadmitted -= 1
            self.admit_waiting()

    def admit_waiting(self) -> None:
        """Admit the connections that need not wait any longer."""
        while self._waiting:
            connection, waiting = next(iter(self._waiting.items()))
            if not self._is_ready(waiting):
                self._set_timer()
                return
            del self._waiting[connection]
            self._quotas.unadmitted -= 1
            self._delay_total.add(self._now() - waiting.since)
            self._admit(connection, waiting)

    def close(self) -> None:
        """Close all connections that are not admitted."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._quotas.unadmitted -= len(self._waiting) + len(self._refused)
        unadmitted = [*self._waiting, *self._refused]
        for timer in self._refused.values():
            timer.cancel()
        self._waiting.clear()
        self._refused.clear()
        for connection in unadmitted:
            connection.refuse()

    # ---- inside

    def _now_ms(self) -> int:
        return int(self._now() * 1000)

    def _is_ready(self, waiting: _Waiting) -> bool:
        now_ms = self._now_ms()
        if waiting.ready_ms is None:
            waiting.ready_ms = now_ms + self._quotas.delay_ms(self._name, now_ms)
        return waiting.ready_ms <= now_ms and self._quotas.has_slot(self._name)

    def _set_timer(self) -> None:
        """Wake up when the first connection that waits has waited for its rate. One that waits for a slot needs no
        timer: `ConnectionQuotas` calls `on_slot_free`."""
        first = next(iter(self._waiting.values()))
        if self._timer is not None or first.ready_ms is None or first.ready_ms <= self._now_ms():
            return
        self._timer = asyncio.get_running_loop().call_at((first.ready_ms + 1) / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.admit_waiting()

    def _admit(self, connection: AcceptedConnection, waiting: _Waiting) -> None:
        refusal = self._quotas.try_admit(self._name, waiting.host, self._now_ms())
        if refusal is None:
            self._accepted_total.add()
            self._enter(connection, waiting.host, waiting.port)
            self._quotas.close_excess()
        elif refusal.delay_ms and len(self._refused) < WAITING_MAX:
            self._throttled_total.add()
            self._quotas.unadmitted += 1
            connection.hold()
            loop = asyncio.get_running_loop()
            self._refused[connection] = loop.call_later(refusal.delay_ms / 1000, self._end_refused, connection)
            self._warn(waiting.host, refusal.reason)
        else:
            self._refuse(connection, waiting.host, refusal.reason)

    def _end_refused(self, connection: AcceptedConnection) -> None:
        del self._refused[connection]
        self._quotas.unadmitted -= 1
        connection.refuse()

    def _refuse(self, connection: AcceptedConnection, host: str, reason: str) -> None:
        self._refused_total.add()
        self._warn(host, reason)
        connection.refuse()

    def _warn(self, host: str, reason: str) -> None:
        count = self._warnings.count(self._now())
        if count:
            log.warning("connections refused", listener=self._name, last=host, reason=reason, count=count)
