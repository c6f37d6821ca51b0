"""Machine: the sessions of brokers: heartbeats, fencing, and when a broker may stop.

Sessions exist only in the memory of the active controller. A new active controller gives every broker that is not
fenced a full `broker.session.timeout.ms` for its first heartbeat (`BrokerHeartbeatManager`, `BrokerHeartbeatTracker`).

Stricter than Kafka is the session of a broker that shares its node with the previous active controller. If that node is
paused or cut off, the election has taken seconds already, and the new controller has polled the node all the time. The
session of its broker therefore begins with the last response of the node, but at least a third of the time-out is left:
a broker that runs sends a heartbeat as soon as it learns of the new controller.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from barnabas.server.metadata.image.cluster import ClusterImage


class BrokerSession(Struct):
    """The session of one broker process."""

    broker_epoch: int
    heartbeat_ms: int
    metadata_offset: int = -1
    """The metadata offset up to which the broker has read the metadata log."""
    shutdown_offset: int = -1
    """The metadata offset that the other active brokers must have read before this broker may stop; -1 if this broker
    is not in controlled shutdown."""
    assumed: bool = False
    """Whether this controller has not received a heartbeat of the broker yet."""
    ended: bool = False
    """Whether the broker's process has ended, or has lost its ZooKeeper session, without a later heartbeat."""


class BrokerSessions:
    """The sessions of all brokers, in one epoch of the active controller."""

    def __init__(
        self,
        image: ClusterImage,
        now_ms: int,
        session_timeout_ms: int,
        node_id: int = -1,
        former_leader: tuple[int, int] | None = None,
    ) -> None:
        """`node_id`: the node of this controller. If a broker with this id is registered and has sent no heartbeat yet,
        the registration is that of the previous process of this node. `live` leaves such a broker out, so that the new
        process can register at once. `former_leader`: the node of the previous active controller, and the time of its
        last response."""
        self._timeout_ms = session_timeout_ms
        self._node_id = node_id
        self._sessions: dict[int, BrokerSession] = {}
        self.cover(image, now_ms)
        if former_leader is not None and former_leader[0] in self._sessions:
            silent_ms = min(now_ms - former_leader[1], session_timeout_ms * 2 // 3)
            self._sessions[former_leader[0]].heartbeat_ms -= max(silent_ms, 0)
        for broker in image.brokers:
            if broker.in_controlled_shutdown and broker.broker_id in self._sessions:
                self._sessions[broker.broker_id].shutdown_offset = image.offset

    def cover(self, image: ClusterImage, now_ms: int) -> None:
        """Begin a session for every broker that is not fenced and has no session."""
        for broker in image.brokers:
            if not broker.fenced and broker.broker_id not in self._sessions:
                self._sessions[broker.broker_id] = BrokerSession(broker.epoch, now_ms, assumed=True)

    def on_heartbeat(self, broker_id: int, broker_epoch: int, metadata_offset: int, now_ms: int) -> None:
        """Record a heartbeat. Call this before the decision, and only with the registered broker epoch."""
        session = self._sessions.get(broker_id)
        if session is None or session.broker_epoch != broker_epoch:
            session = self._sessions[broker_id] = BrokerSession(broker_epoch, now_ms)
        session.assumed = session.ended = False
        session.heartbeat_ms = max(session.heartbeat_ms, now_ms)
        session.metadata_offset = max(session.metadata_offset, metadata_offset)

    def end(self, broker_id: int, broker_epoch: int) -> bool:
        """End the session of this process before its time-out, unless a newer process has the session. The next
        heartbeat renews the session. Returns whether the session was valid."""
        session = self._sessions.get(broker_id)
        if session is None or session.broker_epoch != broker_epoch or session.ended:
            return False
        session.ended = True
        return True

    def forget(self, broker_id: int) -> None:
        """End the session of a broker that is fenced or unregistered."""
        self._sessions.pop(broker_id, None)

    def live(self, now_ms: int) -> frozenset[int]:
        """The ids of the brokers with a valid session (`DecideContext.live_brokers`). No other process may register
        with such an id."""
        return frozenset(
            broker
            for broker, session in self._sessions.items()
            if not self._is_over(session, now_ms) and not (session.assumed and broker == self._node_id)
        )

    def expired(self, now_ms: int) -> list[int]:
        """The brokers to fence, in the order of their last heartbeats."""
        silent = [(s.heartbeat_ms, b) for b, s in self._sessions.items() if self._is_over(s, now_ms)]
        return [broker for _, broker in sorted(silent)]

    def ended(self, broker_id: int) -> bool:
        """Whether `end` has ended the broker's session."""
        session = self._sessions.get(broker_id)
        return session is not None and session.ended

    def epoch(self, broker_id: int) -> int:
        """The broker epoch of the process that has the session; -1 if there is no session."""
        session = self._sessions.get(broker_id)
        return -1 if session is None else session.broker_epoch

    def _is_over(self, session: BrokerSession, now_ms: int) -> bool:
        return session.ended or now_ms - session.heartbeat_ms >= self._timeout_ms

    def next_deadline_ms(self) -> int | None:
        """The earliest time at which another session expires."""
        times = [session.heartbeat_ms for session in self._sessions.values()]
        return min(times) + self._timeout_ms if times else None

    # -- controlled shutdown ---------------------------------------------------------------------------------------

    def on_leaders_moved(self, broker_id: int, offset: int) -> None:
        """Record that the records which move the broker's leaderships to other brokers end at `offset` or below."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.shutdown_offset = max(session.shutdown_offset, offset)

    def may_stop(self, broker_id: int, active: Iterable[int]) -> bool:
        """Whether the other brokers in `active` have read the records that moved the leaderships away from `broker_id`,
        so that they send no client to that broker any more. Call this when the broker leads no partition."""
        session = self._sessions.get(broker_id)
        if session is None or session.shutdown_offset < 0:
            return True
        others = (self._sessions.get(other) for other in active if other != broker_id)
        return all(other is None or other.metadata_offset >= session.shutdown_offset for other in others)
