"""Shell: a running Connect worker: its topics, its membership, its connectors, and its REST API.

server = ConnectServer(parse_worker_config(properties), runtime)
await server.run()            # until `stop`
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from barnabas.client.cluster.cluster import Cluster
from barnabas.client.offsets import list_offsets
from barnabas.client.options import ClusterConfig
from barnabas.client.single_writer.topic import TopicLog, TopicLogOptions
from barnabas.client.values import EARLIEST
from barnabas.core.config import ConfigError
from barnabas.core.errors import BarnabasError, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.core.telemetry import get_logger
from barnabas.protocol.transport.http.doors import require_login
from barnabas.protocol.transport.http.security import HttpSecurity
from barnabas.protocol.transport.http.server import HttpListenerError, http_api, parse_http_listener
from barnabas.protocol.transport.http.settings import HttpLoginConfig, HttpSecurityConfig
from barnabas.protocol.transport.http.users import UsersFile
from barnabas.spark.connectors.connect.cluster.membership import WorkerMembership
from barnabas.spark.connectors.connect.cluster.ports import ConnectorRuntime
from barnabas.spark.connectors.connect.cluster.records import ConfigRecords, ConnectRecord
from barnabas.spark.connectors.connect.cluster.status_topic import KafkaStatusLog
from barnabas.spark.connectors.connect.cluster.worker import ConnectStore, ConnectWorker
from barnabas.spark.connectors.connect.offsets.store import CheckpointStore
from barnabas.spark.connectors.connect.rest.app import ConnectApp
from barnabas.spark.connectors.connect.rest.basic_auth import REALM, REFUSAL, parse_rest_users, users_file
from barnabas.spark.connectors.connect.rest.calls import ConnectServices
from barnabas.spark.connectors.connect.rest.loggers import WorkerLoggers
from barnabas.spark.connectors.connect.worker_config import ConnectWorkerConfig, WorkerConfigError

log = get_logger("barnabas.connect")

DEFAULT_LISTENER: Final = "http://127.0.0.1:8083"
_POLL_INTERVAL_S: Final = 0.2


def _security(config: ConnectWorkerConfig) -> HttpSecurity:
    """The TLS and the users of the REST API. Raises WorkerConfigError if a file cannot be used."""
    login = users = None
    if config.has_basic_auth:
        login = HttpLoginConfig(REALM, frozenset(), None, REFUSAL)
        users = UsersFile(users_file(config.login_file), parse_rest_users)
    try:
        return HttpSecurity(HttpSecurityConfig(config.rest_tls, login), time.monotonic, users)
    except ConfigError as error:
        raise WorkerConfigError(f"the REST API cannot have TLS with listeners.https.*: {error}") from error


class ConnectServer:
    """One worker of a Connect cluster. All workers with one `group.id` share its connectors."""

    def __init__(self, config: ConnectWorkerConfig, runtime: ConnectorRuntime, *, insecure: bool = False) -> None:
        """Without `insecure`, a listener that other hosts reach needs a login. Raises OpenListenerError."""
        host, port = parse_http_listener(config.listener, example=DEFAULT_LISTENER, allows_tls=True)
        self._config = config
        self._runtime = runtime
        self._services: ConnectServices | None = None
        security = _security(config)
        remedy = "Set rest.extension.classes and java.security.auth.login.config (docs/CONNECT.md)"
        require_login("The worker's REST API", host, has_login=security.has_login, insecure=insecure, remedy=remedy)
        self._app = ConnectApp(lambda: self._services)
        self._http = http_api(host, port, self._app, security=security, names=[config.advertised_host])
        self._cluster = Cluster(ClusterConfig.of(config.client))
        options = TopicLogOptions(
            config.config_storage_topic,
            f"connect-cluster-{config.group_id}",
            config.config_storage_replication_factor,
        )
        self._config_log: TopicLog[ConnectRecord] = TopicLog(self._cluster, options, ConfigRecords())
        self._status_log = KafkaStatusLog(self._cluster, config)
        self._store = ConnectStore(self._config_log, self._status_log)
        self._loggers = WorkerLoggers()
        self._poll_now = asyncio.Event()
        self._stopping = asyncio.Event()

    @property
    def url(self) -> str:
        """The URL at which clients connect; the port is known when `run` calls `on_ready`."""
        return self._http.url

    @property
    def connectors(self) -> int:
        """The number of connectors of the cluster."""
        return len(self._store.state.connectors)

    def stop(self) -> None:
        """Make `run` stop the connectors of this worker, leave the group and return."""
        self._stopping.set()

    async def run(self, on_ready: Callable[[ConnectServer], None] | None = None) -> None:
        """Read the topics, join the group, and serve requests and run connectors until `stop`. If the start fails,
        raises HttpListenerError, TopicLogError, or an error of the Kafka client.
        """
        for name, reason in self._config.unused:
            log.info("a setting has no effect", setting=name, reason=reason)
        try:
            await self._http.bind()
        except OSError as error:
            raise HttpListenerError(
                f"The worker cannot listen at {self._http.url}: {error.strerror or error}. Choose another address in"
                " listeners, or port 0 for any free port."
            ) from error
        async with contextlib.AsyncExitStack() as closing:
            closing.push_async_callback(self._cluster.close)
            closing.push_async_callback(self._runtime.close)
            await self._cluster.reach()
            await self._config_log.open()
            closing.push_async_callback(self._config_log.close)
            await self._status_log.open()
            closing.push_async_callback(self._status_log.close)
            await self._store.refresh()
            failure: BaseException | None = None
            try:
                await self._serve(on_ready)
            except* BarnabasError as group:  # the group rejects this worker, for example
                failure = group.exceptions[0]
            if failure is not None:
                raise failure

    async def _serve(self, on_ready: Callable[[ConnectServer], None] | None) -> None:
        offsets = CheckpointStore(self._config.storage_location, self._earliest)
        worker = ConnectWorker(
            self._store, self._runtime, offsets, self._worker_id(), tracks_topics=self._config.topic_tracking
        )
        membership = WorkerMembership(
            self._cluster,
            self._config,
            lambda: self._store.state.connectors.keys(),
            gained=worker.set_assignment,
            losing=worker.give_up,
            wake=self._poll_now.set,
        )

        def on_change() -> None:
            self._loggers.follow(self._store.state.log_levels)
            worker.wake()
            self._poll_now.set()

        self._store.on_change = on_change
        self._loggers.follow(self._store.state.log_levels)
        services = ConnectServices(
            self._store,
            self._runtime,
            offsets,
            self._loggers,
            await self._cluster_id(),
            self._config.topic_tracking,
            self._config.topic_tracking_reset,
        )
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(self._http.serve(), name="connect http")
            working = tasks.create_task(worker.run(), name="connect worker")
            polling = tasks.create_task(self._poll(membership), name="connect membership")
            joining = tasks.create_task(membership.wait_joined(), name="connect joining")
            stopping = tasks.create_task(self._stopping.wait(), name="connect stopping")
            await asyncio.wait((joining, stopping), return_when=asyncio.FIRST_COMPLETED)
            joining.cancel()
            self._services = services
            if on_ready is not None and not self._stopping.is_set():
                on_ready(self)
            await self._stopping.wait()
            self._http.stop()
            polling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await polling
            await membership.close()
            await worker.stop_all()
            working.cancel()
            await serving

    async def _poll(self, membership: WorkerMembership) -> None:
        while True:
            await membership.poll()
            self._poll_now.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_INTERVAL_S):
                    await self._poll_now.wait()

    async def _cluster_id(self) -> str:
        from barnabas.client.admin import AsyncAdmin

        return (await AsyncAdmin(cluster=self._cluster).describe_cluster()).cluster_id or ""

    async def _earliest(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The log start offsets of partitions that exist."""
        found = await list_offsets(self._cluster, dict.fromkeys(partitions, EARLIEST))
        return {tp: answer.offset for tp, answer in found.items() if not isinstance(answer, KafkaError)}

    def _worker_id(self) -> str:
        """The address of this worker's API, which statuses name."""
        host = self._config.advertised_host or self._http.host or socket.gethostname()
        return f"{host}:{self._config.advertised_port or self._http.port}"
