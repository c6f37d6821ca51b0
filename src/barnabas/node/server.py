"""Shell: one node: everything plugged together, started in the right order, stopped in the reverse one.

ports taken -> directories locked -> metadata log read -> cluster founded, if new -> logs opened
-> coordinators -> broker registered and unfenced -> listeners accept -> ready
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.dispatch import Dispatcher
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.broker.producer_ids import ProducerIds
from barnabas.broker.services import Services
from barnabas.broker.verification import TransactionGate
from barnabas.coordination.group.service import GroupCoordinator
from barnabas.coordination.transaction.service import TransactionCoordinator
from barnabas.core.clock import Clock, SystemClock
from barnabas.core.rng import Rng, random_uuid, system_rng
from barnabas.metadata.config_view import ConfigView
from barnabas.metadata.controller.controller import Controller
from barnabas.metadata.delta import ClusterDelta
from barnabas.metadata.driver import ControllerDriver
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.loader import Loader
from barnabas.metadata.publish import Publisher
from barnabas.metadata.snapshot import image_records
from barnabas.net.endpoint import Endpoint
from barnabas.net.limits import ConnectionQuota, RequestBudget
from barnabas.net.listener import Listener, listening_socket
from barnabas.net.outgoing import Outgoing
from barnabas.node.adapters import (
    BrokerHandler,
    GroupFeed,
    ImageCatalog,
    ImageGroupConfigs,
    LocalController,
    ReplicatedWriter,
    TransactionFeed,
)
from barnabas.node.config import NodeConfig
from barnabas.node.coordination_channels import CoordinationChannels
from barnabas.node.founding import found_cluster, register_broker
from barnabas.node.identity import find_identity
from barnabas.node.neighbours import NoPeers
from barnabas.node.quorum.metadata_log import QuorumOptions, RaftMetadataLog
from barnabas.node.settings import (
    broker_settings,
    cleaner_settings,
    controller_settings,
    group_config,
    net_limits,
    transaction_config,
    upkeep_intervals,
)
from barnabas.node.shares import GroupShareSettings, ShareFeed, build_shares
from barnabas.raft.machine.values import ReplicaKey
from barnabas.replication.cleaner_engine import InlineEngine, ProcessEngine
from barnabas.replication.compaction import Compactor
from barnabas.replication.flushing import Flusher
from barnabas.replication.on_request import OnRequest
from barnabas.replication.partitions import Partitions
from barnabas.replication.upkeep import Upkeep
from barnabas.storage.errors import LogDirError, StorageError
from barnabas.storage.fs import FileSystem, OsFileSystem
from barnabas.storage.log_dir import LogDir
from barnabas.telemetry import Metrics, get_logger
from barnabas.wire.apis import ApiKey

if TYPE_CHECKING:
    from barnabas.node.metrics_pages import MetricsPages

log = get_logger("barnabas.node")

_HOT: Final = (ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.FETCH)
_DISK_THREADS: Final = 4
_CLEANER_THREADS: Final = 8
"""At most so many passes at a time, whatever log.cleaner.threads says; the threads only wait for the cleaners."""
_SNAPSHOT_CHECK_S: Final = 10.0


class Node:
    """Broker and controller in one process. `run` it; `stop` lets `run` return after a clean shutdown."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        rng: Rng | None = None,
        cluster_id: str | None = None,
        listen: Callable[[Endpoint], socket.socket] = listening_socket,
        metrics_url: str | None = None,
    ) -> None:
        self.config = config
        self.metrics = Metrics()
        self.endpoints: tuple[Endpoint, ...] = ()
        """What clients are told, ports filled in; empty until the node is ready."""
        self.pages: MetricsPages | None = None
        """Where `metrics_url` says, the metrics and the health."""
        self._metrics_url = metrics_url
        self._fs = fs or OsFileSystem()
        self._clock = clock or SystemClock()
        self._rng = rng or system_rng()
        self._listen_at = listen
        self._stopping = asyncio.Event()
        self._disk = ThreadPoolExecutor(_DISK_THREADS, thread_name_prefix="barnabas-disk")
        self._cleaners = ThreadPoolExecutor(_CLEANER_THREADS, thread_name_prefix="barnabas-cleaner")
        self.identity = find_identity(self._fs, config, self._rng, cluster_id)
        self._dirs: list[LogDir] = []
        self._partitions: Partitions | None = None
        self._metadata: RaftMetadataLog | None = None
        self._broker_epoch = -1

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every advertised listener."""
        return ",".join(f"{endpoint.host}:{endpoint.port}" for endpoint in self.endpoints)

    def trouble(self) -> list[str]:
        """What keeps this node from serving all that it should, in sentences; empty when it is well."""
        found = [] if self.endpoints else ["The node is starting."]
        return found + [f"{home.path} is offline: {home.failure}" for home in self._dirs if home.failure is not None]

    def stop(self) -> None:
        """Ask for a clean shutdown. Call it on the node's own loop."""
        self._stopping.set()

    async def run(self, on_ready: Callable[[Node], None] | None = None) -> None:
        """Start, serve until `stop`, shut down cleanly. Raises what prevents the start (a port in use, a locked
        directory).
        """
        sockets = self._bind()
        clean = False
        try:
            self._open_pages()
            self._open_dirs()
            await self._live(sockets, on_ready)
            clean = True
        finally:
            for _, sock in sockets:
                sock.close()
            if self.pages is not None:
                self.pages.close()
            self._close(clean=clean)
            self._disk.shutdown(wait=True)
            self._cleaners.shutdown(wait=True)

    # ---- start

    def _bind(self) -> list[tuple[Endpoint, socket.socket]]:
        """Take the ports before anything is written: a port in use is the most common reason not to start."""
        bound: list[tuple[Endpoint, socket.socket]] = []
        try:
            for endpoint in self.config.listeners:
                sock = self._listen_at(endpoint)
                bound.append((endpoint.with_port(sock.getsockname()[1]), sock))
        except OSError:
            for _, sock in bound:
                sock.close()
            raise
        return bound

    def _open_pages(self) -> None:
        if self._metrics_url is not None:
            from barnabas.node.metrics_pages import MetricsPages

            self.pages = MetricsPages(self._metrics_url, self)

    def _open_dirs(self) -> None:
        failures: list[str] = []
        for path in self.config.log_dirs:
            try:
                self._fs.mkdir(path)
                self._dirs.append(
                    LogDir.open(
                        self._fs,
                        path,
                        cluster_id=self.identity.cluster_id,
                        node_id=self.identity.node_id,
                        new_directory_id=random_uuid(self._rng),
                        on_failure=self._on_directory_failed,
                    )
                )
                self._dirs[-1].producer_expiration_ms = self.config["producer.id.expiration.ms"]
            except LogDirError:
                raise
            except StorageError as error:
                log.error("log directory is offline from the start", path=path, reason=str(error))
                failures.append(f"{path}: {error}")
        if not self._dirs:
            raise StorageError("No data directory can be used. " + "; ".join(failures))

    def _metadata_dir(self) -> LogDir:
        wanted = str(self.config["metadata.log.dir"] or self.config.log_dirs[0])
        for directory in self._dirs:
            if directory.path == wanted:
                return directory
        raise StorageError(f"The directory of the metadata log, {wanted}, must be one of log.dirs, and be online.")

    async def _live(
        self, sockets: list[tuple[Endpoint, socket.socket]], on_ready: Callable[[Node], None] | None
    ) -> None:
        """From an open disk to `stop`, in three nested lives: the metadata log's, the coordinators', the listeners'."""
        home = self._metadata_dir()
        outgoing = Outgoing(f"node-{self.identity.node_id}")
        metadata = self._metadata = RaftMetadataLog(
            self._fs,
            home.path,
            ReplicaKey(self.identity.node_id, home.directory_id),
            QuorumOptions(cluster_id=self.identity.cluster_id, fsync=self.config.metadata_fsync),
            clock=self._clock,
            rng=self._rng,
            executor=self._disk,
            sender=outgoing,
            clean_shutdown=home.clean_shutdown,
        )
        publisher = Publisher(ClusterImage(cluster_id=self.identity.cluster_id))
        loader = Loader(publisher)
        metadata.register(loader)
        metadata.open()
        controller = Controller(controller_settings(self.config, self.identity.node_id))
        driver = ControllerDriver(controller, metadata, lambda: publisher.image, clock=self._clock, rng=self._rng)
        async with _running(outgoing.run, metadata.run, lambda: self._snapshots(metadata, publisher, loader)):
            await metadata.wait_leader()
            if not publisher.image.features.metadata_version:  # new, or a first start that was cut short
                await found_cluster(metadata, self._fs, home.path)
            channels = CoordinationChannels(NoPeers())
            services, upkeep, compactor = self._assemble(publisher, LocalController(driver), metadata, channels)
            channels.connect(services)
            groups, transactions, shares = services.groups, services.transactions, services.shares
            async with _running(
                channels.run, groups.run, transactions.markers.run, transactions.run, services.flusher.run, upkeep.run,
                compactor.run, shares.coordinator.run, shares.partitions.run,
                *(() if self.pages is None else (self.pages.run,)),
            ):  # fmt: skip
                await asyncio.sleep(0)  # they own their tasks from their first step on
                services.partitions.discover()
                feeds = (GroupFeed(groups), TransactionFeed(transactions), ShareFeed(shares))
                for feed in feeds:
                    services.partitions.add_listener(feed)
                for subscriber in (services.partitions, *feeds, services.metadata, _SettingsFeed(self, services)):
                    publisher.subscribe(subscriber)
                self.endpoints = self._advertised(sockets)
                self._broker_epoch = services.producer_ids.broker_epoch = await register_broker(
                    driver, self.identity.node_id, self.identity.cluster_id, list(self.endpoints),
                    self.config["broker.rack"], self._dirs, self._rng,
                )  # fmt: skip
                await self._listen(sockets, services, on_ready)

    def _assemble(
        self,
        publisher: Publisher,
        controller: LocalController,
        metadata: RaftMetadataLog,
        channels: CoordinationChannels,
    ) -> tuple[Services, Upkeep, Compactor]:
        config, node_id = self.config, self.identity.node_id
        partitions = self._partitions = Partitions(node_id, self._dirs, self.topic_config, self._clock, self._rng)
        flusher = Flusher(self._disk)
        partitions.host.flush = flusher.request_all
        upkeep = Upkeep(partitions, flusher, self._disk, self._clock, upkeep_intervals(config))
        compactor = self._compactor(partitions, publisher)
        writer = ReplicatedWriter(partitions, self._disk)
        catalog = ImageCatalog(publisher.image)
        groups = GroupCoordinator(
            group_config(config),
            writer,
            catalog,
            self._clock,
            self._rng,
            ImageGroupConfigs(lambda: publisher.image),
        )
        producer_ids = ProducerIds(controller, node_id)
        settings = GroupShareSettings(lambda: publisher.image, self.config_view)
        services = Services(
            node_id=node_id,
            clock=self._clock,
            rng=self._rng,
            metadata=MetadataCache(),
            partitions=partitions,
            controller=controller,
            quorum=metadata,
            producer_ids=producer_ids,
            fetch_sessions=FetchSessions(config["max.incremental.fetch.session.cache.slots"], self._rng),
            groups=groups,
            transactions=TransactionCoordinator(
                transaction_config(config), writer, channels.markers, producer_ids.next, self._clock, self._rng
            ),
            gate=TransactionGate(channels.transactions),
            shares=build_shares(config, channels, groups, writer, settings, publisher.image, self._clock, self._rng),
            flusher=flusher,
            on_request=OnRequest(partitions, upkeep, compactor, self._clock),
            disk=self._disk,
            static_config=config.given,
            settings=broker_settings(self.config_view(publisher.image)),
        )
        return services, upkeep, compactor

    def _compactor(self, partitions: Partitions, publisher: Publisher) -> Compactor:
        """The cleaner works in processes of its own on a real disk, in a thread on any other."""
        real = isinstance(self._fs, OsFileSystem)
        return Compactor(
            partitions,
            lambda: cleaner_settings(self.config_view(publisher.image)),
            ProcessEngine if real else lambda: InlineEngine(self._fs),
            self._cleaners,
            self._clock,
            self._rng,
            self.metrics,
        )

    async def _listen(
        self,
        sockets: list[tuple[Endpoint, socket.socket]],
        services: Services,
        on_ready: Callable[[Node], None] | None,
    ) -> None:
        dispatcher = Dispatcher(services, self.metrics, asyncio.get_running_loop().time)
        dispatcher.warm_up(*_HOT)
        limits = net_limits(self.config)
        quota, budget = ConnectionQuota(limits), RequestBudget(limits)
        services.unsent_bytes = lambda: budget.unsent
        handler = BrokerHandler(dispatcher, services.shares.on_disconnect)
        listeners = [
            Listener(endpoint, handler, limits, self.metrics, quota=quota, budget=budget, sock=sock)
            for endpoint, sock in sockets
        ]
        for listener in listeners:
            await listener.bind()
        async with asyncio.TaskGroup() as tasks:
            for listener in listeners:
                tasks.create_task(listener.serve(), name=f"listener {listener.endpoint}")
            await asyncio.sleep(0)
            if on_ready is not None:
                on_ready(self)
            try:
                await self._stopping.wait()
            finally:
                for listener in listeners:
                    listener.stop()

    def _advertised(self, sockets: list[tuple[Endpoint, socket.socket]]) -> tuple[Endpoint, ...]:
        told: list[Endpoint] = []
        for advertised, (bound, _) in zip(self.config.advertised, sockets, strict=True):
            host = advertised.host if advertised.host not in ("", "0.0.0.0", "::") else socket.gethostname()
            port = advertised.port or bound.port
            told.append(Endpoint(advertised.name, host, port, advertised.security_protocol))
        return tuple(told)

    # ---- configuration

    def config_view(self, image: ClusterImage) -> ConfigView:
        return ConfigView(image.configs, node_id=self.identity.node_id, static=self.config.given)

    def topic_config(self, image: ClusterImage, topic: str) -> Mapping[str, Any]:
        """What `replication` configures logs with."""
        return self.config_view(image).topic(topic)

    # ---- failure and end

    def _on_directory_failed(self, directory: LogDir, error: BaseException) -> None:
        if self._partitions is not None:
            self._partitions.on_directory_failed(directory, error)

    async def _snapshots(self, metadata: RaftMetadataLog, publisher: Publisher, loader: Loader) -> None:
        """metadata.log.max.record.bytes.between.snapshots: bound what the next start has to replay."""
        limit = self.config["metadata.log.max.record.bytes.between.snapshots"]
        while True:
            await asyncio.sleep(_SNAPSHOT_CHECK_S)
            if loader.bytes_since_snapshot < limit:
                continue
            image = publisher.image
            try:
                await metadata.write_snapshot(
                    image.offset + 1, image.leader_epoch, image.provenance.timestamp_ms, image_records(image)
                )
                loader.bytes_since_snapshot = 0
            except StorageError as error:
                log.error("metadata snapshot failed; it will be tried again", reason=str(error))

    def _close(self, *, clean: bool) -> None:
        """Leave the disk so that the next start need not look at every log."""
        if self._partitions is not None:
            self._partitions.close()
            with contextlib.suppress(StorageError):
                self._partitions.checkpoint_high_watermarks()
        if self._metadata is not None:
            try:
                self._metadata.close(clean=clean)
            except StorageError as error:
                clean = False
                log.error("the metadata log could not be closed cleanly", reason=str(error))
        for directory in self._dirs:
            try:
                directory.close(clean=clean, broker_epoch=self._broker_epoch)
            except StorageError as error:
                log.error("log directory could not be closed cleanly", path=directory.path, reason=str(error))


class _SettingsFeed:
    """Keeps the handlers' settings in step with dynamic broker configs."""

    def __init__(self, node: Node, services: Services) -> None:
        self._node = node
        self._services = services

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        if delta.configs:
            self._services.settings = broker_settings(self._node.config_view(image))


@contextlib.asynccontextmanager
async def _running(*mains: Callable[[], Any]) -> AsyncIterator[None]:
    """Tasks that live exactly as long as the block; one that fails ends the block with its exception."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(main()) for main in mains]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
