"""Shell: the metadata log as a replica of the Raft quorum; implements the ports `MetadataLog` and `QuorumStatus`.

The same class serves a voter among several, the only voter (which becomes leader as soon as it runs), and an observer
(a broker, or a controller that has not joined the quorum). `open` reads the disk; `run` takes part in the quorum.

If the disk is full or a snapshot is damaged, the replica stops and restarts from the disk, after a pause that grows
with each attempt. Proposals that were not written fail, the other voters elect another leader, and no acknowledged
record is lost. Any other disk failure ends `run`, because a node with a failing disk must not vote.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
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
from barnabas.server.quorum.finding import quorum_exists
from barnabas.server.quorum.handover import Handover, version_after
from barnabas.server.quorum.network import QuorumNetwork, QuorumSender
from barnabas.server.quorum.raft_log import METADATA_PARTITION, RECORD_BATCH_BYTES_MAX, RaftLog
from barnabas.server.quorum.snapshot_files import SnapshotDamagedError
from barnabas.server.quorum.snapshot_store import SnapshotStore
from barnabas.server.quorum.starting import Address, starting_config
from barnabas.server.quorum.vote_store import VoteStore
from barnabas.server.raft.driver import Ports, RaftDriver
from barnabas.server.raft.errors import NotRaftLeaderError
from barnabas.server.raft.machine.messages import RaftRequest, RaftResponse
from barnabas.server.raft.machine.raft import QuorumInfo, QuorumReplicaState
from barnabas.server.raft.machine.values import NO_NODE, Endpoints, RaftConfig, ReplicaKey, Voters
from barnabas.server.storage.errors import TransientStorageError
from barnabas.server.storage.fs import FileSystem

log = get_logger("barnabas.server.node")

_RESTART_MIN_S: Final = 0.1
_RESTART_MAX_S: Final = 5.0
_PAUSE_RESET_S: Final = 60.0
"""After this time without a failure, the pause before a restart is the minimum again."""
_RESIGN_TIMEOUT_S: Final = 1.0
_RESIGN_CHECK_S: Final = 0.1
"""How long a clean shutdown waits for another node to become leader."""


class QuorumConfig(Struct, frozen=True):
    """The configuration of the quorum. `starting.py` computes the initial voters from it."""

    raft: RaftConfig
    cluster_id: str = ""
    controller_quorum_voters: Mapping[int, Address] | Iterable[tuple[int, Address]] = ()
    controller_quorum_bootstrap_servers: Sequence[Address] = ()
    endpoints: Endpoints = ()
    """The advertised controller listeners of this node."""
    listener: str = ""
    """The listener at which this node connects to controllers; empty: the first of its own, or CONTROLLER."""
    may_found: bool = True
    """Whether this node may found a new quorum if its directory is new and no voters are configured."""
    fsync: bool = True


async def _always(voters: Voters, node_id: int) -> bool:
    return True


class RaftMetadataLog:
    """This node's replica of the metadata log. Call `open`, register listeners, and call `run`. This process must have
    locked the directory."""

    def __init__(
        self, fs: FileSystem, directory: str, me: ReplicaKey, config: QuorumConfig, *, clock: Clock, rng: Rng,
        executor: Executor, sender: QuorumSender, clean_shutdown: bool = False,
        majority_may_run: Callable[[Voters, int], Awaitable[bool]] = _always,
    ) -> None:  # fmt: skip
        """`majority_may_run` probes the voters for `resign`."""
        path = f"{directory}/{METADATA_PARTITION}"
        if not fs.exists(path):
            fs.mkdir(path)
            if config.fsync:
                fs.sync_dir(directory)  # otherwise a power failure could lose the directory with a vote in it
        self._me = me
        self._majority_may_run = majority_may_run
        self._config = config
        self._clock = clock
        self._rng = rng
        self._snapshots = SnapshotStore(fs, path, executor, fsync=config.fsync)
        self._log = RaftLog(
            fs, path, self._snapshots, clock=clock, executor=executor, fsync=config.fsync,
            clean_shutdown=clean_shutdown,
        )  # fmt: skip
        self._votes = VoteStore(fs, path, executor, voters=self._current_voters, fsync=config.fsync)
        self._listener = config.listener or (config.endpoints[0].listener if config.endpoints else "")
        self._network = QuorumNetwork(
            sender, config.cluster_id, config.raft.controller_quorum_request_timeout_ms, self._listener
        )
        self._handover = Handover(me.id, self._log, self._snapshots)
        self._driver: RaftDriver | None = None
        self._proposed_version: int | None = None
        """The metadata.version after all proposed records, while this node is the leader."""

    # ---- start, run and stop

    async def find_quorum(self) -> None:
        """Call this before `open`. A node that may found a quorum checks that the other controllers have none.

        Only a node with an empty log and configured bootstrap servers sends requests, and waits for the responses.
        """
        config = self._config
        own = {(endpoint.host, endpoint.port) for endpoint in config.endpoints}
        others = [address for address in config.controller_quorum_bootstrap_servers if address not in own]
        known = dict(config.controller_quorum_voters) or self._log.end_offset or self._snapshots.formatted().voters
        if config.may_found and others and not known and await quorum_exists(self._network, others):
            log.info("a quorum exists already; this node, whose log is empty, does not found another")
            self._config = replace(config, may_found=False)

    def open(self) -> None:
        """Read the disk and notify the listeners of the newest snapshot.

        Only the quorum determines which later records are committed; the listeners are notified of those in `run`.
        Raises MetadataError, QuorumStateError, StorageError.
        """
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
            listener=self._listener,
            may_found=config.may_found,
        )
        ports = Ports(self._log, self._votes, self._snapshots, self._network, self._handover)
        driver = RaftDriver(self._me, raft_config, ports, self._rng)
        driver.open()
        self._driver = driver

    async def run(self) -> None:
        """Take part in the quorum until cancelled. Raises a disk failure, or a violation of the rules of Raft."""
        loop = asyncio.get_running_loop()
        pause = _RESTART_MIN_S
        while True:
            began = loop.time()
            try:
                await self._replica.run()
            except BaseExceptionGroup as group:
                error = _first(group)
                if self._log.failed or not isinstance(error, (TransientStorageError, SnapshotDamagedError)):
                    log.error("the metadata log failed; this node stops taking part in the quorum", reason=str(error))
                    raise error from None
            finally:
                self._handover.on_replica_stopped()
            if loop.time() - began > _PAUSE_RESET_S:
                pause = _RESTART_MIN_S
            log.error("the metadata log stopped and will restart", reason=str(error), after_s=pause)
            pause = await self._restart(pause)

    async def _restart(self, pause: float) -> float:
        while True:
            await asyncio.sleep(pause)
            pause = min(pause * 2, _RESTART_MAX_S)
            for port in (self._votes, self._log, self._snapshots):
                await port.settled()
            try:
                self.open()
            except TransientStorageError as error:
                log.error("the metadata log cannot restart yet", reason=str(error), after_s=pause)
                continue
            return pause

    async def resign(self) -> None:
        """Before a shutdown: if this node is the leader, resign, and wait up to one second for the next leader, as long
        as there may be one."""
        driver = self._replica
        others = [key for key in driver.machine.voters.keys if key.id != self._me.id]
        if not driver.machine.is_leader or not others:
            return
        driver.resign(shutting_down=True)
        next_leader = asyncio.ensure_future(
            self._handover.wait_until(lambda: self.leader_id not in (NO_NODE, self._me.id))
        )
        try:
            async with asyncio.timeout(_RESIGN_TIMEOUT_S):
                while not next_leader.done():
                    if not await self._majority_may_run(driver.machine.voters, self._me.id):
                        log.info("most other controllers do not run: there is no next leader")
                        return
                    await asyncio.wait((next_leader,), timeout=_RESIGN_CHECK_S)
        except TimeoutError:
            log.info("no other controller has become leader yet")
        finally:
            next_leader.cancel()

    def close(self, *, clean: bool = True) -> None:
        self._log.close(clean=clean)

    # ---- MetadataLog

    def register(self, listener: MetadataListener) -> None:
        self._handover.register(listener)

    def propose(self, records: Sequence[MetadataRecord]) -> Awaitable[int]:
        handover, driver = self._handover, self._replica
        if handover.leader.leader_id != self._me.id:
            self._proposed_version = None
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This node is not the leader of the metadata log.")
        before = handover.metadata_version if self._proposed_version is None else self._proposed_version
        version = version_after(records, before)
        now_ms = self._clock.now_ms()
        batch = build_batch([SimpleRecord(None, encode_record(record, version), now_ms) for record in records])
        if len(batch) > RECORD_BATCH_BYTES_MAX:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The change exceeds the batch size limit of the metadata log.")
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
        """Write a snapshot. Another thread iterates over `records`, so they must not change. Raises StorageError."""
        # After a restart of the replica, its high watermark can be lower than the offset its listeners have.
        await self._handover.wait_until(lambda: self._replica.machine.high_watermark >= end_offset)
        driver = self._replica
        snapshot_id, kraft_version, voters = driver.snapshot_controls(end_offset)
        assert snapshot_id.epoch == epoch, f"the image has epoch {epoch}, the log has {snapshot_id.epoch}"
        await self._snapshots.store(
            snapshot_id,
            records,
            timestamp_ms=timestamp_ms,
            metadata_version=self._handover.metadata_version,
            kraft_version=kraft_version,
            voters=voters,
        )
        if driver is self._driver:  # a replica that restarted meanwhile found the snapshot on the disk
            driver.snapshot_taken(snapshot_id)

    def _on_settled(self, future: asyncio.Future[int], waiting: asyncio.Future[int]) -> None:
        error = None if waiting.cancelled() else waiting.exception()
        if future.done():
            return
        if error is None and not waiting.cancelled():
            future.set_result(waiting.result())
            return
        self._proposed_version = None
        reason = f"The change may or may not be committed: {error or 'the node is stopping'}"
        future.set_exception(KafkaError(ErrorCode.NOT_CONTROLLER, reason))
        future.exception()  # marks the exception as retrieved, in case the caller was cancelled

    def contacts(self) -> list[str]:
        """For each other voter, and each address to which this node has sent requests: what it answered last."""
        known = {
            endpoint[1:]: (voter.key.id, "not asked yet")
            for voter in self._replica.machine.voters.members
            if voter.key.id != self._me.id
            for endpoint in voter.endpoints
        }
        found = sorted((known | self._network.contacts).items(), key=lambda item: (item[1][0], item[0]))
        return [
            f"{f'{node_id}@' if node_id >= 0 else ''}{host}:{port}: {outcome}"
            for (host, port), (node_id, outcome) in found
        ]

    # ---- requests of other replicas

    async def handle(self, request: RaftRequest) -> RaftResponse:
        """Handle a request of another replica. Raises KafkaError if this replica is stopping or overloaded."""
        return await self._replica.handle(request)

    # ---- QuorumStatus

    @property
    def leader_id(self) -> int:
        """-1 if the leader is unknown. This node's id only after all records of earlier epochs are committed."""
        return self._handover.leader.leader_id

    @property
    def responsive_leader_id(self) -> int:
        """As `leader_id`, but -1 while the leader does not answer this replica's fetches. A replica keeps the leader
        of its epoch while it asks the other voters for pre-votes (KIP-996), also if the leader is dead."""
        leader_id, quorum = self.leader_id, self._replica.machine.quorum
        if leader_id in (NO_NODE, self._me.id):
            return leader_id
        state = quorum.follower
        answers = state is not None and state.has_fetched and quorum.now_ms < state.fetch_deadline_ms
        return leader_id if answers else NO_NODE

    def former_leader(self) -> tuple[int, int] | None:
        """The leader that this replica followed before the present election, and the time of its last response in
        milliseconds of the event loop's clock; None if there was no such leader."""
        return self._replica.machine.quorum.leader_contact

    @property
    def is_open(self) -> bool:
        """Whether `open` was called."""
        return self._driver is not None

    @property
    def state_name(self) -> str:
        """The state of this replica in the quorum, as Kafka names it: leader, follower, candidate and so on; observer
        if this node is no voter."""
        quorum = self._replica.machine.quorum
        name = type(quorum.state).__name__.lower()
        return "observer" if name in ("follower", "unattached") and not quorum.is_voter else name

    @property
    def leader_epoch(self) -> int:
        return self._replica.machine.epoch

    @property
    def high_watermark(self) -> int:
        """All records before this offset are committed and in this node's image."""
        return self._handover.notified_offset

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
        """Change kraft.version from 0 to 1. Raises KafkaError INVALID_UPDATE_VERSION if the quorum cannot change the
        version now, and NOT_CONTROLLER if this node is not the leader."""
        if self.leader_id != self._me.id:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This node is not the leader of the metadata log.")
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
        endpoints = self._replica.machine.quorum.leader_endpoints
        found = next((each for each in endpoints if each.listener == self._listener), next(iter(endpoints), None))
        return None if found is None else found[1:]

    def describe(self) -> QuorumInfo | None:
        driver = self._replica
        if not driver.machine.is_leader:
            return None
        view = driver.describe()
        clock_difference_ms = self._clock.now_ms() - int(asyncio.get_running_loop().time() * 1000)

        def with_wall_clock_times(replica: QuorumReplicaState) -> QuorumReplicaState:
            fetched, caught_up = (
                time + clock_difference_ms if time >= 0 else -1
                for time in (replica.last_fetch_ms, replica.last_caught_up_ms)
            )
            return replace(replica, last_fetch_ms=fetched, last_caught_up_ms=caught_up)

        return replace(
            view,
            voters=tuple(map(with_wall_clock_times, view.voters)),
            observers=tuple(map(with_wall_clock_times, view.observers)),
        )

    async def wait_leader(self) -> None:
        """Wait until `leader_id` is known."""
        await self._handover.wait_until(lambda: self.leader_id != NO_NODE)

    async def wait_caught_up(self) -> None:
        """Wait until the leader is known and all records up to its high watermark are in this node's image."""
        await self._handover.wait_until(lambda: self.leader_id != NO_NODE and self._replica.machine.high_watermark >= 0)

    # ---- inside

    @property
    def _replica(self) -> RaftDriver:
        assert self._driver is not None, "open() must be called first"
        return self._driver

    def _current_voters(self) -> tuple[int, tuple[int, ...]]:
        quorum = self._replica.machine.quorum
        return quorum.kraft_version, quorum.voters.ids


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error in `group`. Several tasks of the replica can fail at the same time."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
