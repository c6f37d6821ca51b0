"""Shell: one node: builds all objects, starts them in order, and stops them in the reverse order.

ports bound -> cluster id known -> directories locked -> metadata log read -> leader known -> committed records read
            -> broker: logs, coordinators, registration, listeners (`broker_role`) -> ready

A controller's listeners (`controller_role`) are open from the start, because other controllers need them to start.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from barnabas.core.clock import Clock, SystemClock
from barnabas.core.objects.ports import ObjectStore
from barnabas.core.rng import Rng, secure_rng, system_rng
from barnabas.core.telemetry import Metrics, get_logger
from barnabas.core.telemetry.loop_watch import LoopWatch
from barnabas.core.telemetry.table import NameFamily
from barnabas.protocol.security.principal_builder import build_principal_builder
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.protocol.transport.listener import bound_socket
from barnabas.protocol.transport.node_client import NodeClient
from barnabas.server.broker.authorization.loading import build_authorizer
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.loader import Loader
from barnabas.server.metadata.publish import Publisher
from barnabas.server.metadata.snapshot import image_records
from barnabas.server.node.broker_role import BrokerRole
from barnabas.server.node.collectors import monitor_cluster, monitor_process, node_labels
from barnabas.server.node.config import NodeConfig
from barnabas.server.node.controller_role import ControllerListeners, ControllerRole
from barnabas.server.node.health import Health, NodeState, judge_health
from barnabas.server.node.loop_watchdog import LoopWatchdog
from barnabas.server.node.parts import Parts
from barnabas.server.node.quorum_watch import QuorumWatch, describe_contacts
from barnabas.server.node.running import StoppedError, running, unless
from barnabas.server.node.setup.descriptors import measure_descriptors
from barnabas.server.node.setup.identity import find_identity, new_cluster_id
from barnabas.server.node.setup.log_dirs import close_log_dirs, full_directories, metadata_dir, open_log_dirs
from barnabas.server.node.setup.ports_taken import TakenPort, release_ports, take_ports
from barnabas.server.node.setup.security import NodeSecurity, SecurityBuilder
from barnabas.server.node.setup.topology import Address
from barnabas.server.node.typed_configs import build_quorum_config
from barnabas.server.peers.controller import ActiveController
from barnabas.server.quorum.majority import majority_may_run
from barnabas.server.quorum.metadata_log import RaftMetadataLog
from barnabas.server.raft.machine.values import ReplicaKey
from barnabas.server.storage.descriptors import RESERVE, descriptor_limit, divide_descriptors
from barnabas.server.storage.directory.log_dir import LogDir
from barnabas.server.storage.errors import StorageError
from barnabas.server.storage.fs import FileSystem, OsFileSystem
from barnabas.server.storage.segments.open_segments import OpenSegments

if TYPE_CHECKING:
    from barnabas.server.node.metrics_pages import MetricsPages
    from barnabas.server.node.otlp_push import OtlpPush
    from barnabas.server.quorum.zookeeper.metadata_log import ZooKeeperMetadataLog

log = get_logger("barnabas.server.node")

_DISK_THREADS: Final = 4
_CLEANER_THREADS: Final = 8
"""The limit for concurrent cleaner passes, even if log.cleaner.threads is larger. The threads wait for processes."""
_SNAPSHOT_CHECK_S: Final = 10.0
_SIMULATED_DESCRIPTORS: Final = 20_000


class Node:
    """Broker, controller, or both in one process. `run` serves until `stop`, and then shuts down cleanly."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        rng: Rng | None = None,
        cluster_id: str | None = None,
        listen: Callable[[ListenerEndpoint], socket.socket] = bound_socket,
        metrics_url: str | None = None,
        objects: ObjectStore | None = None,
    ) -> None:
        """`objects` replaces the object store of the configs."""
        self.config = config
        self._objects = objects
        self.metrics = Metrics()
        self.endpoints: tuple[ListenerEndpoint, ...] = ()
        """The advertised listeners: for clients, or of the controller if the node is not a broker. Empty until
        ready."""
        self.pages: MetricsPages | None = None
        """The pages at `metrics_url`: metrics and health."""
        self._push: OtlpPush | None = None
        self.parts: Parts | None = None
        """For inspection by tests; set when the directories are open."""
        self.broker: BrokerRole | None = None
        self.controller: ControllerRole | None = None
        self._metrics_url = metrics_url
        self._fs = fs or OsFileSystem()
        self._shares = divide_descriptors(descriptor_limit() if fs is None else _SIMULATED_DESCRIPTORS)
        self.open_segments = OpenSegments(self._shares.segments)
        """The log segments with an open file, of all data directories."""
        self._clock = clock or SystemClock()
        self._rng = rng or system_rng()
        self._nonces = secure_rng() if isinstance(self._clock, SystemClock) else self._rng
        """The source of nonces and salts; unpredictable, but in a simulation."""
        self._watch = LoopWatch(self.metrics, self._clock.monotonic, config["barnabas.event.loop.held.warn.ms"])
        self._listen_at = listen
        self._stopping = asyncio.Event()
        self._disk = ThreadPoolExecutor(_DISK_THREADS, thread_name_prefix="barnabas-disk")
        self._codecs = ThreadPoolExecutor(1, thread_name_prefix="barnabas-codec")
        self._cleaners = ThreadPoolExecutor(_CLEANER_THREADS, thread_name_prefix="barnabas-cleaner")
        self.identity = find_identity(self._fs, config, self._rng, cluster_id)
        self._authorizer = build_authorizer(config.given, self.metrics)
        self._principals = build_principal_builder(config.given)
        self._dirs: list[LogDir] = []
        self._missing_dirs: list[str] = []
        self._all_directories_offline = asyncio.Event()
        self._zookeeper: ZooKeeperMetadataLog | None = None
        self._quorum_watch: QuorumWatch | None = None
        self._security = NodeSecurity()
        monitor_process(self.metrics, self._labels, self.health)
        self._builder = SecurityBuilder(
            self._clock, self._nonces, lambda: None if self.parts is None else self.parts.image
        )

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every advertised listener."""
        return ",".join(f"{endpoint.host}:{endpoint.port}" for endpoint in self.endpoints)

    def health(self) -> Health:
        """The state of this node, for the health pages. Must be called on the node's event loop."""
        watch, broker = self._quorum_watch, self.broker
        session_s = self.config["broker.session.timeout.ms"] / 1000
        without_controller_s = 0.0 if watch is None else watch.leaderless_s
        if broker is not None:
            without_controller_s = max(without_controller_s, broker.unanswered_s)
        return judge_health(
            NodeState(
                is_started=bool(self.endpoints),
                is_stopping=self._stopping.is_set(),
                is_broker=self.config.topology.is_broker,
                is_fenced=broker is not None and broker.is_fenced,
                are_logs_open=broker is not None and broker.are_logs_open,
                without_controller_s=without_controller_s,
                session_s=session_s,
                waits_for="" if watch is None or not watch.leaderless_s else watch.contacts(),
                offline=[
                    *(f"{path} could not be opened when the node started." for path in self._missing_dirs),
                    *(f"{home.path} is offline: {home.failure}" for home in self._dirs if home.failure is not None),
                ],
                full=full_directories(self._dirs),
                directories=len(self.config.log_dirs),
            )
        )

    def _labels(self) -> Mapping[str, str]:
        return node_labels(self.config, self.identity)

    def stop(self) -> None:
        """Start a clean shutdown. Must be called on the node's event loop."""
        if not self._stopping.is_set():
            log.info("the node is stopping")
        self._stopping.set()

    async def run(self, on_ready: Callable[[Node], None] | None = None) -> None:
        """Start, serve until `stop`, and shut down cleanly.

        `on_ready` is called when the node is ready. Raises the error that prevents the start, for example a port in use
        or a locked directory.
        """
        config = self.config
        log.info("the node is starting", **self._labels(), data=",".join(config.log_dirs))
        self._security = self._builder.of_node(config)
        for keys in self._security.provider_keys:
            await keys.start()
        clients = take_ports(self._listen_at, config.listeners, config.advertised)
        controllers: list[TakenPort] = []
        clean = False
        has_descriptors = isinstance(self._fs, OsFileSystem)  # the files of a simulation have none
        if has_descriptors:
            RESERVE.hold(self._shares.reserve)
            measure_descriptors(self.metrics, self._shares, self.open_segments)
        try:
            controllers = take_ports(self._listen_at, config.controller_listeners, config.controller_advertised)
            self._open_pages()
            await self._serve(clients, controllers, on_ready)
            clean = True
        except* StoppedError:
            clean = True
        finally:
            release_ports([*clients, *controllers])
            if self.pages is not None:
                self.pages.close()
            self._close(clean=clean)
            self._disk.shutdown(wait=True)
            self._cleaners.shutdown(wait=True)
            self._codecs.shutdown(wait=True)
            if has_descriptors:
                RESERVE.release(self._shares.reserve)
            log.info("the node has stopped", clean=clean)

    # ---- start

    async def _serve(
        self, clients: list[TakenPort], controllers: list[TakenPort], on_ready: Callable[[Node], None] | None
    ) -> None:
        """Run the node in nested blocks: connections and controller listeners; the metadata log; the broker."""
        security, client_id = self._security, f"node-{self.identity.node_id}"
        outgoing = to_brokers = NodeClient(client_id, self._nonces, security.to_controllers)
        if self.config.topology.is_broker and security.to_brokers != security.to_controllers:
            to_brokers = NodeClient(client_id, self._nonces, security.to_brokers)
        peers = () if to_brokers is outgoing else (to_brokers.run,)
        controller_listeners = ControllerListeners(self.config, controllers, self.metrics, security, self._principals)
        pages = () if self.pages is None else (self.pages.run,)
        pushes = () if self._push is None else (self._push.run,)
        # In a simulated world the clock stands still while code runs.
        watchdog = (LoopWatchdog(self._watch).run,) if isinstance(self._clock, SystemClock) else ()
        async with running(
            outgoing.run,
            *peers,
            controller_listeners.run,
            self._fail_without_directories,
            *watchdog,
            *pages,
            *pushes,
            *(keys.run for keys in security.provider_keys),
        ):
            zookeeper = await self._join_zookeeper(clients, controllers)
            if zookeeper is None:
                await self._find_cluster_id(outgoing)
            self._dirs, self._missing_dirs = open_log_dirs(
                self._fs, self.config, self.identity, self._rng, self._on_directory_failed, self.open_segments
            )
            metadata_log = zookeeper or self._open_raft(outgoing, controllers)
            parts = self.parts = self._build_parts(outgoing, to_brokers, metadata_log)
            loader = Loader(parts.publisher)
            if parts.authorizer is not None:
                parts.publisher.subscribe(parts.authorizer)
            metadata = parts.metadata
            metadata.register(loader)
            controller = None
            if self.config.topology.is_controller:
                controller = self.controller = ControllerRole(parts, metadata_dir(self.config, self._dirs).path)
                metadata.register(controller.service)
            await unless(self._stopping, metadata.find_quorum())
            metadata.open()
            if controller is not None:
                controller_listeners.start_serving(parts, controller.served)
            mains = () if controller is None else (controller.service.run,)
            same_cluster = () if zookeeper is not None else (lambda: self._check_cluster_id(outgoing),)
            watch = self._quorum_watch = QuorumWatch(
                lambda: metadata.responsive_leader_id, lambda: describe_contacts(metadata)
            )
            monitor_cluster(parts, lambda: controller is not None and controller.service.active,
                            lambda: watch.leaderless_s)  # fmt: skip
            async with running(
                metadata.run, self._quorum_watch.run, *mains, *same_cluster, lambda: self._snapshots(parts, loader)
            ):
                await unless(self._stopping, metadata.wait_caught_up())
                if parts.authorizer is not None:
                    parts.authorizer.on_caught_up()
                channel = ActiveController(
                    metadata, outgoing, parts.publisher, node_id=parts.node_id, rng=self._rng,
                    images_applied=self._images_applied,
                    local=None if controller is None else controller.service,
                    forwarded=None if controller is None else controller.forwarded,
                    heartbeat_timeout_ms=parts.config["broker.session.timeout.ms"] // 2,
                )  # fmt: skip

                def ready() -> None:
                    self.endpoints = tuple(port.advertised for port in clients or controllers)
                    log.info("the node has started", listeners=",".join(map(str, self.endpoints)))
                    if on_ready is not None:
                        on_ready(self)

                registration = () if controller is None else controller.registration(channel, controllers)
                async with running(*registration):
                    if self.config.topology.is_broker:
                        self.broker = BrokerRole(parts, channel, clients)
                        await self.broker.serve(ready)
                    else:
                        ready()
                        await self._stopping.wait()
                await metadata.resign()

    async def _images_applied(self) -> None:
        """Return when the broker of this node, if there is one, has applied all images."""
        if self.broker is not None:
            await self.broker.images_applied()

    async def _find_cluster_id(self, outgoing: NodeClient) -> None:
        """Request the cluster id from the other controllers, if this is a new node of a cluster with several nodes."""
        if self.identity.cluster_id:
            return
        from barnabas.server.node.setup.cluster_id import agree_on_cluster_id, ask_over

        topology = self.config.topology
        if topology.voters:
            founder = self.identity.node_id == topology.voters[0][0]
        else:
            founder = topology.is_controller and topology.bootstrap[0] in self._own_addresses()
        found = await unless(
            self._stopping,
            agree_on_cluster_id(
                self._other_controllers(), founder=founder, new_id=lambda: new_cluster_id(self._rng),
                ask=ask_over(outgoing),
            ),
        )  # fmt: skip
        self.identity = replace(self.identity, cluster_id=found)

    async def _check_cluster_id(self, outgoing: NodeClient) -> None:
        """Raises ClusterIdError if the configured controllers have another cluster id than this node's directories."""
        others = self._other_controllers()
        if others:
            from barnabas.server.node.setup.cluster_id import ask_over, confirm_cluster_id

            await confirm_cluster_id(self.identity.cluster_id, others, ask=ask_over(outgoing))

    def _other_controllers(self) -> list[Address]:
        topology = self.config.topology
        if topology.voters:
            return [address for voter, address in topology.voters if voter != self.identity.node_id]
        return [address for address in topology.bootstrap if address not in self._own_addresses()]

    def _own_addresses(self) -> set[Address]:
        return {(endpoint.host, endpoint.port) for endpoint in self.config.controller_advertised}

    async def _join_zookeeper(
        self, clients: Sequence[TakenPort], controllers: Sequence[TakenPort]
    ) -> ZooKeeperMetadataLog | None:
        """If zookeeper.connect is set, connect to ZooKeeper and take the cluster id from it; otherwise return None."""
        if not self.config.topology.zookeeper:
            return None
        from barnabas.server.node.setup.zookeeper import join

        advertised = [port.advertised for port in clients], [port.advertised for port in controllers]
        joining = join(self.config, self.identity, *advertised, self._clock, self._rng)
        self._zookeeper, self.identity = await unless(self._stopping, joining)
        return self._zookeeper

    def _open_raft(self, outgoing: NodeClient, controllers: Sequence[TakenPort]) -> RaftMetadataLog:
        home = metadata_dir(self.config, self._dirs)
        return RaftMetadataLog(
            self._fs,
            home.path,
            ReplicaKey(self.identity.node_id, home.directory_id),
            build_quorum_config(self.config, self.identity, [port.advertised for port in controllers]),
            clock=self._clock,
            rng=self._rng,
            executor=self._disk,
            sender=outgoing,
            clean_shutdown=home.clean_shutdown,
            majority_may_run=majority_may_run,
        )

    def _build_parts(
        self, outgoing: NodeClient, to_brokers: NodeClient, metadata: RaftMetadataLog | ZooKeeperMetadataLog
    ) -> Parts:
        identity = self.identity
        return Parts(
            config=self.config,
            identity=identity,
            fs=self._fs,
            clock=self._clock,
            rng=self._rng,
            nonces=self._nonces,
            metrics=self.metrics,
            watch=self._watch,
            disk=self._disk,
            cleaners=self._cleaners,
            codecs=self._codecs,
            dirs=self._dirs,
            missing_dirs=self._missing_dirs,
            outgoing=outgoing,
            to_brokers=to_brokers,
            security=self._security,
            metadata=metadata,
            descriptors=self._shares,
            listen_at=self._listen_at,
            build_security=self._builder.of_listener,
            publisher=Publisher(ClusterImage(cluster_id=identity.cluster_id)),
            objects=self._objects,
            authorizer=self._authorizer,
            principals=self._principals,
            stopping=self._stopping,
        )

    def _open_pages(self) -> None:
        if self._metrics_url is not None:
            from barnabas.server.node.metrics_pages import MetricsPages

            names = NameFamily(self.config["barnabas.metrics.names"])
            self.pages = MetricsPages(
                self._metrics_url, self.metrics, self.health, about=self._labels, names=names, configs=self.config.given
            )

        if self.config["barnabas.metrics.otlp.endpoint"] is not None:
            from barnabas.server.node.otlp_push import OtlpPush

            self._push = OtlpPush(self.config, self.metrics, self._labels)

    # ---- snapshots, failures and shutdown

    async def _snapshots(self, parts: Parts, loader: Loader) -> None:
        """Write a snapshot after each `metadata.log.max.record.bytes.between.snapshots` bytes, so that a restart is
        fast."""
        limit = self.config["metadata.log.max.record.bytes.between.snapshots"]
        while True:
            await asyncio.sleep(_SNAPSHOT_CHECK_S)
            if loader.bytes_since_snapshot < limit:
                continue
            image = parts.image
            try:
                await parts.metadata.write_snapshot(
                    image.offset + 1, image.leader_epoch, image.provenance.timestamp_ms, image_records(image)
                )
                loader.bytes_since_snapshot = 0
            except StorageError as error:
                log.error("metadata snapshot failed; retrying", reason=str(error))

    def _on_directory_failed(self, directory: LogDir, error: BaseException) -> None:
        if self.broker is not None:
            self.broker.on_directory_failed(directory, error)
        if all(home.failure is not None for home in self._dirs):
            self._all_directories_offline.set()

    async def _fail_without_directories(self) -> None:
        """Raises StorageError if all directories are offline, because a broker without storage must stop."""
        await self._all_directories_offline.wait()
        reasons = "; ".join(f"{home.path}: {home.failure}" for home in self._dirs)
        raise StorageError(f"All data directories are offline: {reasons}")

    def _close(self, *, clean: bool) -> None:
        """Close the log directories. After a clean close, the next start does not recover every log.

        Before its registration a broker has written no records: a start that fails leaves the logs as clean as it found
        them, and no leader is elected uncleanly for it."""
        clean = clean or self.broker is None or self.broker.broker_epoch < 0
        if self.broker is not None:
            self.broker.close()
        if self.parts is None and self._zookeeper is not None:
            self._zookeeper.close(clean=False)
        if self.parts is not None:
            try:
                self.parts.metadata.close(clean=clean)
            except StorageError as error:
                clean = False
                log.error("the metadata log could not be closed cleanly", reason=str(error))
        close_log_dirs(self._dirs, clean=clean, broker_epoch=-1 if self.broker is None else self.broker.broker_epoch)
