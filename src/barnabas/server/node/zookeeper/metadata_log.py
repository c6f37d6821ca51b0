"""Shell: the metadata log in ZooKeeper. Fills the `MetadataLog` port, and `QuorumStatus`.

`connect` -> `register` listeners -> `find_quorum` reads all there is -> `open` -> `run` follows the log, and stands for
election. One request is under way at a time; what happens meanwhile (answers, watches, the session) wakes the one loop
that turns the machine.
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
from barnabas.server.node.zookeeper.config import ZooKeeperConfig
from barnabas.server.node.zookeeper.entries import encode_snapshot
from barnabas.server.node.zookeeper.errors import ZooKeeperError
from barnabas.server.node.zookeeper.layout import CLUSTER_ID, read_cluster_id, write_broker, write_cluster_id
from barnabas.server.node.zookeeper.machine.effects import (
    Commit,
    Effect,
    Fatal,
    Joined,
    LeaderChanged,
    LoadSnapshot,
    Outcome,
    Settled,
)
from barnabas.server.node.zookeeper.machine.node import Candidate, ZooKeeperMachine
from barnabas.server.node.zookeeper.machine.requests import Answer, Create, Failed, Failure, Get, Multi, Sync, Znode
from barnabas.server.node.zookeeper.machine.writer import CHUNK_BYTES
from barnabas.server.raft.machine.messages import RaftRequest, RaftResponse
from barnabas.server.raft.machine.raft import QuorumInfo
from barnabas.server.raft.machine.values import Voters

if TYPE_CHECKING:
    from barnabas.server.node.zookeeper.session import ZooKeeperSession

log = get_logger("barnabas.server.node")

_RESIGN_S: Final = 5.0
"""How long an orderly end of the office may take; after that the session's end ends it."""
_ATTEMPTS_MAX: Final = 10


class NodeInfo(Struct, frozen=True):
    """What this node says of itself in ZooKeeper."""

    node_id: int
    endpoints: Sequence[ListenerEndpoint]
    """Of its listeners for clients: what /brokers/ids tells."""
    controller: tuple[str, int]
    """Where its controller listener is to be reached."""
    rack: str | None = None
    eligible: bool = True
    """Whether it may become the active controller."""


class ZooKeeperMetadataLog:
    """The log of one node. Everything is called on the loop."""

    def __init__(self, settings: ZooKeeperConfig, me: NodeInfo, clock: Clock) -> None:
        self._settings = settings
        self._me = me
        self._clock = clock
        broker = write_broker(me.endpoints, me.rack, clock.now_ms())
        self._machine = ZooKeeperMachine(Candidate(me.node_id, *me.controller, eligible=me.eligible), broker)
        self._session: ZooKeeperSession | None = None
        self._wake = asyncio.Event()
        self._resigned = asyncio.Event()
        self._led = asyncio.Event()
        """Set while a leader is known."""
        self._opened = False
        self._listeners: dict[int, list[MetadataListener]] = {0: []}
        self._proposals: dict[int, asyncio.Future[int]] = {}

    # ---- life

    async def connect(self, cluster_id: str) -> str:
        """Begin a session. Gives the cluster's id, which is `cluster_id` if this is the first node of all; with an
        empty `cluster_id` nothing is founded, and the answer may be empty, too.

        Raises ZooKeeperError when no server can be reached, or kazoo is not installed.
        """
        from barnabas.server.node.zookeeper.session import ZooKeeperSession

        self._session = ZooKeeperSession(self._settings, self)
        await self._session.start()
        return await self._agree_on_cluster_id(self._session, cluster_id)

    async def find_quorum(self) -> None:
        """Take the node's id, and read the log: listeners that are registered know everything afterwards.

        Raises MetadataError for a log that cannot be read, and when another live node has the id.
        """
        assert self._session is not None, "connect() comes first"
        self._opened = True
        await self._turn_until(lambda: self._machine.caught_up)

    def open(self) -> None:
        """Nothing is on this node's disk."""
        assert self._opened, "find_quorum() comes first"

    async def run(self) -> None:
        """Until cancelled. Raises MetadataError when the node must not go on."""
        assert self._session is not None
        self._machine.campaigning = True
        try:
            await self._turn_until(lambda: False)
        finally:
            self._give_up()
            await self._session.stop()

    async def resign(self) -> None:
        """Write what was proposed, then let another node lead."""
        self._machine.resign()
        self._wake.set()
        try:
            async with asyncio.timeout(_RESIGN_S):
                await self._resigned.wait()
        except TimeoutError:
            log.warning("could not give up the controller's office in order; it ends with the session")

    def close(self, *, clean: bool = True) -> None:
        """End the session, if `run` has not done so."""
        self._give_up()
        if self._session is not None:
            self._session.stop_now()

    # ---- MetadataLog

    def register(self, listener: MetadataListener) -> None:
        if not self._opened:
            self._listeners[0].append(listener)
            return
        self._listeners[self._machine.add_reader()] = [listener]
        self._wake.set()

    def propose(self, records: Sequence[MetadataRecord]) -> Awaitable[int]:
        token = self._machine.propose(records, self._now_ms(), self._clock.now_ms())
        future = self._proposals[token] = asyncio.get_running_loop().create_future()
        self._wake.set()
        return future

    async def write_snapshot(
        self, end_offset: int, epoch: int, timestamp_ms: int, records: Iterable[MetadataRecord]
    ) -> None:
        """Only the active controller does; there is one snapshot for all nodes. It is written in the background."""
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
        """ZooKeeper's servers hold the log; of the nodes there is only the one that leads."""
        leader_id = self.leader_id
        return () if leader_id < 0 else ((leader_id, self._machine.position),)

    def leader_endpoint(self) -> tuple[str, int] | None:
        """The controller listener of the active controller; None while there is none."""
        controller = self._machine.controller
        return None if controller is None or self.leader_id < 0 else (controller.host, controller.port)

    def describe(self) -> QuorumInfo | None:
        """There is no Raft quorum to describe."""
        return None

    @property
    def voter_set(self) -> Voters:
        """ZooKeeper's servers vote, and they are no nodes of this cluster."""
        return Voters()

    async def handle(self, request: RaftRequest) -> RaftResponse:
        """Nodes of this cluster send no such requests. Raises KafkaError."""
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "ZooKeeper keeps the metadata of this cluster (zookeeper.connect): it has no quorum of controllers.",
        )

    async def wait_caught_up(self) -> None:
        """Until a leader is known. All that was in the log is in this node's image since `find_quorum`."""
        await self._led.wait()

    # ---- SessionEvents

    def on_connected(self, session_id: int, timeout_ms: int) -> None:
        self._machine.on_connected(session_id, timeout_ms)
        self._wake.set()

    def on_suspended(self) -> None:
        log.warning("the connection to ZooKeeper is lost; trying to get it back")
        self._machine.on_suspended(self._now_ms())
        self._wake.set()

    def on_expired(self) -> None:
        log.warning("the session with ZooKeeper has ended; beginning another")
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
            self._carry_out(effect)
        if request is not None:
            self._session.submit(request, self._on_answer)
        if self._machine.resigned:
            self._resigned.set()

    def _on_answer(self, answer: Answer) -> None:
        self._machine.on_answer(answer)
        self._wake.set()

    def _carry_out(self, effect: Effect) -> None:
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
                self._led.clear() if leader_id < 0 else self._led.set()
                log.info("the active controller is known", leader_id=leader_id, epoch=epoch)
                for listener in self._listeners[0]:
                    listener.on_leader(leader_id, epoch)
            case Settled(token, last_offset, outcome):
                self._settle(token, last_offset, outcome)
            case Fatal(reason):
                raise MetadataError(reason)

    def _settle(self, token: int, last_offset: int, outcome: Outcome) -> None:
        future = self._proposals.pop(token)
        if future.done():
            return
        match outcome:
            case Outcome.COMMITTED:
                future.set_result(last_offset)
            case Outcome.REFUSED:
                future.set_exception(KafkaError(ErrorCode.NOT_CONTROLLER, "Another node became the controller."))
            case Outcome.UNKNOWN:
                text = "ZooKeeper's answer was lost, and the log has gone on: whether the change was made is not known."
                future.set_exception(KafkaError(ErrorCode.REQUEST_TIMED_OUT, text))

    def _give_up(self) -> None:
        """The node is stopping, and will not hear any more what became of them."""
        reason = "The node is shutting down: the change may or may not be carried out."
        for future in self._proposals.values():
            if not future.done():
                future.set_exception(KafkaError(ErrorCode.NOT_CONTROLLER, reason))
        self._proposals.clear()

    async def _agree_on_cluster_id(self, session: ZooKeeperSession, proposed: str) -> str:
        """Whoever comes first writes the id; everyone reads what was written. Nobody writes an empty one."""
        create = Multi((Create(CLUSTER_ID, write_cluster_id(proposed)),))
        answer: Answer = Failed(Failure.CONNECTION_LOSS)
        for _ in range(_ATTEMPTS_MAX):
            await session.ask(Sync())
            answer = await session.ask(Get(CLUSTER_ID))
            if isinstance(answer, Znode):
                return read_cluster_id(answer.data)
            if not proposed and isinstance(answer, Failed) and answer.failure is Failure.NO_NODE:
                return ""
            await session.ask(Multi((Create("/cluster"),)))
            answer = await session.ask(create)
        raise ZooKeeperError(f"The cluster's id could be neither read nor written in ZooKeeper: {answer}")

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)
