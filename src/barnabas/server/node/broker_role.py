"""Shell: the broker of a node: its start after the metadata log is read, and its shutdown.

registered, fenced -> an image with that registration: logs, coordinators -> unfenced -> listeners accept -> ready
stop: controlled shutdown (leaderships move to other brokers) -> listeners closed -> coordinators -> logs
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from barnabas.core.telemetry import get_logger
from barnabas.core.work import in_slices
from barnabas.protocol.records.compression import CompressionType
from barnabas.protocol.security.quotas.rates import QuotaWindows
from barnabas.protocol.transport.connection_quotas import DescriptorLimits
from barnabas.protocol.transport.limits import RequestBudget
from barnabas.protocol.transport.listener import Listener
from barnabas.protocol.transport.turn_taking import TurnTaking
from barnabas.protocol.wire.apis import ApiKey
from barnabas.server.broker.apis import BROKER_APIS
from barnabas.server.broker.auto_create import AutoTopicCreation
from barnabas.server.broker.checking.checker import BatchChecker
from barnabas.server.broker.checking.process import CheckProcess
from barnabas.server.broker.client_metrics.store import ClientMetrics
from barnabas.server.broker.client_quotas import ClientQuotas
from barnabas.server.broker.client_usage.tables import ClientUsage
from barnabas.server.broker.dispatch import Dispatcher
from barnabas.server.broker.fetching.session_cache import FetchSessionCache
from barnabas.server.broker.forward import ControllerChannel
from barnabas.server.broker.handlers.admin.port import AdminPort
from barnabas.server.broker.handlers.cluster.port import ClusterPort
from barnabas.server.broker.handlers.data.port import DataPort
from barnabas.server.broker.handlers.groups.port import GroupsPort
from barnabas.server.broker.handlers.links.port import Links
from barnabas.server.broker.handlers.maintenance.port import MaintenancePort
from barnabas.server.broker.handlers.security.port import SecurityPort
from barnabas.server.broker.handlers.shares.port import SharesPort
from barnabas.server.broker.handlers.telemetry.port import TelemetryPort
from barnabas.server.broker.handlers.transactions.port import TransactionsPort
from barnabas.server.broker.metadata_cache import BrokerMetadataCache
from barnabas.server.broker.producer_ids import ProducerIds
from barnabas.server.broker.served import ServedApis
from barnabas.server.broker.shares import Shares
from barnabas.server.broker.verification import TransactionVerifier
from barnabas.server.coordination.group.service import GroupCoordinator
from barnabas.server.coordination.share.service import ShareCoordinator
from barnabas.server.coordination.transaction.service import TransactionCoordinator
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.metadata.publish import Publisher
from barnabas.server.metadata.quota_callback import build_limits
from barnabas.server.monitoring.groups import GroupMonitor
from barnabas.server.monitoring.limits import LeftOut
from barnabas.server.node.adapters import (
    GroupCoordinatorListener,
    ImageCatalog,
    ImageGroupConfigs,
    ReplicatedWriter,
    TransactionCoordinatorListener,
)
from barnabas.server.node.collectors import monitor_broker
from barnabas.server.node.connection_limits import (
    ConnectionLimitsUpdater,
    build_connection_quotas,
    measure_request_memory,
)
from barnabas.server.node.image_slices import ImageSlices
from barnabas.server.node.lifecycle import BrokerLifecycle
from barnabas.server.node.links import build_cluster_links
from barnabas.server.node.listening.broker_listeners import BrokerListeners, BuildListener
from barnabas.server.node.parts import Parts
from barnabas.server.node.patience import ShutdownPatience
from barnabas.server.node.running import running, unless
from barnabas.server.node.setup.join_checks import check_may_join
from barnabas.server.node.setup.ports_taken import TakenPort
from barnabas.server.node.shares import ShareGroupConfigs, ShareGroupListener, build_shares
from barnabas.server.node.tiered.building import build_tiered_storage
from barnabas.server.node.typed_configs import (
    GROUP_COORDINATOR,
    LIFECYCLE,
    MAINTENANCE,
    TRANSACTION,
    build_broker_config,
    build_cleaner_config,
    build_replication_config,
    build_transport_config,
)
from barnabas.server.peers.controller import HEARTBEAT
from barnabas.server.peers.coordination import CoordinationChannels
from barnabas.server.peers.peers import Peers
from barnabas.server.peers.replication import ReplicationChannel
from barnabas.server.quorum.majority import majority_may_run
from barnabas.server.replication.cleaning.compaction import Compactor
from barnabas.server.replication.cleaning.engine import InlineEngine, ProcessEngine
from barnabas.server.replication.config import ReplicationConfig
from barnabas.server.replication.directories.mover import DirectoryMover
from barnabas.server.replication.directories.opening import open_found_logs
from barnabas.server.replication.directories.reporter import DirectoryReporter
from barnabas.server.replication.flushing import Flusher
from barnabas.server.replication.maintenance.on_demand import OnDemandMaintenance
from barnabas.server.replication.maintenance.scheduled import ScheduledMaintenance
from barnabas.server.replication.partitions import Partitions
from barnabas.server.replication.replication import BrokerReplication
from barnabas.server.storage.directory.log_dir import LogDir
from barnabas.server.storage.errors import StorageError
from barnabas.server.storage.fs import OsFileSystem

log = get_logger("barnabas.server.broker")

_CHECK_INTERVAL_S: Final = 0.25
_WARM_UP_APIS: Final = (ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.FETCH)


class BrokerRole:
    """The broker of this node. Call `serve` once, then `close`."""

    def __init__(self, parts: Parts, controller: ControllerChannel, ports: Sequence[TakenPort]) -> None:
        self._parts = parts
        config = parts.config
        self._images: ImageSlices | None = None
        self.node_id, self.clock, self.disk = parts.node_id, parts.clock, parts.disk
        self.controller = controller
        self.metadata = BrokerMetadataCache()
        self.broker_config = LiveBrokerConfig(parts)
        self.topic_creation = AutoTopicCreation(controller, self.broker_config)
        self._flusher = Flusher(parts.disk)
        self._peers = peers = Peers(parts.to_brokers, lambda: parts.image, config.inter_broker_listener)
        self._channels = CoordinationChannels(peers, self)
        channel = ReplicationChannel(parts.node_id, peers, controller, lambda: self.broker_epoch)
        self._replication = BrokerReplication(
            parts.node_id, channel, self._flusher, self._replication_config, parts.clock, parts.rng
        )
        self.partitions = Partitions(
            self._replication.context,
            self._replication,
            parts.dirs,
            parts.log_config,
            parts.clock,
            parts.rng,
            parts.missing_dirs,
            lambda: self._mover,
        )
        self._maintenance = ScheduledMaintenance(
            self.partitions, self._flusher, parts.disk, parts.clock, MAINTENANCE.build(config.__getitem__)
        )
        self._compactor = self._build_compactor()
        self._directory_reporter = DirectoryReporter(self.partitions, channel, parts.rng)
        self._mover: DirectoryMover = DirectoryMover(
            self.partitions, self._directory_reporter, self._flusher, parts.disk,
            self._replication_config, parts.clock, parts.rng, parts.metrics,
        )  # fmt: skip
        self._links = build_cluster_links(parts, self.partitions, self._channels, controller, lambda: self.broker_epoch)
        self._tiered = build_tiered_storage(parts, self.partitions, self._channels.router)
        self._producer_ids = ProducerIds(controller, parts.node_id)
        self.groups = self._build_group_coordinator()
        self.transactions = TransactionCoordinator(
            TRANSACTION.build(config.__getitem__), ReplicatedWriter(self.partitions, parts.disk),
            self._channels.markers, self._producer_ids.next, parts.clock, parts.rng,
        )  # fmt: skip
        self.shares = self._build_shares()
        self.fetch_sessions = FetchSessionCache(config["max.incremental.fetch.session.cache.slots"], parts.rng)
        self._checker = self._build_checker()
        self.quotas = self._build_quotas()
        self._client_metrics = self._build_client_metrics()
        self._clients = ClientUsage()
        self._budget = RequestBudget(build_transport_config(config))
        left_out = LeftOut()
        self.monitor = GroupMonitor(
            self.groups, self.transactions, self.shares, self.fetch_sessions, self._channels.log_ends,
            parts.clock, left_out,
        )  # fmt: skip
        """Reads the groups that this broker coordinates; the console reads their lag from it."""
        monitor_broker(
            parts, self.partitions, self.monitor, self._links, self._clients, self._budget,
            lambda: self._lifecycle.state.value, left_out,
        )  # fmt: skip
        self.are_logs_open = False
        """Whether all logs that the metadata knows are open, and recovered if that was necessary."""
        shares, names = parts.descriptors, [port.endpoint.name for port in ports]  # BrokerListeners changes the names
        limits = DescriptorLimits(shares.connections, shares.highest)
        self._connection_quotas = build_connection_quotas(config, names, limits)
        self._connection_limits = ConnectionLimitsUpdater(
            self._connection_quotas, names, parts.node_id, config.given, parts.disk
        )
        self._listeners = BrokerListeners(parts, ports, self._connection_quotas, names, self._connection_limits.refresh)
        self._ports = self._build_ports()
        self._lifecycle: BrokerLifecycle = BrokerLifecycle(
            controller,
            parts.identity,
            [port.advertised for port in ports],
            config["broker.rack"],
            parts.dirs,
            lambda: -1 if self._images is None else self._images.applied_offset,
            parts.rng,
            LIFECYCLE.build(config.__getitem__),
            on_epoch=self._on_epoch,
            feature_levels=lambda: dict(parts.image.features.levels),
            on_silence=self._on_silence,
        )
        parts.publisher.subscribe_leader(self._lifecycle.on_leader)
        parts.outgoing.on_lost(HEARTBEAT, self._lifecycle.on_connection_lost)

    # ---- this broker, as its channels use it (`LocalBroker`)

    @property
    def transaction_port(self) -> TransactionsPort:
        port: TransactionsPort = self._ports["transactions"]
        return port

    @property
    def share_coordinator(self) -> ShareCoordinator:
        return self.shares.coordinator

    @property
    def link_requests(self) -> Links:
        return self._links.requests

    def _replication_config(self) -> ReplicationConfig:
        return build_replication_config(self._parts.config_view(self._parts.image))

    async def images_applied(self) -> None:
        """Return when this broker has applied all images that are published."""
        if self._images is not None:
            await self._images.settled()

    @property
    def broker_epoch(self) -> int:
        """-1 before the broker is registered."""
        return self._lifecycle.broker_epoch

    @property
    def is_fenced(self) -> bool:
        """Whether the controller excludes this broker from leaderships, as far as this broker knows."""
        return self._lifecycle.fenced

    @property
    def unanswered_s(self) -> float:
        """The seconds since the controller last answered a heartbeat; 0 before the first answer."""
        answered_at = self._lifecycle.answered_at
        return asyncio.get_running_loop().time() - answered_at if answered_at else 0.0

    async def serve(self, on_ready: Callable[[], None]) -> None:
        """Serve until `Parts.stopping` is set. Raises the error that prevents the start, and StoppedError
        if `Parts.stopping` is set before the broker is ready."""
        parts = self._parts
        groups, transactions, shares = self.groups, self.transactions, self.shares
        async with running(
            self._channels.run, groups.run, transactions.markers.run, transactions.run, self._flusher.run,
            self._maintenance.run, self._compactor.run,
            partial(self._replication.run, self.partitions), self._directory_reporter.run, self._mover.run,
            shares.coordinator.run, shares.partitions.run, self._checker.run, self._links.run, self.monitor.run,
            *(() if self._tiered is None else (self._tiered.run,)),
        ):  # fmt: skip
            await in_slices(self.partitions.discover())
            role_listeners = (
                GroupCoordinatorListener(groups),
                TransactionCoordinatorListener(transactions),
                ShareGroupListener(shares),
                self._links,
                *(() if self._tiered is None else (self._tiered,)),
            )
            for listener in role_listeners:
                self.partitions.add_listener(listener)
            # Partitions take their roles from an image with this registration. An older image has the roles of the
            # previous process, whose logs may have been longer (Kafka's initialCatchUpFuture).
            await unless(parts.stopping, self._check_may_join())
            await unless(parts.stopping, self._lifecycle.register())
            await unless(parts.stopping, _caught_up(parts.publisher, self.broker_epoch))
            if not parts.config["barnabas.accept.empty.metadata"]:
                self.partitions.check_metadata(parts.image)
            opening = open_found_logs(self.partitions.replica_directories, parts.image, parts.node_id, parts.log_config)
            await unless(parts.stopping, opening)
            self._images = ImageSlices(
                self.partitions,
                (
                    self._directory_reporter, self._replication, self._mover, *role_listeners,
                    self.metadata, self._producer_ids, self.broker_config, self.quotas, self._client_metrics,
                    self._connection_limits,
                    self._listeners, self._lifecycle,
                ),
                lambda: parts.image,
            )  # fmt: skip
            async with running(self._images.run):
                parts.publisher.subscribe(self._images)
                await unless(parts.stopping, self._images.settled())
                self.are_logs_open = True
                async with running(self._lifecycle.run):
                    await self._serve_clients(on_ready)

    async def _check_may_join(self) -> None:
        parts = self._parts
        await check_may_join(self._peers, parts.image, parts.node_id, has_store=self._tiered is not None)

    async def _serve_clients(self, on_ready: Callable[[], None]) -> None:
        """Listen for clients after this broker is unfenced.

        Until then connections are refused, and clients retry or use another broker. An earlier Metadata response would
        not contain this broker, and in a cluster of one node no broker at all. Listeners in `early.start.listeners` do
        not wait.
        """
        parts, listeners, build = self._parts, self._listeners, self._listener_builder()
        async with asyncio.TaskGroup() as tasks:
            try:
                await listeners.open(build, tasks, early=True)
                await unless(parts.stopping, self._lifecycle.wait_unfenced())
                await listeners.open(build, tasks, early=False)
                listeners.follow_configs()
                on_ready()
                await parts.stopping.wait()
                await self._controlled_shutdown()
            finally:
                listeners.stop()

    async def _controlled_shutdown(self) -> None:
        """Perform a controlled shutdown if the cluster has other brokers, for as long as a controller may grant it."""
        parts = self._parts
        if all(broker.broker_id == parts.node_id for broker in parts.image.brokers):
            return
        shutdown = asyncio.ensure_future(self._lifecycle.shut_down())
        loop = asyncio.get_running_loop()
        patience = ShutdownPatience(loop.time())
        try:
            while True:
                await asyncio.wait((shutdown,), timeout=_CHECK_INTERVAL_S)
                if shutdown.done():
                    return
                may_run = await majority_may_run(parts.metadata.voter_set, parts.node_id)
                reason = patience.reason_to_stop(loop.time(), self._lifecycle.answered_at, majority_may_run=may_run)
                if reason is not None:
                    log.warning("controlled shutdown ends early: this broker stops without handing over", reason=reason)
                    return
                if patience.is_report_due(loop.time()):
                    leaderships = sum(partition.is_leader for partition in self.partitions)
                    log.warning(
                        "controlled shutdown: waiting for the controller",
                        controller=parts.metadata.leader_id,
                        leaderships=leaderships,
                        until="this broker's leaderships have moved"
                        if leaderships
                        else "the other brokers have read the metadata with the new leaders",
                    )
        finally:
            shutdown.cancel()

    def _on_epoch(self, broker_epoch: int) -> None:
        self._producer_ids.broker_epoch = broker_epoch

    def _on_silence(self, silent: bool) -> None:
        """No controller answers, or one answers again (`BrokerLifecycle`)."""
        half_ms = self._parts.config["broker.session.timeout.ms"] // 2
        self._replication.context.silence_max_ms = half_ms if silent else None
        if silent:
            for partition in self.partitions:
                partition.release_clients()

    def on_directory_failed(self, directory: LogDir, error: BaseException) -> None:
        self.partitions.on_directory_failed(directory, error)
        self._lifecycle.on_directory_failed()

    def close(self) -> None:
        """Close the partitions and write the high watermarks. `Node` closes the directories."""
        self.partitions.close()
        with contextlib.suppress(StorageError):
            self.partitions.checkpoint_high_watermarks()

    # ---- construction

    def _build_group_coordinator(self) -> GroupCoordinator:
        parts, config = self._parts, self._parts.config
        codec = CompressionType(config["offsets.topic.compression.codec"])
        return GroupCoordinator(
            GROUP_COORDINATOR.build(config.__getitem__),
            ReplicatedWriter(self.partitions, parts.disk, codec),
            ImageCatalog(parts.image),
            parts.clock,
            parts.rng,
            ImageGroupConfigs(lambda: parts.image, parts.config_view),
        )

    def _build_shares(self) -> Shares:
        parts, config = self._parts, self._parts.config
        codec = CompressionType(config["share.coordinator.state.topic.compression.codec"])
        return build_shares(
            config, self._channels, self.groups, ReplicatedWriter(self.partitions, parts.disk, codec),
            ShareGroupConfigs(lambda: parts.image, parts.config_view), parts.image, parts.clock, parts.rng,
        )  # fmt: skip

    def _build_ports(self) -> Mapping[str, Any]:
        """What each folder of handlers uses of this broker."""
        parts, budget, static = self._parts, self._budget, self._parts.config.given
        maintenance = OnDemandMaintenance(self.partitions, self._maintenance, self._compactor, parts.clock)
        verifier = TransactionVerifier(self._channels.transactions)
        config, creation, metadata = self.broker_config, self.topic_creation, self.metadata
        return {
            "admin": AdminPort(
                parts.node_id, BROKER_APIS, metadata, self.controller, parts.metadata, static, parts.authorizer,
                self._listeners,
            ),
            "cluster": ClusterPort(
                parts.node_id, parts.rng, metadata, config, creation, self.partitions, self._mover
            ),
            "data": DataPort(
                parts.clock, metadata, self.partitions, config, self.fetch_sessions, self._checker, self.quotas,
                self._producer_ids, self.transactions, verifier, self._flusher, parts.disk, lambda: budget.unsent,
            ),
            "groups": GroupsPort(self.groups, self.shares.groups, metadata, creation),
            "links": self._links.requests,
            "maintenance": MaintenancePort(
                parts.node_id, metadata, maintenance, self.transactions, self.groups, self._clients, parts.disk
            ),
            "security": SecurityPort(metadata, self.controller, static),
            "shares": SharesPort(self.shares, self.partitions, metadata, config, parts.disk),
            "telemetry": TelemetryPort(self._client_metrics, config, parts.disk),
            "transactions": TransactionsPort(
                self.transactions, verifier, self.groups, self.partitions, metadata, config, creation
            ),
        }  # fmt: skip

    def _build_checker(self) -> BatchChecker:
        """Batches of many records are checked in a process of its own; in a simulation, in a thread."""
        return BatchChecker(CheckProcess() if isinstance(self._parts.fs, OsFileSystem) else None)

    def _build_quotas(self) -> ClientQuotas:
        parts = self._parts
        windows = QuotaWindows(parts.config["quota.window.num"], parts.config["quota.window.size.seconds"])
        quotas = ClientQuotas(
            build_limits(parts.config.given), windows, parts.clock, lambda: asyncio.get_running_loop().time()
        )
        quotas.add_metrics(parts.metrics)
        return quotas

    def _build_client_metrics(self) -> ClientMetrics:
        parts = self._parts
        client_metrics = ClientMetrics(parts.clock, parts.rng)
        client_metrics.add_metrics(parts.metrics)
        return client_metrics

    def _build_compactor(self) -> Compactor:
        """The cleaner runs in processes of its own on a real file system, in threads on a simulated one."""
        parts = self._parts
        real = isinstance(parts.fs, OsFileSystem)
        return Compactor(
            self.partitions,
            lambda: build_cleaner_config(parts.config_view(parts.image)),
            ProcessEngine if real else lambda: InlineEngine(parts.fs),
            parts.cleaners,
            parts.clock,
            parts.rng,
            parts.metrics,
        )

    def _listener_builder(self) -> BuildListener:
        parts = self._parts
        # Share sessions end with their connection (KIP-932).
        served = ServedApis(BROKER_APIS, self._ports, parts.clock, parts.authorizer, self.shares.on_disconnect)
        dispatcher = Dispatcher(
            served, parts.metrics, asyncio.get_running_loop().time, parts.watch, parts.codecs, self.quotas
        )
        dispatcher.warm_up(*_WARM_UP_APIS)
        limits = build_transport_config(parts.config)
        quotas, budget, turns = self._connection_quotas, self._budget, TurnTaking()
        measure_request_memory(parts.metrics, budget)
        return lambda port, security: Listener(
            port.endpoint, dispatcher, limits, parts.metrics, quotas=quotas, budget=budget, turns=turns,
            clients=self._clients, sock=port.sock, security=security, principals=parts.principals,
        )  # fmt: skip


async def _caught_up(publisher: Publisher, offset: int) -> None:
    """Wait until the newest image contains the record at `offset`."""
    waiting = _OffsetWaiter(offset)
    publisher.subscribe(waiting)
    try:
        if publisher.image.offset < offset:
            await waiting.reached.wait()
    finally:
        publisher.unsubscribe(waiting)


class _OffsetWaiter:
    """An image subscriber that sets `reached` when an image contains the record at `offset`."""

    def __init__(self, offset: int) -> None:
        self.reached = asyncio.Event()
        self._offset = offset

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        if image.offset >= self._offset:
            self.reached.set()


class LiveBrokerConfig:
    """The configs that handlers read. An image subscriber, which follows changes of dynamic configs."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.current = build_broker_config(parts.config_view(parts.image))

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        if delta.configs:
            self.current = build_broker_config(self._parts.config_view(image))
