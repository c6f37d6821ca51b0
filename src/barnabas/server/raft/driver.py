"""Shell: runs one `RaftMachine` over the ports, and carries out the effects of its steps strictly in their order.

    requests, responses, timers, proposals, syncs ---> machine.step ---> queue of Effects ---> _carry_out, one by one
              ^                                                                                    |
              +------------------------------------------------------------------------------------+

The machine may be ahead of the disk: a proposal has its offset when `propose` returns, and while a vote is being synced
the machine can take further steps. Their effects wait in the queue, so no request or response is sent before the state
that it depends on is durable (see `machine.events`). One sync of the log is in progress at a time, and covers all that
was written before it began.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.rng import Rng
from barnabas.core.telemetry import get_logger
from barnabas.core.work import Pauses
from barnabas.server.raft.errors import IllegalRaftStateError, NotRaftLeaderError
from barnabas.server.raft.machine.events import (
    Answered,
    Effects,
    Event,
    FinishSnapshot,
    LeaderAndEpoch,
    LogOp,
    Propose,
    Received,
    Reply,
    Resign,
    SendFailed,
    SendRequest,
    SnapshotStored,
    SnapshotTaken,
    Synced,
    Tick,
    UpgradeKRaftVersion,
    WriteSnapshot,
)
from barnabas.server.raft.machine.messages import FetchResponse, FetchSnapshotResponse, RaftRequest, RaftResponse
from barnabas.server.raft.machine.raft import QuorumInfo, RaftMachine
from barnabas.server.raft.machine.values import ORIGIN, OffsetAndEpoch, RaftConfig, ReplicaKey, Voters
from barnabas.server.raft.ports import NetworkChannel, QuorumStateStore, RaftListener, ReplicatedLog, SnapshotStorage

log = get_logger("barnabas.server.raft")

EFFECTS_WAITING_MAX: Final = 10_000
"""Requests are rejected while the effects of this many steps or more wait for the disk."""
_COMMIT_READ_BYTES: Final = 4 * 1024 * 1024


class Ports(Struct):
    """The ports of one replica."""

    log: ReplicatedLog
    votes: QuorumStateStore
    snapshots: SnapshotStorage
    network: NetworkChannel
    listener: RaftListener


class _Proposal(Struct):
    last_offset: int
    epoch: int
    done: asyncio.Future[int]


class RaftDriver:
    """One replica. Call `open`, then `run` in a task. All methods must be called on the same loop."""

    def __init__(self, me: ReplicaKey, config: RaftConfig, ports: Ports, rng: Rng) -> None:
        self._me = me
        self._config = config
        self._ports = ports
        self._rng = rng
        self._machine: RaftMachine | None = None
        self._effects: deque[Effects] = deque()
        self._work = asyncio.Event()
        self._unsynced = asyncio.Event()
        self._written_ticket = 0
        self._proposals: deque[_Proposal] = deque()
        self._waiting: dict[int, asyncio.Future[RaftResponse]] = {}
        self._next_token = 0
        self._delivered = 0
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._failure: BaseException | None = None

    # ---- start and stop

    def open(self) -> None:
        """Read the replica's state from the disk, and pass the newest snapshot to the listener."""
        summary = self._ports.log.open()
        election = self._ports.votes.load()
        newest = max(summary.snapshots, default=ORIGIN)
        if newest.offset > 0:
            self._ports.listener.on_snapshot(newest)
            self._delivered = newest.offset
        self._machine = RaftMachine(self._me, self._config, election, summary, self._rng, self._now_ms())

    async def run(self) -> None:
        """Run the replica until cancelled.

        Raises an exception group with the error that stopped the replica: a disk failure, or IllegalRaftStateError."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                tasks.create_task(self._sync_loop())
                self._step(Tick())
                await self._carry_out_loop()
        finally:
            self._stop()

    def _stop(self) -> None:
        self._tasks = None
        self._failure = self._failure or NotRaftLeaderError("The replica is shutting down.")
        if self._timer is not None:
            self._timer.cancel()
        self._fail_proposals(None)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE))
        self._waiting.clear()

    @property
    def machine(self) -> RaftMachine:
        """The machine, to be read only."""
        assert self._machine is not None, "open() comes first"
        return self._machine

    # ---- for the node

    def propose(self, payload: Buffer, count: int) -> Awaitable[int]:
        """Append `count` records as one batch.

        The call fixes the position of the batch in the log. The awaitable returns the last offset once the batch is
        committed and the listener has been called. The call and the awaitable raise NotRaftLeaderError if this replica
        does not lead, or stops leading; if the awaitable raises it, the records may or may not be committed later."""
        self._check_running()
        machine = self.machine
        self._step(Propose(payload, count))
        self._check_running()
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._proposals.append(_Proposal(machine.quorum.log.end_offset - 1, machine.epoch, done))
        return done

    async def handle(self, request: RaftRequest) -> RaftResponse:
        """Answer a request from another replica. Raises KafkaError if this replica is stopping or overloaded."""
        self._check_running()
        if len(self._effects) >= EFFECTS_WAITING_MAX:
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE, "The disk of this replica is too slow for the quorum; retry later."
            )
        self._next_token += 1
        token = self._next_token
        future: asyncio.Future[RaftResponse] = asyncio.get_running_loop().create_future()
        self._waiting[token] = future
        try:
            self._step(Received(token, request))
            return await future
        finally:
            self._waiting.pop(token, None)

    def snapshot_controls(self, end_offset: int) -> tuple[OffsetAndEpoch, int, Voters | None]:
        """The id, kraft.version and voters of a snapshot of the records below `end_offset`."""
        return self.machine.snapshot_id(end_offset), *self.machine.snapshot_controls(end_offset)

    def snapshot_taken(self, snapshot_id: OffsetAndEpoch, *, clean: bool = True) -> None:
        """Report that a snapshot has become durable. With `clean`, the log below the snapshot's end is deleted."""
        self._step(SnapshotTaken(snapshot_id, clean))

    def resign(self, *, shutting_down: bool = False) -> None:
        """Resign, if this node leads. `shutting_down`: the node is about to stop."""
        self._step(Resign(self.machine.epoch, shutting_down))

    def upgrade_kraft_version(self) -> None:
        """Change kraft.version to 1, so that the voters can change. Raises NotRaftLeaderError if that is not yet
        possible."""
        self._step(UpgradeKRaftVersion())

    def describe(self) -> QuorumInfo:
        """The quorum for DescribeQuorum. The times are those of the event loop's clock. Raises NotRaftLeaderError
        unless this replica leads."""
        return self.machine.describe(self._now_ms())

    # ---- stepping

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def _check_running(self) -> None:
        if self._failure is not None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"The replica has stopped: {self._failure}")

    def _step(self, event: Event) -> None:
        if self._failure is not None:
            return
        try:
            effects = self.machine.step(event, self._now_ms())
        except NotRaftLeaderError:
            raise
        except (IllegalRaftStateError, AssertionError) as error:
            log.error("the replica stops: an invariant of the quorum is broken", reason=str(error))
            self._failure = error
            self._work.set()
            return
        self._effects.append(effects)
        self._work.set()
        self._set_timer(effects.wake_at_ms)

    def _set_timer(self, wake_at_ms: int | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wake_at_ms is not None:
            loop = asyncio.get_running_loop()
            # Half a millisecond later, so that the clock, rounded down to milliseconds, has reached the time.
            self._timer = loop.call_at(wake_at_ms / 1000 + 0.0005, self._step, Tick())

    # ---- carrying out

    async def _carry_out_loop(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            while self._effects and self._failure is None:
                await self._carry_out(self._effects.popleft())
            if self._failure is not None:
                raise self._failure

    async def _carry_out(self, effects: Effects) -> None:
        if effects.election is not None:
            await self._ports.votes.save(effects.election)
        for op in effects.log_ops:
            self._write(op)
        if effects.sync_ticket is not None:
            self._written_ticket = effects.sync_ticket
            self._unsynced.set()
        if effects.load_snapshot is not None:
            self._ports.listener.on_snapshot(effects.load_snapshot)
            self._delivered = effects.load_snapshot.offset
        if effects.high_watermark is not None:
            await self._deliver(effects.high_watermark)
        if effects.leader is not None:
            if effects.leader.leader_id != self._me.id:
                self._fail_proposals(effects.leader)
            self._ports.listener.on_leader(effects.leader)
        for send in effects.sends:
            self._spawn(self._send(send))
        for reply in effects.replies:
            self._reply(reply)

    def _write(self, op: LogOp) -> None:
        match op:
            case WriteSnapshot(snapshot_id, position, data):
                self._ports.snapshots.write(snapshot_id, position, data)
            case FinishSnapshot(snapshot_id):
                self._spawn(self._finish_snapshot(snapshot_id))
            case _:
                self._ports.log.apply(op)

    async def _finish_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        version, voters = await self._ports.snapshots.finish(snapshot_id)
        self._step(SnapshotStored(snapshot_id, version, voters))

    async def _sync_loop(self) -> None:
        while True:
            await self._unsynced.wait()
            self._unsynced.clear()
            ticket = self._written_ticket
            await self._ports.log.sync()
            self._step(Synced(ticket))

    async def _deliver(self, high_watermark: int) -> None:
        """Pass committed batches to the listener, then complete the proposals. A node that starts has many of them,
        and other tasks run in between. Nothing overtakes this: later effects wait in `_effects`."""
        pauses = Pauses()
        while self._delivered < high_watermark:
            before = self._delivered
            for batch in self._ports.log.read(self._delivered, _COMMIT_READ_BYTES):
                if batch.next_offset > high_watermark:
                    break
                if not batch.controls:
                    self._ports.listener.on_commit(batch)
                self._delivered = batch.next_offset
                await pauses.after(batch.next_offset - batch.base_offset)
            if self._delivered == before:
                raise IllegalRaftStateError(f"The log cannot be read at {before}, below the high watermark.")
        self._ports.listener.on_high_watermark(high_watermark)
        while self._proposals and self._proposals[0].last_offset < high_watermark:
            proposal = self._proposals.popleft()
            if not proposal.done.done():
                proposal.done.set_result(proposal.last_offset)

    def _fail_proposals(self, leader: LeaderAndEpoch | None) -> None:
        """Fail the proposals of the epochs up to `leader.epoch`, or all of them if `leader` is None."""
        while self._proposals and (leader is None or self._proposals[0].epoch <= leader.epoch):
            proposal = self._proposals.popleft()
            if not proposal.done.done():
                proposal.done.set_exception(NotRaftLeaderError("Leadership was lost before this was committed."))
                proposal.done.exception()  # mark the exception as retrieved, for a proposer that does not wait

    def _spawn(self, work: Awaitable[None]) -> None:
        assert self._tasks is not None
        self._tasks.create_task(_run(work))

    async def _send(self, send: SendRequest) -> None:
        event: Event
        try:
            async with asyncio.timeout(self._config.controller_quorum_request_timeout_ms / 1000):
                response = await self._ports.network.send(send.destination, send.endpoints, send.request)
            event = Answered(send.destination, send.correlation_id, response)
        except (OSError, TimeoutError, KafkaError) as error:
            log.debug("a request to another replica failed", node=send.destination, reason=str(error))
            event = SendFailed(send.destination, send.correlation_id, isinstance(error, ConnectionRefusedError))
        self._step(event)

    def _reply(self, reply: Reply) -> None:
        future = self._waiting.get(reply.token)
        if future is not None and not future.done():
            future.set_result(self._fill(reply.response))

    def _fill(self, response: RaftResponse) -> RaftResponse:
        """Read the batches or the part of a snapshot that the response needs."""
        if isinstance(response, FetchResponse) and response.read_offset >= 0:
            batches = tuple(self._ports.log.read(response.read_offset, response.max_bytes))
            return replace(response, batches=batches)
        if isinstance(response, FetchSnapshotResponse) and response.max_bytes and response.snapshot_id is not None:
            found = self._ports.snapshots.read(response.snapshot_id, response.position, response.max_bytes)
            if found is None:
                return replace(response, error=ErrorCode.SNAPSHOT_NOT_FOUND, max_bytes=0)
            size, data = found
            if response.position >= size:
                return replace(response, error=ErrorCode.POSITION_OUT_OF_RANGE, max_bytes=0)
            return replace(response, size=size, data=data, max_bytes=0)
        return response


async def _run(work: Awaitable[None]) -> None:
    await work
