"""Shell: the controller of a node. It is active while the node leads the metadata log, and rejects requests otherwise.

    on_leader(this node) -> a record of this epoch is committed, and so are all earlier ones -> sessions -> active
                                ├ a transaction that the previous leader left open is aborted (KIP-868)
                                └ an empty log gets the first records of a cluster
    active:   the driver decides on requests; brokers without heartbeats, and those whose processes have ended, are
              fenced; leaders are balanced; unclean elections are retried; expired tokens are removed
    on_leader(another node, or none) -> uncommitted records are dropped, requests are rejected with NOT_CONTROLLER

The controller replays nothing when it becomes active, because every node keeps the committed image. Its parts:
`session_keeper.py` has the sessions of the brokers, `periodic_elections.py` holds elections, `token_service.py` has the
delegation tokens, `driver.py` proposes the records of decisions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from barnabas.core.clock import Clock
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.rng import Rng
from barnabas.core.telemetry import get_logger
from barnabas.protocol.security.quotas.limits import ClientQuotaCallback
from barnabas.protocol.security.quotas.rates import QuotaWindows
from barnabas.protocol.wire.messages.alter_configs import AlterConfigsRequest
from barnabas.protocol.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from barnabas.protocol.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.wire.messages.broker_registration import BrokerRegistrationRequest
from barnabas.protocol.wire.messages.create_acls import CreateAclsRequest
from barnabas.protocol.wire.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.wire.messages.delete_acls import DeleteAclsRequest
from barnabas.protocol.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.protocol.wire.messages.unregister_broker import UnregisterBrokerRequest
from barnabas.protocol.wire.messages.update_features import UpdateFeaturesRequest
from barnabas.protocol.wire.schema import Message
from barnabas.server.metadata.controller.brokers import levels_not_supported_by
from barnabas.server.metadata.controller.controller import Controller
from barnabas.server.metadata.controller.eligible_leaders import elr_enabled, records_to_enable
from barnabas.server.metadata.controller.settings import Charge, ControllerConfig, unlimited
from barnabas.server.metadata.driver import ControllerDriver
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import replayed
from barnabas.server.metadata.kraft_upgrade import update_features
from barnabas.server.metadata.large_requests import (
    ACLS_PER_DECISION,
    TOPICS_PER_DECISION,
    alter_users,
    create_acls,
    create_topics,
    delete_acls,
    handle_in_parts,
)
from barnabas.server.metadata.mutation_quotas import MutationQuotas, RequestSource
from barnabas.server.metadata.periodic_elections import PeriodicElections
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
from barnabas.server.metadata.session_keeper import SessionKeeper
from barnabas.server.metadata.token_service import DelegationTokens, TokenRequest

log = get_logger("barnabas.controller")

_RETRY_S: Final = 1.0
"""The pause before a retry, after the log has rejected periodic work or the first records of an epoch."""


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
        limits: ClientQuotaCallback | None = None,
        former_leader: Callable[[], tuple[int, int] | None] = lambda: None,
    ) -> None:
        """Without a `prober`, or if barnabas.broker.probe.enable is false, a broker whose process has ended is fenced
        when its session expires. `former_leader` returns the node that was the active controller before this one, and
        the time of its last response to this node (see `BrokerSessions`)."""
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
            live_brokers=lambda: self.keeper.live(),
            may_stop=lambda broker_id: self.keeper.may_stop(broker_id),
            kraft_version=lambda: None if quorum is None else quorum.kraft_version,
        )
        self._mutation_quotas = MutationQuotas(
            QuotaWindows(settings.controller_quota_window_num, settings.controller_quota_window_size_seconds),
            clock,
            limits,
        )
        self._changed = asyncio.Event()
        self.keeper = SessionKeeper(
            self._driver,
            image,
            settings,
            prober,
            former_leader,
            node_id=node_id,
            on_expired=self._changed.set,
            on_leaderless=self._on_leaderless,
        )
        """The sessions of all brokers."""
        self._elections = PeriodicElections(self._driver, settings)
        self._tokens = DelegationTokens(self._driver, settings)
        self._epoch: int | None = None
        """The epoch in which this node leads the metadata log; None while it does not lead."""
        self._in_transaction = False
        """Whether a metadata transaction (KIP-868) is open. An Apache Kafka controller that failed may have left one
        open."""
        self._turned = asyncio.Event()
        """Not set while this node leads the metadata log and is becoming the active controller; set when this node is
        active, and when it does not lead."""

    @property
    def active(self) -> bool:
        return self.keeper.sessions is not None

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
        self.keeper.stop()
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
        while not self.active:
            if self._epoch is None:
                raise KafkaError(ErrorCode.NOT_CONTROLLER)
            await self._turned.wait()
        if isinstance(request, BrokerHeartbeatRequest):
            return await self.keeper.heartbeat(request, version, None if ctx is None else ctx.connection_id)
        if isinstance(request, UnregisterBrokerRequest):
            await self.keeper.move_away(request.broker_id)
        if isinstance(request, UpdateFeaturesRequest):
            return await update_features(self._driver, self._log, self._quorum, request, version)
        if isinstance(request, TokenRequest):
            assert ctx is not None, "brokers forward requests about tokens for their clients only"
            return await self._tokens.handle(request, version, ctx.principal)
        quota = None if ctx is None else self._mutation_quotas.open(request, version, ctx, self._image())
        response: Message = await self._decide(request, version, unlimited if quota is None else quota.charge)
        if quota is not None:
            quota.set_throttle_time(response)
        if isinstance(request, BrokerRegistrationRequest):
            self._log_refusal(request, response)
        if isinstance(request, AlterConfigsRequest | IncrementalAlterConfigsRequest):
            self._elections.on_configs_changed()
            self._changed.set()
        return response

    def _log_refusal(self, request: BrokerRegistrationRequest, response: Message) -> None:
        """Log which feature levels keep a broker out of the cluster: the response has only an error code."""
        if getattr(response, "error_code", ErrorCode.NONE) == ErrorCode.UNSUPPORTED_VERSION:
            log.warning(
                "a broker may not join: it does not support all feature levels of the cluster",
                broker=request.broker_id,
                levels="; ".join(levels_not_supported_by(request, self._image())),
            )

    async def _decide(self, request: Message, version: int, charge: Charge) -> Message:
        """The response, when the records of the decision are committed. Raises KafkaError as `call` does."""
        if isinstance(request, CreateTopicsRequest) and len(request.topics) > TOPICS_PER_DECISION:
            return await create_topics(self._driver, self._settings, request, version, charge)
        if isinstance(request, CreateAclsRequest) and len(request.creations) > ACLS_PER_DECISION:
            return await create_acls(self._driver, request, version)
        if isinstance(request, DeleteAclsRequest):
            return await delete_acls(self._driver, request, version)
        if isinstance(request, AlterUserScramCredentialsRequest):
            return await alter_users(self._driver, request, version)
        division = division_of(request)
        if division is None:
            return await self._driver.handle(request, version, charge)
        return await handle_in_parts(self._driver, request, version, division, charge)

    def on_connection_lost(self, connection_id: int) -> None:
        """A connection to this controller's listener has ended. If the last heartbeat of a broker came over the
        connection, the broker's process may have ended."""
        self.keeper.detector.on_connection_lost(connection_id)

    def on_nodes_registered(self, node_ids: frozenset[int]) -> None:
        """These nodes have a session with ZooKeeper; the session of any other node has ended. Called only if the
        metadata log is in ZooKeeper."""
        self.keeper.detector.on_nodes_registered(node_ids)

    def _on_leaderless(self) -> None:
        self._elections.leaderless = True
        self._changed.set()

    # ---- the epoch in which this node leads

    async def run(self) -> None:
        """Become active when the node leads, and run the periodic work of an active controller. Runs until
        cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.keeper.detector.run(), name="failure detector")
            await self._run()

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            wake_at = None
            try:
                if self._epoch is not None and not self.active:
                    await self._become_active(self._epoch)
                if self.active:
                    wake_at = await self._run_periodic_work()
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
        """Begin the leadership of `epoch`: append a record of this epoch and, in a new cluster, the first records.
        Raises KafkaError when this node has lost the leadership again, or cannot append to the log."""
        # Records of an earlier leader may be in the log and not committed. A committed record of this epoch commits
        # them. In a new quorum there are none, because Raft commits them before this node is told that it leads; and
        # the feature levels come first: a node of Apache Kafka ends when it sees metadata without metadata.version.
        is_new = not self._in_transaction and not self._image().features.metadata_version
        if self._quorum is None or not is_new:
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
        self.keeper.start()
        self._elections.start()
        self._tokens.start()
        log.info("became the active controller", epoch=epoch, offset=self._image().offset)
        self._turned.set()

    async def _run_periodic_work(self) -> float | None:
        """Fence silent brokers, hold the elections that are due, and remove expired delegation tokens. Returns the
        loop's time of the next round; None if this node is no longer active."""
        sessions = self.keeper.sessions
        await self.keeper.fence_silent()
        await self._elections.run_due(lambda: sessions is self.keeper.sessions)
        if sessions is not self.keeper.sessions:
            return None
        await self._tokens.remove_expired()
        if sessions is not self.keeper.sessions:
            return None
        return min(self.keeper.next_round_at(), self._elections.next_round_at(), self._tokens.next_round_at())
