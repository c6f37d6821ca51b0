"""A quorum of metadata logs in virtual time: production code but for the disk, which is in memory, and the sockets:
every message is encoded and decoded as on the wire, and answered by the production handlers.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from concurrent.futures import Executor, Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.apis import APIS, ApiKey
from barnabas.protocol.wire.codec import decode, encode
from barnabas.protocol.wire.messages.api_versions import ApiVersionsResponse, SupportedFeatureKey
from barnabas.server.broker.served import load_handler
from barnabas.server.metadata.ports import CommittedBatch, LoadedSnapshot
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.metadata.records.codec import TopicRecord
from barnabas.server.quorum.metadata_log import QuorumConfig, RaftMetadataLog
from barnabas.server.raft.machine.values import RaftEndpoint, ReplicaKey
from barnabas.testing.sim.disk import MemoryDisk
from tests.configs import raft_config
from tests.unit.server.coordination.kit import LoopClock, run_virtual

CLUSTER = "a-cluster"
DIRECTORY = "/data"
LOG = f"{DIRECTORY}/__cluster_metadata-0"


class InlineExecutor(Executor):
    """Work is done when it is handed in; who waits for it hears of it on the loop's next turn."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to who waits
            future.set_exception(error)
        return future


class State:
    """A state machine that keeps names, in order."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.snapshots: list[int] = []
        self.leaders: list[tuple[int, int]] = []
        self.offset = -1

    def on_commit(self, batch: CommittedBatch) -> None:
        assert batch.base_offset > self.offset, "never twice, always in order"
        self.names += [record.name for record in batch.records if isinstance(record, TopicRecord)]
        self.offset = batch.last_offset

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        assert snapshot.end_offset > self.offset
        self.names = [record.name for record in snapshot.records if isinstance(record, TopicRecord)]
        self.snapshots.append(snapshot.end_offset)
        self.offset = snapshot.end_offset - 1

    def on_leader(self, leader_id: int, epoch: int) -> None:
        self.leaders.append((leader_id, epoch))


def topics(*names: str) -> list[MetadataRecord]:
    return [TopicRecord(name=name, topic_id=UUID(int=hash(name) & 0xFFFFFFFF)) for name in names]


def disk_of(node_id: int) -> UUID:
    return UUID(int=1000 + node_id)


@dataclass
class Host:
    """One node's disk, and what runs there."""

    node_id: int
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    log: RaftMetadataLog | None = None
    state: State = field(default_factory=State)
    task: asyncio.Task[None] | None = None

    @property
    def now(self) -> RaftMetadataLog:
        assert self.log is not None
        return self.log


class Quorum:
    """Hosts and the wires between them."""

    def __init__(self, size: int, *, static: bool = True, version: Callable[[int], int] | None = None) -> None:
        self.hosts = {node_id: Host(node_id) for node_id in range(1, size + 1)}
        self.static = static
        self.cut: set[frozenset[int]] = set()
        self.sent: list[tuple[int, int, str]] = []
        self.lives = 0
        self._version = version or (lambda key: APIS[ApiKey(key)].max_version)

    def options(self, node_id: int) -> QuorumConfig:
        everyone = {other: (f"n{other}", 9093) for other in self.hosts}
        return QuorumConfig(
            cluster_id=CLUSTER,
            controller_quorum_voters=everyone if self.static else (),
            controller_quorum_bootstrap_servers=() if self.static or node_id == 1 else tuple(everyone.values()),
            endpoints=(RaftEndpoint("CONTROLLER", *everyone[node_id]),),
            may_found=node_id == 1,
            raft=raft_config(controller_quorum_auto_join_enable=not self.static),
        )

    def start(self, node_id: int, **raft: Any) -> Host:
        host = self.hosts[node_id]
        self.lives += 1
        options = self.options(node_id)
        host.log = RaftMetadataLog(
            host.disk.mount(),
            DIRECTORY,
            ReplicaKey(node_id, disk_of(node_id)),
            replace(options, raft=replace(options.raft, **raft)),
            clock=LoopClock(),
            rng=random.Random(self.lives),
            executor=InlineExecutor(),
            sender=_Wire(self, node_id),
        )
        host.state = State()
        host.log.register(host.state)
        host.log.open()
        host.task = asyncio.get_running_loop().create_task(host.log.run())
        return host

    async def kill(self, node_id: int, *, power: bool = False) -> None:
        host = self.hosts[node_id]
        assert host.task is not None
        host.log = None
        host.task.cancel()
        await asyncio.gather(host.task, return_exceptions=True)
        host.task = None
        if power:
            host.disk.lose_power()
        else:
            host.disk.crash()

    async def leader(self, *, other_than: int = -1) -> Host:
        async with asyncio.timeout(60):
            while True:
                for host in self.hosts.values():
                    log = host.log
                    if log is not None and log.leader_id == host.node_id != other_than and log.describe() is not None:
                        return host
                await asyncio.sleep(0.01)

    async def reached(self, names: Iterable[str], *node_ids: int) -> None:
        """All of these (or all that run) have exactly these names."""
        wanted = list(names)
        running = [host.node_id for host in self.hosts.values() if host.log is not None]
        async with asyncio.timeout(60):
            while any(self.hosts[node_id].state.names != wanted for node_id in node_ids or running):
                await asyncio.sleep(0.01)

    async def deliver(self, source: int, host: str, request: Any) -> Any:
        """As over the network: bytes there, bytes back."""
        target = int(host.removeprefix("n"))
        key = request.__schema__.key
        version = self._version(key)
        self.sent.append((source, target, type(request).__name__))
        log = self.hosts[target].log
        if log is None or frozenset((source, target)) in self.cut:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"{host} is not there")
        await asyncio.sleep(0.001)
        message = decode(type(request), version, encode(request, version))
        response = await _answer(target, log, key, version, message)
        if frozenset((source, target)) in self.cut or self.hosts[target].log is not log:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"{host} went away")
        return decode(type(response), version, encode(response, version))


async def _answer(node_id: int, log: RaftMetadataLog, key: int, version: int, message: Any) -> Any:
    if key == ApiKey.API_VERSIONS:
        feature = SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
        return ApiVersionsResponse(api_keys=[], supported_features=[feature])
    services = SimpleNamespace(node_id=node_id, cluster_id=CLUSTER, quorum=log)
    ctx = SimpleNamespace(api_key=key, api_version=version, client=SimpleNamespace(listener="CONTROLLER"))
    return await load_handler("quorum", ApiKey(key))(services, ctx, message)


class _Wire:
    def __init__(self, quorum: Quorum, node_id: int) -> None:
        self._quorum = quorum
        self._node_id = node_id

    async def send(self, host: str, port: int, request: Any, *, timeout_ms: int, purpose: str = "", **_: Any) -> Any:
        async with asyncio.timeout(timeout_ms / 1000):
            return await self._quorum.deliver(self._node_id, host, request)


@asynccontextmanager
async def quorum(size: int, *, started: Iterable[int] | None = None, **options: Any) -> AsyncIterator[Quorum]:
    made = Quorum(size, **options)
    for node_id in started if started is not None else made.hosts:
        made.start(node_id)
    try:
        yield made
    finally:
        for host in made.hosts.values():
            if host.task is not None:
                host.task.cancel()
                await asyncio.gather(host.task, return_exceptions=True)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(main())
