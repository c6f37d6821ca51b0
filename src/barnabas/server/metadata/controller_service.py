"""Shell: the controller of a node. It is active while the node leads the metadata log, and rejects requests otherwise.

    on_leader(this node) -> a record of this epoch is committed, and so are all earlier ones -> sessions -> active
                                ├ a transaction that the previous leader left open is aborted (KIP-868)
                                └ an empty log gets the first records of a cluster
    active:   the driver decides on requests; brokers without heartbeats, and those whose processes have ended, are
              fenced; leaders are balanced; unclean elections are retried
    on_leader(another node, or none) -> uncommitted records are dropped, requests are rejected with NOT_CONTROLLER

The controller replays nothing when it becomes active, because every node keeps the committed image. Broker sessions are
not replicated: a new active controller gives every broker a full `broker.session.timeout.ms`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from barnabas.core.clock import Clock
from barnabas.core.decision import Decision
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.rng import Rng
from barnabas.core.telemetry import get_logger
from barnabas.protocol.wire.messages.alter_configs import AlterConfigsRequest
from barnabas.protocol.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.wire.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.protocol.wire.messages.unregister_broker import UnregisterBrokerRequest
from barnabas.protocol.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from barnabas.protocol.wire.schema import Message
from barnabas.server.metadata.controller.answers import message_of
from barnabas.server.metadata.controller.brokers import decide_fence_broker, decide_heartbeat
from barnabas.server.metadata.controller.controller import Controller
from barnabas.server.metadata.controller.eligible_leaders import elr_enabled, records_to_enable
from barnabas.server.metadata.controller.partitions import (
    PARTITIONS_PER_DECISION,
    decide_balance_leaders,
    decide_leaderless,
    decide_move_away,
    decide_unclean_elections,
)
from barnabas.server.metadata.controller.sessions import BrokerSessions
from barnabas.server.metadata.controller.settings import ControllerConfig, DecideContext
from barnabas.server.metadata.driver import ControllerDriver
from barnabas.server.metadata.failure_detector import FailureDetector
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import replayed
from barnabas.server.metadata.image.small import KRAFT_VERSION
from barnabas.server.metadata.large_requests import TOPICS_PER_DECISION, create_topics, handle_in_parts
from barnabas.server.metadata.ports import (
    BrokerProber,
    CommittedBatch,
    KRaftVersionUpdater,
    LoadedSnapshot,
    MetadataLog,
)
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.metadata.records.other import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
)
from barnabas.server.metadata.request_parts import division_of

log = get_logger("barnabas.controller")

_RETRY_S: Final = 1.0
"""The pause before a retry, after the log has rejected periodic work or the first records of an epoch."""
PARTITIONS_AT_ONCE: Final = 50_000
"""In a cluster with at least this many partitions, the partitions of a broker that is fenced or unregistered are
changed in several batches."""
_MORE_S: Final = 0.01
"""The pause between two batches of one long task, in which other tasks run."""


class RequestSource(Protocol):
    """The part of a request's context that the controller uses."""

    @property
    def connection_id(self) -> int:
        """The number of the connection over which the request came, unique on this node."""
        ...


class ControllerService:
    """A `MetadataListener`. Register it after the Loader, so that the image already contains the committed records."""

    def __init__(
        self,
        controller: Controller,
        metadata_log: MetadataLog,
        image: Callable[[], ClusterImage],
        *,
        node_id: int,
        clock: Clock,
        rng: Rng,
        settings: ControllerConfig,
        bootstrap: Callable[[], Sequence[MetadataRecord]],
        quorum: KRaftVersionUpdater | None = None,
        prober: BrokerProber | None = None,
    ) -> None:
        """Without a `prober`, or if barnabas.broker.probe.enable is false, a broker whose process has ended is fenced
        when its session expires."""
        self._log = metadata_log
        self._image = image
        self._node_id = node_id
        self._settings = settings
        self._bootstrap = bootstrap
        self._quorum = quorum
        self._driver = ControllerDriver(
            controller,
            metadata_log,
            image,
            clock=clock,
            rng=rng,
            live_brokers=self._live_brokers,
            may_stop=self._may_stop,
            kraft_version=lambda: None if quorum is None else quorum.kraft_version,
        )
        self._detector = FailureDetector(
            prober if settings.barnabas_broker_probe_enable else None,
            lambda: self._driver.image,
            self._end_session,
            node_id=node_id,
        )
        self._epoch: int | None = None
        """The epoch in which this node leads the metadata log; None while it does not lead."""
        self._sessions: BrokerSessions | None = None
        """The sessions of all brokers; None while this controller is not active."""
        self._in_transaction = False
        """Whether a metadata transaction (KIP-868) is open. An Apache Kafka controller that failed may have left one
        open."""
        self._changed = asyncio.Event()
        self._turned = asyncio.Event()
        """Not set while this node leads the metadata log and is becoming the active controller; set when this node is
        active, and when it does not lead."""
        self._balance_at = self._unclean_at = 0.0
        self._leaderless = False
        """Whether there may be partitions without a leader that an active broker could lead."""

    @property
    def active(self) -> bool:
        return self._sessions is not None

    # ---- MetadataListener

    def on_commit(self, batch: CommittedBatch) -> None:
        """Track open metadata transactions. The Loader builds the image, and the image does not show an open
        transaction."""
        for record in batch.records:
            kind = type(record)
            if kind is BeginTransactionRecord:
                self._in_transaction = True
            elif kind is EndTransactionRecord or kind is AbortTransactionRecord:
                self._in_transaction = False

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        """Note that no metadata transaction is open, because a snapshot never contains records of an open one."""
        self._in_transaction = False

    def on_leader(self, leader_id: int, epoch: int) -> None:
        mine = epoch if leader_id == self._node_id else None
        if mine == self._epoch:
            return
        if self._epoch is not None:
            log.info("this node is no longer the active controller", epoch=self._epoch, leader=leader_id)
        self._epoch = mine
        self._sessions = None
        self._detector.stop()
        self._driver.reset()
        if mine is None:
            self._turned.set()
        else:
            self._turned.clear()
        self._changed.set()

    # ---- requests

    async def call(self, request: Message, version: int, ctx: RequestSource | None = None) -> Message:
        """Decide on a request, and wait until its records are committed. Requests wait while this node is becoming
        active. `ctx` is None for a request of this node.

        Raises KafkaError: NOT_CONTROLLER when this node is not the active controller, or lost leadership before the
        change was committed; UNSUPPORTED_VERSION for a request that controllers do not handle;
        THROTTLING_QUOTA_EXCEEDED when too many proposals wait for the log.
        """
        while self._sessions is None:
            if self._epoch is None:
                raise KafkaError(ErrorCode.NOT_CONTROLLER)
            await self._turned.wait()
        if isinstance(request, BrokerHeartbeatRequest):
            return await self._heartbeat(request, version, self._sessions, None if ctx is None else ctx.connection_id)
        if isinstance(request, UnregisterBrokerRequest):
            await self._move_away(request.broker_id)
        if isinstance(request, UpdateFeaturesRequest):
            return await self._update_features(request, version)
        if isinstance(request, CreateTopicsRequest) and len(request.topics) > TOPICS_PER_DECISION:
            return await create_topics(self._driver, self._settings, request, version)
        division = division_of(request)
        if division is None:
            response = await self._driver.handle(request, version)
        else:
            response = await handle_in_parts(self._driver, request, version, division)
        if isinstance(request, AlterConfigsRequest | IncrementalAlterConfigsRequest):
            self._unclean_at = 0.0  # the changed configs may allow an unclean election
            self._changed.set()
        return response

    def on_connection_lost(self, connection_id: int) -> None:
        """A connection to this controller's listener has ended. If the last heartbeat of a broker came over the
        connection, the broker's process may have ended."""
        self._detector.on_connection_lost(connection_id)

    def on_nodes_registered(self, node_ids: frozenset[int]) -> None:
        """These nodes have a session with ZooKeeper; the session of any other node has ended. Called only if the
        metadata log is in ZooKeeper."""
        self._detector.on_nodes_registered(node_ids)

    async def _heartbeat(
        self, request: BrokerHeartbeatRequest, version: int, sessions: BrokerSessions, connection_id: int | None
    ) -> Message:
        broker_id = request.broker_id

        def decide(image: ClusterImage, ctx: DecideContext) -> Decision[MetadataRecord, BrokerHeartbeatResponse]:
            decision = decide_heartbeat(image, request, ctx)
            if request.want_shut_down and decision.records:
                sessions.on_leaders_moved(broker_id, image.offset + len(decision.records))
            elif len(decision.records) >= PARTITIONS_PER_DECISION:
                self._leaderless = True  # partitions that waited for this broker may still have no leader
                self._changed.set()
            return decision

        broker = self._driver.image.brokers.get(broker_id)
        if broker is not None and broker.epoch == request.broker_epoch:
            sessions.on_heartbeat(broker_id, request.broker_epoch, request.current_metadata_offset, _now_ms())
            self._detector.on_heartbeat(broker_id, request.broker_epoch, connection_id)
        response = await self._driver.submit(decide, version=version)
        if request.want_shut_down:
            sessions.on_leaders_moved(
                broker_id, self._image().offset
            )  # the log may have appended control records in between
            if response.should_shut_down:
                sessions.forget(broker_id)  # after a controlled shutdown the next process with this id need not wait
                self._detector.forget(broker_id)
        return response

    async def _update_features(self, request: UpdateFeaturesRequest, version: int) -> Message:
        """Upgrade kraft.version first, if the rest of the request is valid, because the quorum may reject that
        upgrade."""
        wanted = [u.max_version_level for u in request.feature_updates if u.feature == KRAFT_VERSION]
        if self._quorum is None or request.validate_only or not wanted or wanted[0] <= self._quorum.kraft_version:
            return await self._driver.handle(request, version)
        trial = UpdateFeaturesRequest(
            timeout_ms=request.timeout_ms, feature_updates=request.feature_updates, validate_only=True
        )
        refusal = await self._driver.handle(trial, version)
        assert isinstance(refusal, UpdateFeaturesResponse)
        if refusal.error_code:
            return refusal
        try:
            self._quorum.upgrade_kraft_version()
        except KafkaError as error:
            return UpdateFeaturesResponse(error_code=error.code, error_message=message_of(error))
        await self._log.propose([NoOpRecord()])  # when this record is committed, all earlier records are, too
        return await self._driver.handle(request, version)

    def _end_session(self, broker_id: int, broker_epoch: int) -> None:
        if self._sessions is not None and self._sessions.end(broker_id, broker_epoch):
            self._changed.set()

    def _live_brokers(self) -> frozenset[int]:
        return frozenset() if self._sessions is None else self._sessions.live(_now_ms())

    def _may_stop(self, broker_id: int) -> bool:
        if self._sessions is None:
            return False
        active = [broker.broker_id for broker in self._driver.image.brokers if broker.is_active]
        return self._sessions.may_stop(broker_id, active)

    # ---- the epoch in which this node leads

    async def run(self) -> None:
        """Become active when the node leads, and run the periodic work of an active controller. Runs until
        cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._detector.run(), name="failure detector")
            await self._run()

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            wake_at = None
            try:
                if self._epoch is not None and self._sessions is None:
                    await self._become_active(self._epoch)
                if self._sessions is not None:
                    wake_at = await self._run_periodic_work(self._sessions)
            except KafkaError as error:
                if self._epoch is not None:
                    log.warning(
                        "the metadata log rejected the first records of the active controller; retrying",
                        reason=str(error),
                    )
                    wake_at = asyncio.get_running_loop().time() + _RETRY_S
            try:
                async with asyncio.timeout_at(wake_at):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _become_active(self, epoch: int) -> None:
        """Raises KafkaError when this node has lost the leadership again, or cannot append to the log."""
        # Records of an earlier leader may be in the log and not committed. A committed record of this epoch commits
        # them.
        await self._log.propose([NoOpRecord()])
        if epoch == self._epoch and self._in_transaction:
            log.info("aborted a metadata transaction that the previous controller left open", epoch=epoch)
            await self._log.propose([AbortTransactionRecord(reason="Its controller has lost the leadership.")])
        if epoch == self._epoch and not self._image().features.metadata_version:
            records = list(self._bootstrap())
            founded = replayed(self._image(), records)
            if elr_enabled(founded):
                records += records_to_enable(founded, self._settings.static_config)
            await self._log.propose(records)
            log.info("wrote the first records of a new cluster", cluster=self._image().cluster_id)
        if epoch != self._epoch:
            return
        now = asyncio.get_running_loop().time()
        self._sessions = BrokerSessions(
            self._image(), _now_ms(), self._settings.broker_session_timeout_ms, self._node_id
        )
        self._detector.start()
        self._balance_at = now + self._settings.leader_imbalance_check_interval_seconds
        self._unclean_at = now + self._settings.unclean_leader_election_interval_ms / 1000
        self._leaderless = True
        log.info("became the active controller", epoch=epoch, offset=self._image().offset)
        self._turned.set()

    # ---- periodic work

    async def _run_periodic_work(self, sessions: BrokerSessions) -> float | None:
        """Run the periodic work that is due. Returns the time of the next round."""
        await self._fence_silent(sessions)
        loop = asyncio.get_running_loop()
        while self._leaderless and sessions is self._sessions:
            self._leaderless = False
            if await self._driver.submit(decide_leaderless):
                self._leaderless = True
                await asyncio.sleep(_MORE_S)
        if self._settings.auto_leader_rebalance_enable and loop.time() >= self._balance_at:
            more = await self._driver.submit(decide_balance_leaders)
            pause = _MORE_S if more else self._settings.leader_imbalance_check_interval_seconds
            self._balance_at = loop.time() + pause
        if loop.time() >= self._unclean_at:
            more = await self._driver.submit(decide_unclean_elections)
            self._unclean_at = loop.time() + (
                _MORE_S if more else self._settings.unclean_leader_election_interval_ms / 1000
            )
        if sessions is not self._sessions:
            return None
        # A session that begins later also ends later than this.
        times = [self._unclean_at, loop.time() + self._settings.broker_session_timeout_ms / 1000]
        if self._settings.auto_leader_rebalance_enable:
            times.append(self._balance_at)
        deadline_ms = sessions.next_deadline_ms()
        if deadline_ms is not None:
            # half a millisecond more, so that the clock in whole milliseconds has reached the deadline
            times.append(deadline_ms / 1000 + 0.0005)
        return min(times)

    async def _fence_silent(self, sessions: BrokerSessions) -> None:
        """Fence every broker whose session has expired or was ended, the broker with the oldest last heartbeat
        first."""
        sessions.cover(self._driver.image, _now_ms())
        while sessions is self._sessions and (silent := sessions.expired(_now_ms())):
            broker_id = silent[0]
            await self._move_away(broker_id)
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
        self._detector.forget(broker_id)
        if broker is None or broker.epoch != epoch:
            return Decision(None)  # a newer process has registered
        return decide_fence_broker(image, broker_id, ctx)

    async def _move_away(self, broker_id: int) -> None:
        """In a very large cluster, elect new leaders for most of the broker's partitions in several batches, so that
        the heartbeats of other brokers do not wait for one large batch."""
        if self._driver.image.topics.partition_count() < PARTITIONS_AT_ONCE:
            return
        first: int | None = 0
        while first is not None:
            first = await self._driver.submit(partial(_move_away, broker_id=broker_id, first_topic=first))
            await asyncio.sleep(_MORE_S)


def _move_away(
    image: ClusterImage, ctx: DecideContext, *, broker_id: int, first_topic: int
) -> Decision[MetadataRecord, int | None]:
    return decide_move_away(image, broker_id, ctx, first_topic)


def _now_ms() -> int:
    """The time for sessions: the monotonic clock of the running event loop, in milliseconds."""
    return int(asyncio.get_running_loop().time() * 1000)
