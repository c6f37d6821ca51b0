"""Shell: the metadata log in ZooKeeper; implements the ports `MetadataLog` and `QuorumStatus`.

`connect` -> `register` listeners -> `find_quorum` reads the whole log -> `open` -> `run` reads new entries, and takes
part in elections. One request is in flight at a time. Answers, watches and session events wake the task that executes
`ZooKeeperMachine`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from barnabas.core.clock import Clock
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.telemetry import get_logger
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.server.metadata.errors import MetadataError
from barnabas.server.metadata.ports import LoadedSnapshot, MetadataListener
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.quorum.zookeeper.config import ZooKeeperConfig
from barnabas.server.quorum.zookeeper.entries import encode_snapshot
from barnabas.server.quorum.zookeeper.errors import ZooKeeperError
from barnabas.server.quorum.zookeeper.layout import CLUSTER_ID, read_cluster_id, write_broker, write_cluster_id
from barnabas.server.quorum.zookeeper.machine.effects import (
    Commit,
    Effect,
    Fatal,
    Joined,
    LeaderChanged,
    LoadSnapshot,
    NodesRegistered,
    ProposalOutcome,
    Settled,
)
from barnabas.server.quorum.zookeeper.machine.node import ControllerCandidate, ZooKeeperMachine
from barnabas.server.quorum.zookeeper.machine.requests import (
    Answer,
    Create,
    FailureReason,
    Get,
    Multi,
    RequestFailed,
    SyncRequest,
    Znode,
)
from barnabas.server.quorum.zookeeper.machine.writer import CHUNK_BYTES
from barnabas.server.raft.machine.messages import RaftRequest, RaftResponse
from barnabas.server.raft.machine.raft import QuorumInfo
from barnabas.server.raft.machine.values import Voters

if TYPE_CHECKING:
    from barnabas.server.quorum.zookeeper.session import ZooKeeperSession

log = get_logger("barnabas.server.node")

_RESIGN_S: Final = 5.0
"""The longest wait for a resignation; after that, the leadership ends with the session."""
_ATTEMPTS_MAX: Final = 10


class NodeInfo(Struct, frozen=True):
    """The data about this node that is written to ZooKeeper."""

    node_id: int
    endpoints: Sequence[ListenerEndpoint]
    """The advertised listeners for clients, written to /brokers/ids."""
    controller: tuple[str, int]
    """The address of the controller listener."""
    rack: str | None = None
    eligible: bool = True
    """Whether this node may become the active controller."""


class ZooKeeperMetadataLog:
    """The log of one node. All methods must be called on the event loop."""

    def __init__(self, config: ZooKeeperConfig, me: NodeInfo, clock: Clock) -> None:
        self._config = config
        self._me = me
        self._clock = clock
        broker = write_broker(me.endpoints, me.rack, clock.now_ms())
        self._machine = ZooKeeperMachine(ControllerCandidate(me.node_id, *me.controller, eligible=me.eligible), broker)
        self._session: ZooKeeperSession | None = None
        self._wake = asyncio.Event()
        self._resigned = asyncio.Event()
        self._leader_known = asyncio.Event()
        """Set while the leader is known."""
        self._opened = False
        self._listeners: dict[int, list[MetadataListener]] = {0: []}
        self._proposals: dict[int, asyncio.Future[int]] = {}
        self._on_nodes: list[Callable[[frozenset[int]], None]] = []

    # ---- start, run and stop

    async def connect(self, cluster_id: str) -> str:
        """Start a session and return the cluster id in ZooKeeper.

        If ZooKeeper has no cluster id, `cluster_id` is written and returned; an empty `cluster_id` is not written, and
        the result is empty. Raises ZooKeeperError if no server can be reached, or kazoo is not installed.
        """
        from barnabas.server.quorum.zookeeper.session import ZooKeeperSession

        self._session = ZooKeeperSession(self._config, self)
        await self._session.start()
        return await self._agree_on_cluster_id(self._session, cluster_id)

    async def find_quorum(self) -> None:
        """Register the node id in ZooKeeper, read the whole log, and notify the registered listeners.

        Raises MetadataError if the log cannot be read, or another active node uses the id.
        """
        assert self._session is not None, "connect() must be called first"
        self._opened = True
        await self._turn_until(lambda: self._machine.caught_up)

    def open(self) -> None:
        """Does nothing: this log has no files on the node's disk."""
        assert self._opened, "find_quorum() must be called first"

    async def run(self) -> None:
        """Follow the log and take part in elections, until cancelled. Raises MetadataError for a fatal problem."""
        assert self._session is not None
        self._machine.campaigning = True
        try:
            await self._turn_until(lambda: False)
        finally:
            self._fail_pending_proposals()
            await self._session.stop()

    async def resign(self) -> None:
        """Write the pending proposals, then give up the leadership."""
        self._machine.resign()
        self._wake.set()
        try:
            async with asyncio.timeout(_RESIGN_S):
                await self._resigned.wait()
        except TimeoutError:
            log.warning("could not resign as controller in time; the leadership ends with the ZooKeeper session")

    def close(self, *, clean: bool = True) -> None:
        """End the session, unless `run` has ended it."""
        self._fail_pending_proposals()
        if self._session is not None:
            self._session.stop_now()

    # ---- MetadataLog

    def register(self, listener: MetadataListener) -> None:
        if not self._opened:
            self._listeners[0].append(listener)
            return
        self._listeners[self._machine.add_reader()] = [listener]
        self._wake.set()

    def subscribe_nodes(self, notify: Callable[[frozenset[int]], None]) -> None:
        """While this node leads, call `notify` with the ids of the nodes that have a session with ZooKeeper: once at
        the start of the leadership, and after each change."""
        self._on_nodes.append(notify)

    def propose(self, records: Sequence[MetadataRecord]) -> Awaitable[int]:
        token = self._machine.propose(records, self._now_ms(), self._clock.now_ms())
        future = self._proposals[token] = asyncio.get_running_loop().create_future()
        self._wake.set()
        return future

    async def write_snapshot(
        self, end_offset: int, epoch: int, timestamp_ms: int, records: Iterable[MetadataRecord]
    ) -> None:
        """Start to write a snapshot in the background. Does nothing on nodes other than the active controller."""
        machine = self._machine
        if not machine.wants_snapshot(end_offset):
            return
        version = machine.metadata_version

        def encode() -> tuple[LoadedSnapshot, list[bytes]]:
            snapshot = LoadedSnapshot(end_offset, epoch, timestamp_ms, list(records))
            return snapshot, encode_snapshot(snapshot, version, CHUNK_BYTES)

        machine.write_snapshot(*await asyncio.get_running_loop().run_in_executor(None, encode))
        self._wake.set()

    # ---- QuorumStatus

    @property
    def leader_id(self) -> int:
        return self._machine.leader_id(self._now_ms())

    @property
    def responsive_leader_id(self) -> int:
        """As `leader_id`, which ends with the leader's session."""
        return self.leader_id

    @property
    def leader_epoch(self) -> int:
        return self._machine.epoch

    @property
    def high_watermark(self) -> int:
        return self._machine.position

    @property
    def kraft_version(self) -> int:
        return 0

    @property
    def log_end_offset(self) -> int:
        return self._machine.position

    def voters(self) -> Sequence[tuple[int, int]]:
        """Only the active controller is reported, because ZooKeeper's servers store the log."""
        leader_id = self.leader_id
        return () if leader_id < 0 else ((leader_id, self._machine.position),)

    def leader_endpoint(self) -> tuple[str, int] | None:
        """The address of the active controller's listener; None if there is no active controller."""
        controller = self._machine.controller
        return None if controller is None or self.leader_id < 0 else (controller.host, controller.port)

    def describe(self) -> QuorumInfo | None:
        """None: there is no Raft quorum."""
        return None

    @property
    def voter_set(self) -> Voters:
        """Empty: the voters are ZooKeeper's servers, which are not nodes of this cluster."""
        return Voters()

    async def handle(self, request: RaftRequest) -> RaftResponse:
        """Reject a request of the Raft protocol: a cluster with ZooKeeper has no Raft quorum. Raises KafkaError
        INVALID_REQUEST."""
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "ZooKeeper stores the metadata of this cluster (zookeeper.connect), so there is no quorum of controllers.",
        )

    async def wait_caught_up(self) -> None:
        """Wait until the leader is known. `find_quorum` has already read the whole log into this node's image."""
        await self._leader_known.wait()

    # ---- SessionEvents

    def on_connected(self, session_id: int, timeout_ms: int) -> None:
        self._machine.on_connected(session_id, timeout_ms)
        self._wake.set()

    def on_suspended(self) -> None:
        log.warning("the connection to ZooKeeper was lost; reconnecting")
        self._machine.on_suspended(self._now_ms())
        self._wake.set()

    def on_expired(self) -> None:
        log.warning("the ZooKeeper session expired; starting a new session")
        self._machine.on_expired()
        self._wake.set()

    def on_changed(self, path: str) -> None:
        self._machine.on_changed(path)
        self._wake.set()

    # ---- inside

    async def _turn_until(self, done: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            self._turn()
            if done():
                return
            wake_at = self._machine.wake_at()
            try:
                async with asyncio.timeout_at(
                    None if wake_at is None else loop.time() + (wake_at - self._now_ms()) / 1000
                ):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _turn(self) -> None:
        assert self._session is not None
        request = self._machine.next_request(self._now_ms(), self._clock.now_ms())
        for effect in self._machine.take_effects():
            self._execute(effect)
        if request is not None:
            self._session.submit(request, self._on_answer)
        if self._machine.resigned:
            self._resigned.set()

    def _on_answer(self, answer: Answer) -> None:
        self._machine.on_answer(answer)
        self._wake.set()

    def _execute(self, effect: Effect) -> None:
        match effect:
            case Commit(reader, batch):
                for listener in self._listeners[reader]:
                    listener.on_commit(batch)
            case LoadSnapshot(reader, snapshot):
                for listener in self._listeners[reader]:
                    listener.on_snapshot(snapshot)
            case Joined(reader):
                for listener in self._listeners.pop(reader):
                    self._listeners[0].append(listener)
                    listener.on_leader(self.leader_id, self.leader_epoch)
            case LeaderChanged(leader_id, epoch):
                self._leader_known.clear() if leader_id < 0 else self._leader_known.set()
                log.info("the active controller has changed", leader_id=leader_id, epoch=epoch)
                for listener in self._listeners[0]:
                    listener.on_leader(leader_id, epoch)
            case NodesRegistered(node_ids):
                for notify in self._on_nodes:
                    notify(node_ids)
            case Settled(token, last_offset, outcome):
                self._settle(token, last_offset, outcome)
            case Fatal(reason):
                raise MetadataError(reason)

    def _settle(self, token: int, last_offset: int, outcome: ProposalOutcome) -> None:
        future = self._proposals.pop(token)
        if future.done():
            return
        match outcome:
            case ProposalOutcome.COMMITTED:
                future.set_result(last_offset)
            case ProposalOutcome.REFUSED:
                future.set_exception(
                    KafkaError(
                        ErrorCode.NOT_CONTROLLER, "Another node became the active controller; the change was not made."
                    )
                )
            case ProposalOutcome.UNKNOWN:
                text = "ZooKeeper's response was lost, so it is unknown whether the change was made."
                future.set_exception(KafkaError(ErrorCode.REQUEST_TIMED_OUT, text))

    def _fail_pending_proposals(self) -> None:
        """Fail the pending proposals: the node is stopping and will not receive their results."""
        reason = "The node is shutting down: the change may or may not be made."
        for future in self._proposals.values():
            if not future.done():
                future.set_exception(KafkaError(ErrorCode.NOT_CONTROLLER, reason))
        self._proposals.clear()

    async def _agree_on_cluster_id(self, session: ZooKeeperSession, proposed: str) -> str:
        """Read the cluster id; if there is none, write `proposed` unless it is empty. The first node's write wins."""
        create = Multi((Create(CLUSTER_ID, write_cluster_id(proposed)),))
        answer: Answer = RequestFailed(FailureReason.CONNECTION_LOSS)
        for _ in range(_ATTEMPTS_MAX):
            await session.ask(SyncRequest())
            answer = await session.ask(Get(CLUSTER_ID))
            if isinstance(answer, Znode):
                return read_cluster_id(answer.data)
            if not proposed and isinstance(answer, RequestFailed) and answer.failure is FailureReason.NO_NODE:
                return ""
            await session.ask(Multi((Create("/cluster"),)))
            answer = await session.ask(create)
        raise ZooKeeperError(f"The cluster id could be neither read from nor written to ZooKeeper: {answer}")

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)
