"""Shell: the sessions of brokers with the active controller: heartbeats, fencing, and when a broker may stop.

    heartbeat ──► the session is renewed ──► `decide_heartbeat`: unfence, fence, continue a controlled shutdown
    no heartbeat for broker.session.timeout.ms, or the process has ended (`FailureDetector`) ──► `decide_fence_broker`

Sessions are not replicated: a new active controller gives every broker a full `broker.session.timeout.ms`, except the
one on the node of the previous active controller, of which it knows since when that node has been silent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from barnabas.core.decision import Decision
from barnabas.core.telemetry import get_logger
from barnabas.protocol.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.server.metadata.controller.brokers import decide_fence_broker, decide_heartbeat
from barnabas.server.metadata.controller.partitions import PARTITIONS_PER_DECISION, decide_move_away
from barnabas.server.metadata.controller.sessions import BrokerSessions
from barnabas.server.metadata.controller.settings import ControllerConfig, DecideContext
from barnabas.server.metadata.driver import ControllerDriver
from barnabas.server.metadata.failure_detector import FailureDetector
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.ports import BrokerProber
from barnabas.server.metadata.records.base import MetadataRecord

log = get_logger("barnabas.controller")

PARTITIONS_AT_ONCE: Final = 50_000
"""In a cluster with at least this many partitions, the partitions of a broker that is fenced or unregistered are
changed in several batches."""
BATCH_PAUSE_S: Final = 0.01
"""The pause between two batches of one long task, in which other tasks run."""


class SessionKeeper:
    """Keeps the sessions while this controller is active: between `start` and `stop`."""

    def __init__(
        self,
        driver: ControllerDriver,
        committed: Callable[[], ClusterImage],
        settings: ControllerConfig,
        prober: BrokerProber | None,
        former_leader: Callable[[], tuple[int, int] | None],
        *,
        node_id: int,
        on_expired: Callable[[], None],
        on_leaderless: Callable[[], None],
    ) -> None:
        """Without a `prober`, or if barnabas.broker.probe.enable is false, a broker whose process has ended is fenced
        when its session expires.

        `on_expired` is called when a session has ended before its time-out: `fence_silent` is due. `on_leaderless` is
        called when a broker was unfenced, and some partitions that it could lead may still have no leader."""
        self._driver = driver
        self._committed = committed
        self._settings = settings
        self._former_leader = former_leader
        self._node_id = node_id
        self._on_expired = on_expired
        self._on_leaderless = on_leaderless
        self.sessions: BrokerSessions | None = None
        """The sessions of the brokers; None while this controller is not active."""
        self.detector = FailureDetector(
            prober if settings.barnabas_broker_probe_enable else None,
            lambda: driver.image,
            self.end_session,
            node_id=node_id,
        )

    def start(self) -> None:
        """This controller has become active."""
        timeout_ms = self._settings.broker_session_timeout_ms
        self.sessions = BrokerSessions(self._committed(), _now_ms(), timeout_ms, self._node_id, self._former_leader())
        self.detector.start()

    def stop(self) -> None:
        self.sessions = None
        self.detector.stop()

    # ---- for decisions

    def live(self) -> frozenset[int]:
        """The ids of the brokers with a valid session."""
        return frozenset() if self.sessions is None else self.sessions.live(_now_ms())

    def may_stop(self, broker_id: int) -> bool:
        """Whether a broker that leads no partition may stop."""
        if self.sessions is None:
            return False
        active = [broker.broker_id for broker in self._driver.image.brokers if broker.is_active]
        return self.sessions.may_stop(broker_id, active)

    # ---- heartbeats

    async def heartbeat(
        self, request: BrokerHeartbeatRequest, version: int, connection_id: int | None
    ) -> BrokerHeartbeatResponse:
        """Renew the session of a broker, and decide on its heartbeat. Call this only while this controller is active.
        Raises KafkaError as `ControllerDriver.submit` does."""
        broker_id, sessions = request.broker_id, self.sessions
        assert sessions is not None, "a controller that is not active rejects heartbeats"

        def decide(image: ClusterImage, ctx: DecideContext) -> Decision[MetadataRecord, BrokerHeartbeatResponse]:
            decision = decide_heartbeat(image, request, ctx)
            if request.want_shut_down and decision.records:
                sessions.on_leaders_moved(broker_id, image.offset + len(decision.records))
            elif len(decision.records) >= PARTITIONS_PER_DECISION:
                self._on_leaderless()
            return decision

        broker = self._driver.image.brokers.get(broker_id)
        if broker is not None and broker.epoch == request.broker_epoch:
            sessions.on_heartbeat(broker_id, request.broker_epoch, request.current_metadata_offset, _now_ms())
            self.detector.on_heartbeat(broker_id, request.broker_epoch, connection_id)
        response = await self._driver.submit(decide, version=version)
        if request.want_shut_down:
            # the log may have appended control records in between
            sessions.on_leaders_moved(broker_id, self._committed().offset)
            if response.should_shut_down:
                sessions.forget(broker_id)  # after a controlled shutdown the next process with this id need not wait
                self.detector.forget(broker_id)
        return response

    # ---- fencing

    def end_session(self, broker_id: int, broker_epoch: int) -> None:
        """The process of a broker has ended, or has lost its ZooKeeper session."""
        if self.sessions is not None and self.sessions.end(broker_id, broker_epoch):
            self._on_expired()

    async def fence_silent(self) -> None:
        """Fence every broker whose session has expired or was ended, the broker with the oldest last heartbeat first.
        Raises KafkaError as `ControllerDriver.submit` does."""
        sessions = self.sessions
        if sessions is None:
            return
        sessions.cover(self._driver.image, _now_ms())
        while sessions is self.sessions and (silent := sessions.expired(_now_ms())):
            broker_id = silent[0]
            await self.move_away(broker_id)
            if broker_id not in sessions.expired(_now_ms()):
                continue  # a heartbeat arrived in the meantime
            if self._driver.image.brokers.is_unfenced(broker_id):
                ended, timeout_ms = sessions.ended(broker_id), self._settings.broker_session_timeout_ms
                reason = "its process has ended" if ended else f"no heartbeat came for {timeout_ms} ms"
                log.warning("fencing a broker", broker=broker_id, epoch=sessions.epoch(broker_id), reason=reason)
            await self._driver.submit(partial(self._decide_fence, sessions=sessions, broker_id=broker_id))

    def _decide_fence(
        self, image: ClusterImage, ctx: DecideContext, *, sessions: BrokerSessions, broker_id: int
    ) -> Decision[MetadataRecord, None]:
        broker, epoch = image.brokers.get(broker_id), sessions.epoch(broker_id)
        # now, not at the commit: a heartbeat that arrives before the commit begins a new session
        sessions.forget(broker_id)
        self.detector.forget(broker_id)
        if broker is None or broker.epoch != epoch:
            return Decision(None)  # a newer process has registered
        return decide_fence_broker(image, broker_id, ctx)

    async def move_away(self, broker_id: int) -> None:
        """In a very large cluster, elect new leaders for most of the broker's partitions in several batches, so that
        the heartbeats of other brokers do not wait for one large batch."""
        if self._driver.image.topics.partition_count() < PARTITIONS_AT_ONCE:
            return
        first: int | None = 0
        while first is not None:
            first = await self._driver.submit(partial(_move_away, broker_id=broker_id, first_topic=first))
            await asyncio.sleep(BATCH_PAUSE_S)

    def next_round_at(self) -> float:
        """The loop's time at which `fence_silent` is due next, unless a session ends before its time-out."""
        # A session that begins later also ends later than this.
        latest = asyncio.get_running_loop().time() + self._settings.broker_session_timeout_ms / 1000
        deadline_ms = None if self.sessions is None else self.sessions.next_deadline_ms()
        # half a millisecond more, so that the clock in whole milliseconds has reached the deadline
        return latest if deadline_ms is None else min(latest, deadline_ms / 1000 + 0.0005)


def _move_away(
    image: ClusterImage, ctx: DecideContext, *, broker_id: int, first_topic: int
) -> Decision[MetadataRecord, int | None]:
    return decide_move_away(image, broker_id, ctx, first_topic)


def _now_ms() -> int:
    """The time for sessions: the monotonic clock of the running event loop, in milliseconds."""
    return int(asyncio.get_running_loop().time() * 1000)
