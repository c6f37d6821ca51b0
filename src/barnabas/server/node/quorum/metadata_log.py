"""Shell: the metadata log as a replica of the quorum: fills the `MetadataLog` port, and shows how the quorum stands.

One class for every node: a voter among several, the only voter (which leads as soon as it runs), and an observer (a
broker, or a controller that has not joined yet). `open` reads the disk, `run` takes part.

A disk that is full ends the replica and begins it again, ever later, with what is on the disk: the proposals that were
not written fail, the rest of the quorum elects another leader, and nothing that was promised is lost. Any other
failure of the disk ends `run`, because a disk that fails must not vote.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from barnabas.core.clock import Clock
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.rng import Rng
from barnabas.core.telemetry import get_logger
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.server.metadata.ports import CommittedBatch, MetadataListener
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.metadata.records.codec import encode_record
from barnabas.server.node.quorum.finding import quorum_exists
from barnabas.server.node.quorum.handover import Handover, version_after
from barnabas.server.node.quorum.network import QuorumNetwork, Sender
from barnabas.server.node.quorum.raft_log import METADATA_PARTITION, RECORD_BATCH_BYTES_MAX, RaftLog
from barnabas.server.node.quorum.snapshot_files import SnapshotDamagedError
from barnabas.server.node.quorum.snapshot_store import SnapshotStore
from barnabas.server.node.quorum.starting import Address, starting_config
from barnabas.server.node.quorum.vote_store import VoteStore
from barnabas.server.raft.driver import Ports, RaftDriver
from barnabas.server.raft.errors import NotRaftLeaderError
from barnabas.server.raft.machine.messages import RaftRequest, RaftResponse
from barnabas.server.raft.machine.raft import QuorumInfo, QuorumReplicaState
from barnabas.server.raft.machine.values import NO_NODE, Endpoints, RaftConfig, ReplicaKey, Voters
from barnabas.server.storage.errors import DiskFullError
from barnabas.server.storage.fs import FileSystem

log = get_logger("barnabas.server.node")

_RESTART_MIN_S: Final = 0.1
_RESTART_MAX_S: Final = 5.0
_SETTLED_S: Final = 60.0
"""A replica that has run so long without trouble starts over quickly the next time."""
_HAND_OVER_S: Final = 1.0
"""How long an orderly stop waits for a successor."""


class QuorumConfig(Struct, frozen=True):
    """What the configuration says of the quorum; see `starting` for what comes of it."""

    raft: RaftConfig
    cluster_id: str = ""
    controller_quorum_voters: Mapping[int, Address] | Iterable[tuple[int, Address]] = ()
    controller_quorum_bootstrap_servers: Sequence[Address] = ()
    endpoints: Endpoints = ()
    """This node's own controller listeners, as others reach them."""
    may_found: bool = True
    """Whether this node may found a quorum of its own, if its directory is new and no voters are configured."""
    fsync: bool = True


class RaftMetadataLog:
    """`open`, register listeners, `run`. The directory must exist and be locked by this process."""

    def __init__(
        self, fs: FileSystem, directory: str, me: ReplicaKey, config: QuorumConfig, *, clock: Clock, rng: Rng,
        executor: Executor, sender: Sender, clean_shutdown: bool = False,
    ) -> None:  # fmt: skip
        path = f"{directory}/{METADATA_PARTITION}"
        if not fs.exists(path):
            fs.mkdir(path)
            if config.fsync:
                fs.sync_dir(directory)  # a vote must not be lost with the directory that it is in
        self._me = me
        self._config = config
        self._clock = clock
        self._rng = rng
        self._snapshots = SnapshotStore(fs, path, executor, fsync=config.fsync)
        self._log = RaftLog(
            fs, path, self._snapshots, clock=clock, executor=executor, fsync=config.fsync,
            clean_shutdown=clean_shutdown,
        )  # fmt: skip
        self._votes = VoteStore(fs, path, executor, voters=self._voters_of_now, fsync=config.fsync)
        listener = config.endpoints[0].listener if config.endpoints else ""
        self._network = QuorumNetwork(
            sender, config.cluster_id, config.raft.controller_quorum_request_timeout_ms, listener
        )
        self._handover = Handover(me.id, self._log, self._snapshots)
        self._driver: RaftDriver | None = None
        self._proposed_version: int | None = None
        """metadata.version after what was proposed, while this node leads."""

    # ---- life

    async def find_quorum(self) -> None:
        """Before `open`: a node that might found a quorum makes sure that the other controllers know of none. Only a
        node whose log is empty, and that has others to ask, asks and waits."""
        config = self._config
        own = {(endpoint.host, endpoint.port) for endpoint in config.endpoints}
        others = [address for address in config.controller_quorum_bootstrap_servers if address not in own]
        known = dict(config.controller_quorum_voters) or self._log.end_offset or self._snapshots.formatted().voters
        if config.may_found and others and not known and await quorum_exists(self._network, others):
            log.info("there is a quorum already: this node, whose log is empty, does not found one")
            self._config = replace(config, may_found=False)

    def open(self) -> None:
        """Read the disk; hand the newest snapshot to the listeners. What is committed beyond it, only the quorum can
        say: that follows in `run`. Raises MetadataError, QuorumStateError, StorageError."""
        state = self._votes.state()
        config = self._config
        raft_config = starting_config(
            config.raft,
            self._me,
            self._log.open(),
            state,
            voters=dict(config.controller_quorum_voters),
            bootstrap=config.controller_quorum_bootstrap_servers,
            endpoints=config.endpoints,
            may_found=config.may_found,
        )
        ports = Ports(self._log, self._votes, self._snapshots, self._network, self._handover)
        driver = RaftDriver(self._me, raft_config, ports, self._rng)
        driver.open()
        self._driver = driver

    async def run(self) -> None:
        """Until cancelled. Raises what stops this node for good: a failing disk, broken rules of the quorum."""
        loop = asyncio.get_running_loop()
        pause = _RESTART_MIN_S
        while True:
            began = loop.time()
            try:
                await self._replica.run()
            except BaseExceptionGroup as group:
                error = _first(group)
                if self._log.failed or not isinstance(error, (DiskFullError, SnapshotDamagedError)):
                    log.error("the metadata log has failed: this node leaves the quorum", reason=str(error))
                    raise error from None
            finally:
                self._handover.on_stopped()
            if loop.time() - began > _SETTLED_S:
                pause = _RESTART_MIN_S
            log.error("the metadata log cannot go on now and will try again", reason=str(error), after_s=pause)
            pause = await self._start_over(pause)

    async def _start_over(self, pause: float) -> float:
        while True:
            await asyncio.sleep(pause)
            pause = min(pause * 2, _RESTART_MAX_S)
            for port in (self._votes, self._log, self._snapshots):
                await port.settled()
            try:
                self.open()
            except DiskFullError as error:
                log.error("the metadata log cannot go on yet", reason=str(error), after_s=pause)
                continue
            return pause

    async def resign(self) -> None:
        """Hand leadership over, if this node has it, before it stops: wait a moment for the next leader."""
        driver = self._replica
        others = [key for key in driver.machine.voters.keys if key.id != self._me.id]
        if not driver.machine.is_leader or not others:
            return
        driver.resign(shutting_down=True)
        try:
            async with asyncio.timeout(_HAND_OVER_S):
                await self._handover.wait_until(lambda: self.leader_id not in (NO_NODE, self._me.id))
        except TimeoutError:
            log.info("no other controller has taken over yet")

    def close(self, *, clean: bool = True) -> None:
        self._log.close(clean=clean)

    # ---- MetadataLog

    def register(self, listener: MetadataListener) -> None:
        self._handover.register(listener)

    def propose(self, records: Sequence[MetadataRecord]) -> Awaitable[int]:
        handover, driver = self._handover, self._replica
        if handover.leader.leader_id != self._me.id:
            self._proposed_version = None
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This node does not lead the metadata log.")
        before = handover.metadata_version if self._proposed_version is None else self._proposed_version
        version = version_after(records, before)
        now_ms = self._clock.now_ms()
        batch = build_batch([SimpleRecord(None, encode_record(record, version), now_ms) for record in records])
        if len(batch) > RECORD_BATCH_BYTES_MAX:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The change is too large for one batch of the metadata log.")
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        try:
            waiting = asyncio.ensure_future(driver.propose(batch, len(records)))
        except NotRaftLeaderError as error:
            self._proposed_version = None
            raise KafkaError(ErrorCode.NOT_CONTROLLER, str(error)) from error
        self._proposed_version = version
        quorum = driver.machine.quorum
        base_offset = quorum.log.end_offset - len(records)
        handover.expect(CommittedBatch(base_offset, quorum.epoch, now_ms, tuple(records), len(batch)))
        waiting.add_done_callback(partial(self._on_settled, future))
        return future

    async def write_snapshot(
        self, end_offset: int, epoch: int, timestamp_ms: int, records: Iterable[MetadataRecord]
    ) -> None:
        """Raises StorageError. `records` is gone through in another thread: give what cannot change."""
        # A replica that has just started over knows less than its listeners of what is committed, for a while.
        await self._handover.wait_until(lambda: self._replica.machine.high_watermark >= end_offset)
        driver = self._replica
        snapshot_id, kraft_version, voters = driver.snapshot_controls(end_offset)
        assert snapshot_id.epoch == epoch, f"the image says epoch {epoch}, the log {snapshot_id.epoch}"
        await self._snapshots.store(
            snapshot_id,
            records,
            timestamp_ms=timestamp_ms,
            metadata_version=self._handover.metadata_version,
            kraft_version=kraft_version,
            voters=voters,
        )
        if driver is self._driver:  # else the replica has started over, and has found it by itself
            driver.snapshot_taken(snapshot_id)

    def _on_settled(self, future: asyncio.Future[int], waiting: asyncio.Future[int]) -> None:
        error = None if waiting.cancelled() else waiting.exception()
        if future.done():
            return
        if error is None and not waiting.cancelled():
            future.set_result(waiting.result())
            return
        self._proposed_version = None
        reason = f"The change may or may not be carried out: {error or 'the node is stopping'}"
        future.set_exception(KafkaError(ErrorCode.NOT_CONTROLLER, reason))
        future.exception()  # seen, even if nobody waits any more

    # ---- the quorum, for its handlers

    async def handle(self, request: RaftRequest) -> RaftResponse:
        """Answer another replica. Raises KafkaError when this one is stopping or cannot keep up."""
        return await self._replica.handle(request)

    # ---- QuorumStatus

    @property
    def leader_id(self) -> int:
        """-1 while there is none; this node only when it may act as the leader."""
        return self._handover.leader.leader_id

    @property
    def leader_epoch(self) -> int:
        return self._replica.machine.epoch

    @property
    def high_watermark(self) -> int:
        """Before it, everything is committed and in this node's image."""
        return self._handover.handed_over

    @property
    def log_end_offset(self) -> int:
        return self._log.end_offset

    @property
    def voter_set(self) -> Voters:
        return self._replica.machine.voters

    @property
    def kraft_version(self) -> int:
        return self._replica.machine.quorum.kraft_version

    def upgrade_kraft_version(self) -> None:
        """Raises KafkaError: INVALID_UPDATE_VERSION, or NOT_CONTROLLER where this node does not lead."""
        if self.leader_id != self._me.id:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This node does not lead the metadata log.")
        try:
            self._replica.upgrade_kraft_version()
        except NotRaftLeaderError as error:
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, str(error)) from error

    def voters(self) -> Sequence[tuple[int, int]]:
        view = self.describe()
        if view is None:
            return tuple((node_id, -1) for node_id in self.voter_set.ids)
        return tuple((replica.key.id, replica.log_end_offset) for replica in view.voters)

    def leader_endpoint(self) -> Address | None:
        quorum = self._replica.machine.quorum
        return quorum.leader_endpoints[0][1:] if quorum.leader_endpoints else None

    def describe(self) -> QuorumInfo | None:
        driver = self._replica
        if not driver.machine.is_leader:
            return None
        view = driver.describe()
        ago = self._clock.now_ms() - int(asyncio.get_running_loop().time() * 1000)

        def by_the_clock(replica: QuorumReplicaState) -> QuorumReplicaState:
            fetched, caught_up = (
                time + ago if time >= 0 else -1 for time in (replica.last_fetch_ms, replica.last_caught_up_ms)
            )
            return replace(replica, last_fetch_ms=fetched, last_caught_up_ms=caught_up)

        return replace(
            view,
            voters=tuple(map(by_the_clock, view.voters)),
            observers=tuple(map(by_the_clock, view.observers)),
        )

    async def wait_leader(self) -> None:
        """Until a leader is known; if it is this node, it may act as such."""
        await self._handover.wait_until(lambda: self.leader_id != NO_NODE)

    async def wait_caught_up(self) -> None:
        """Until a leader is known, and what it has said to be committed is in this node's image."""
        await self._handover.wait_until(lambda: self.leader_id != NO_NODE and self._replica.machine.high_watermark >= 0)

    # ---- inside

    @property
    def _replica(self) -> RaftDriver:
        assert self._driver is not None, "open() comes first"
        return self._driver

    def _voters_of_now(self) -> tuple[int, tuple[int, ...]]:
        quorum = self._replica.machine.quorum
        return quorum.kraft_version, quorum.voters.ids


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What stopped the replica: its tasks may have failed together."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
