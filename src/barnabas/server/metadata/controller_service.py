"""Shell: the controller of a node: active while the node leads the metadata log, silent otherwise.

    on_leader(this node) -> a record of its own is committed, and so everything before it -> sessions -> active
                                ├ a transaction that the leader before left open is aborted (KIP-868)
                                └ an empty log gets the first records of a cluster
    active:   requests are decided by the driver; brokers that fall silent are fenced; leaders are balanced;
              unclean elections are retried
    on_leader(another)   -> whatever is not committed is forgotten, requests are refused: NOT_CONTROLLER

Nothing is replayed on becoming active: the image that every node keeps is the state. The sessions of brokers are this
term's own knowledge and begin anew, a full `broker.session.timeout.ms` for everyone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from barnabas.core.clock import Clock
from barnabas.core.decision import Decision
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.rng import Rng
from barnabas.core.telemetry import get_logger
from barnabas.protocol.wire.messages.alter_configs import AlterConfigsRequest
from barnabas.protocol.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
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
from barnabas.server.metadata.controller.settings import ControllerSettings, DecideContext
from barnabas.server.metadata.driver import ControllerDriver
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import replayed
from barnabas.server.metadata.image.small import KRAFT_VERSION
from barnabas.server.metadata.ports import CommittedBatch, KRaftVersion, LoadedSnapshot, MetadataLog
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.metadata.records.other import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
)

log = get_logger("barnabas.controller")

_RETRY_S: Final = 1.0
"""After the log refused a piece of upkeep, or the first records of a term."""
PARTITIONS_AT_ONCE: Final = 50_000
"""From so many partitions on, a broker is fenced piece by piece."""
_MORE_S: Final = 0.01
"""Between two pieces of one long task: others get their turn."""


class ControllerService:
    """A `MetadataListener`; register it after the Loader, so that the image is newer than what it is told."""

    def __init__(
        self,
        controller: Controller,
        metadata_log: MetadataLog,
        image: Callable[[], ClusterImage],
        *,
        node_id: int,
        clock: Clock,
        rng: Rng,
        settings: ControllerSettings,
        bootstrap: Callable[[], Sequence[MetadataRecord]],
        quorum: KRaftVersion | None = None,
    ) -> None:
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
        self._epoch: int | None = None
        """The term in which this node leads; None while another does, or nobody."""
        self._sessions: BrokerSessions | None = None
        """There while active."""
        self._in_transaction = False
        """Of metadata (KIP-868): a Kafka controller that failed may have left one open."""
        self._changed = asyncio.Event()
        self._turned = asyncio.Event()
        """Not set while it is becoming active."""
        self._balance_at = self._unclean_at = 0.0
        self._leaderless = False
        """Whether partitions may be waiting for a broker that is active."""

    @property
    def active(self) -> bool:
        return self._sessions is not None

    # ---- MetadataListener

    def on_commit(self, batch: CommittedBatch) -> None:
        """The image is the loader's business; whether a transaction is open, nobody sees in it."""
        for record in batch.records:
            kind = type(record)
            if kind is BeginTransactionRecord:
                self._in_transaction = True
            elif kind is EndTransactionRecord or kind is AbortTransactionRecord:
                self._in_transaction = False

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        """Likewise; nothing of an open transaction is ever in a snapshot."""
        self._in_transaction = False

    def on_leader(self, leader_id: int, epoch: int) -> None:
        mine = epoch if leader_id == self._node_id else None
        if mine == self._epoch:
            return
        if self._epoch is not None:
            log.info("not the active controller any more", epoch=self._epoch, leader=leader_id)
        self._epoch = mine
        self._sessions = None
        self._driver.reset()
        if mine is None:
            self._turned.set()
        else:
            self._turned.clear()
        self._changed.set()

    # ---- requests

    async def call(self, request: Message, version: int, ctx: object = None) -> Message:
        """Decide on a request, and wait until it is committed. While this node is becoming active, requests wait. Who
        asks (`ctx`) makes no difference.

        Raises KafkaError: NOT_CONTROLLER when this node is not the active controller, or ceased to be it before the
        change was committed; UNSUPPORTED_VERSION for what is not the controller's; THROTTLING_QUOTA_EXCEEDED when too
        much is waiting for the log.
        """
        while self._sessions is None:
            if self._epoch is None:
                raise KafkaError(ErrorCode.NOT_CONTROLLER)
            await self._turned.wait()
        if isinstance(request, BrokerHeartbeatRequest):
            return await self._heartbeat(request, version, self._sessions)
        if isinstance(request, UnregisterBrokerRequest):
            await self._move_away(request.broker_id)
        if isinstance(request, UpdateFeaturesRequest):
            return await self._update_features(request, version)
        response = await self._driver.handle(request, version)
        if isinstance(request, AlterConfigsRequest | IncrementalAlterConfigsRequest):
            self._unclean_at = 0.0  # it may allow now what it did not before
            self._changed.set()
        return response

    async def _heartbeat(self, request: BrokerHeartbeatRequest, version: int, sessions: BrokerSessions) -> Message:
        broker_id = request.broker_id

        def decide(image: ClusterImage, ctx: DecideContext) -> Decision[MetadataRecord, BrokerHeartbeatResponse]:
            decision = decide_heartbeat(image, request, ctx)
            if request.want_shut_down and decision.records:
                sessions.on_leaders_moved(broker_id, image.offset + len(decision.records))
            elif len(decision.records) >= PARTITIONS_PER_DECISION:
                self._leaderless = True  # perhaps not every partition that waited for this broker
                self._changed.set()
            return decision

        broker = self._driver.image.brokers.get(broker_id)
        if broker is not None and broker.epoch == request.broker_epoch:
            sessions.on_heartbeat(broker_id, request.broker_epoch, request.current_metadata_offset, _now_ms())
        response = await self._driver.submit(decide, version=version)
        if request.want_shut_down:
            sessions.on_leaders_moved(
                broker_id, self._image().offset
            )  # the log may have put records of its own between
            if response.should_shut_down:
                sessions.forget(broker_id)  # it has said goodbye: the next process with its id need not wait
        return response

    async def _update_features(self, request: UpdateFeaturesRequest, version: int) -> Message:
        """kraft.version comes first, if nothing else in the request is refused: the quorum may have a reason, too."""
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
        await self._log.propose([NoOpRecord()])  # once it is committed, so is what was written before it
        return await self._driver.handle(request, version)

    def _live_brokers(self) -> frozenset[int]:
        return frozenset() if self._sessions is None else self._sessions.live(_now_ms())

    def _may_stop(self, broker_id: int) -> bool:
        if self._sessions is None:
            return False
        active = [broker.broker_id for broker in self._driver.image.brokers if broker.is_active]
        return self._sessions.may_stop(broker_id, active)

    # ---- the term

    async def run(self) -> None:
        """Become active when the node leads, and do the upkeep of the cluster while it does. Until cancelled."""
        while True:
            self._changed.clear()
            wake_at = None
            try:
                if self._epoch is not None and self._sessions is None:
                    await self._become_active(self._epoch)
                if self._sessions is not None:
                    wake_at = await self._upkeep(self._sessions)
            except KafkaError as error:
                if self._epoch is not None:
                    log.warning("the metadata log refused the controller; it will be tried again", reason=str(error))
                    wake_at = asyncio.get_running_loop().time() + _RETRY_S
            try:
                async with asyncio.timeout_at(wake_at):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _become_active(self, epoch: int) -> None:
        """Raises KafkaError when this node lost the log again, or cannot write to it."""
        # What an earlier leader wrote may be in the log and not committed. It is once a record of this term is.
        await self._log.propose([NoOpRecord()])
        if epoch == self._epoch and self._in_transaction:
            log.info("what the controller before left half done is undone", epoch=epoch)
            await self._log.propose([AbortTransactionRecord(reason="Its controller has lost the leadership.")])
        if epoch == self._epoch and not self._image().features.metadata_version:
            records = list(self._bootstrap())
            founded = replayed(self._image(), records)
            if elr_enabled(founded):
                records += records_to_enable(founded, self._settings.static_config)
            await self._log.propose(records)
            log.info("the cluster is founded", cluster=self._image().cluster_id)
        if epoch != self._epoch:
            return
        now = asyncio.get_running_loop().time()
        self._sessions = BrokerSessions(self._image(), _now_ms(), self._settings.session_timeout_ms, self._node_id)
        self._balance_at = now + self._settings.leader_imbalance_check_interval_seconds
        self._unclean_at = now + self._settings.unclean_leader_election_interval_ms / 1000
        self._leaderless = True
        log.info("the active controller", epoch=epoch, offset=self._image().offset)
        self._turned.set()

    # ---- upkeep of the cluster

    async def _upkeep(self, sessions: BrokerSessions) -> float | None:
        """One round of whatever is due; says when the next one is."""
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
        # A session that begins from now on ends later than that.
        times = [self._unclean_at, loop.time() + self._settings.session_timeout_ms / 1000]
        if self._settings.auto_leader_rebalance_enable:
            times.append(self._balance_at)
        deadline_ms = sessions.next_deadline_ms()
        if deadline_ms is not None:
            times.append(deadline_ms / 1000 + 0.0005)  # so that the clock, cut to milliseconds, has surely reached it
        return min(times)

    async def _fence_silent(self, sessions: BrokerSessions) -> None:
        """Fence every broker whose session has ended, the one silent longest first."""
        sessions.cover(self._driver.image, _now_ms())
        while sessions is self._sessions and (silent := sessions.expired(_now_ms())):
            broker_id = silent[0]
            await self._move_away(broker_id)
            if broker_id not in sessions.expired(_now_ms()):
                continue  # it was heard meanwhile

            def fence(
                image: ClusterImage, ctx: DecideContext, broker_id: int = broker_id
            ) -> Decision[MetadataRecord, None]:
                sessions.forget(broker_id)  # at the decision: a heartbeat that comes while it is committed begins anew
                return decide_fence_broker(image, broker_id, ctx)

            if self._driver.image.brokers.is_unfenced(broker_id):
                log.warning(
                    "a broker's session has ended: it is fenced",
                    broker=broker_id,
                    timeout_ms=self._settings.session_timeout_ms,
                )
            await self._driver.submit(fence)

    async def _move_away(self, broker_id: int) -> None:
        """In a very big cluster: most of what fencing changes, piece by piece, so that the log and the heartbeats of
        others are not kept waiting."""
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
    """Sessions are measured on the running loop's clock, which nobody sets back."""
    return int(asyncio.get_running_loop().time() * 1000)
