"""Machine: whose heartbeats the active controller hears: sessions, fencing, and when a broker may stop.

A session is the active controller's own knowledge, not the cluster's: a new controller gives every broker that is not
fenced a full `broker.session.timeout.ms` to be heard (`BrokerHeartbeatManager`, `BrokerHeartbeatTracker`).
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from barnabas.server.metadata.image.cluster import ClusterImage


class Session(Struct):
    """One broker, in one lifetime."""

    broker_epoch: int
    heard_ms: int
    metadata_offset: int = -1
    """How far it has read the metadata log."""
    shutdown_offset: int = -1
    """Where the metadata log was when its leaders moved away; -1 while it does not want to stop."""
    assumed: bool = False
    """It was not heard in this term."""


class BrokerSessions:
    """One per term of the active controller."""

    def __init__(self, image: ClusterImage, now_ms: int, session_timeout_ms: int, node_id: int = -1) -> None:
        """`node_id`: the controller's own; if that is registered as a broker and silent, it is the process before this
        one, and need not be waited for."""
        self._timeout_ms = session_timeout_ms
        self._node_id = node_id
        self._sessions: dict[int, Session] = {}
        self.cover(image, now_ms)
        for broker in image.brokers:
            if broker.in_controlled_shutdown and broker.broker_id in self._sessions:
                self._sessions[broker.broker_id].shutdown_offset = image.offset

    def cover(self, image: ClusterImage, now_ms: int) -> None:
        """A session for every broker that is not fenced and has none: nobody is forgotten."""
        for broker in image.brokers:
            if not broker.fenced and broker.broker_id not in self._sessions:
                self._sessions[broker.broker_id] = Session(broker.epoch, now_ms, assumed=True)

    def on_heartbeat(self, broker_id: int, broker_epoch: int, metadata_offset: int, now_ms: int) -> None:
        """Call it before the decision, and only for a broker epoch that is the registered one."""
        session = self._sessions.get(broker_id)
        if session is None or session.broker_epoch != broker_epoch:
            session = self._sessions[broker_id] = Session(broker_epoch, now_ms)
        session.assumed = False
        session.heard_ms = max(session.heard_ms, now_ms)
        session.metadata_offset = max(session.metadata_offset, metadata_offset)

    def forget(self, broker_id: int) -> None:
        """It is fenced or unregistered."""
        self._sessions.pop(broker_id, None)

    def live(self, now_ms: int) -> frozenset[int]:
        """`DecideContext.live_brokers`: those whose id nobody else may register."""
        return frozenset(
            broker
            for broker, session in self._sessions.items()
            if now_ms - session.heard_ms < self._timeout_ms and not (session.assumed and broker == self._node_id)
        )

    def expired(self, now_ms: int) -> list[int]:
        """Brokers to fence, the one that has been silent longest first."""
        silent = [(s.heard_ms, b) for b, s in self._sessions.items() if now_ms - s.heard_ms >= self._timeout_ms]
        return [broker for _, broker in sorted(silent)]

    def next_deadline_ms(self) -> int | None:
        """When `expired` is worth asking again."""
        heard = [session.heard_ms for session in self._sessions.values()]
        return min(heard) + self._timeout_ms if heard else None

    # -- controlled shutdown ---------------------------------------------------------------------------------------

    def on_leaders_moved(self, broker_id: int, offset: int) -> None:
        """The records that take the broker's leaderships away end at `offset`."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.shutdown_offset = max(session.shutdown_offset, offset)

    def may_stop(self, broker_id: int, active: Iterable[int]) -> bool:
        """Every active broker has read that the leaders moved: nobody will be sent to it any more, and the new leaders
        lead. Ask when it leads nothing any more."""
        session = self._sessions.get(broker_id)
        if session is None or session.shutdown_offset < 0:
            return True
        others = (self._sessions.get(other) for other in active if other != broker_id)
        return all(other is None or other.metadata_offset >= session.shutdown_offset for other in others)
