"""A world for Raft machines: simulated time, network and disks, and whoever breaks them, all from one seed.

The machines are the production ones. This module carries out their effects as `barnabas.server.raft.machine.events`
demands. In between it loses, duplicates, delays and reorders messages, cuts links, pauses nodes, and turns the power
off, which loses what was not synced. After every step the invariants check the node that moved.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from barnabas.core.errors import ErrorCode
from barnabas.server.raft.errors import IllegalRaftStateError, NotRaftLeaderError
from barnabas.server.raft.machine.events import (
    AdvanceStart,
    Answered,
    Append,
    Effects,
    Event,
    FinishSnapshot,
    LogOp,
    Propose,
    Received,
    Reply,
    SendFailed,
    SendRequest,
    SnapshotStored,
    SnapshotTaken,
    StartLogAt,
    Synced,
    Tick,
    TruncateFrom,
    WriteSnapshot,
)
from barnabas.server.raft.machine.messages import FetchResponse, FetchSnapshotResponse, RaftRequest, RaftResponse
from barnabas.server.raft.machine.raft import RaftMachine
from barnabas.server.raft.machine.values import (
    ORIGIN,
    ElectionState,
    KRaftVersionControl,
    LogSummary,
    OffsetAndEpoch,
    RaftBatch,
    RaftConfig,
    RaftEndpoint,
    ReplicaKey,
    VoterNode,
    Voters,
)
from tests.configs import raft_config


class InvariantViolation(AssertionError):  # noqa: N818  what it is called in every simulation of this kind
    """An invariant is violated. The message contains the seed and the last steps."""


class LivenessFailure(AssertionError):  # noqa: N818
    """There was no progress although a majority of the nodes was healthy."""


def key_of(node_id: int, life: int = 0) -> ReplicaKey:
    return ReplicaKey(node_id, UUID(int=node_id * 100 + life))


def voter_of(key: ReplicaKey) -> VoterNode:
    return VoterNode(key, (RaftEndpoint("CONTROLLER", f"host{key.id}", 9093),))


@dataclass(frozen=True)
class Snapshot:
    data: bytes
    kraft_version: int
    voters: Voters | None


class SimDisk:
    """The disk of a node. A power failure keeps the synced part of `log`, and a part of the later records."""

    def __init__(self) -> None:
        self.election = ElectionState()
        self.start = ORIGIN
        self.log: list[RaftBatch] = []
        self.snapshots: dict[OffsetAndEpoch, Snapshot] = {}
        self.partial: dict[OffsetAndEpoch, bytearray] = {}
        self._synced_start = ORIGIN
        self._synced: list[RaftBatch] = []
        self._journal: list[LogOp] = []
        self.written = 0

    def apply(self, op: LogOp) -> None:
        self.start = _apply(self.log, self.start, op)
        self._journal.append(op)
        self.written += 1

    def sync_up_to(self, written: int) -> None:
        keep = self.written - written
        done = len(self._journal) - keep
        for op in self._journal[: max(done, 0)]:
            self._synced_start = _apply(self._synced, self._synced_start, op)
        del self._journal[: max(done, 0)]
        first = self._synced_start.offset
        if first > 0:  # not before: after a power cut the log would start where no snapshot ends
            self.snapshots = {s: self.snapshots[s] for s in self.snapshots if s.offset >= first}

    def power_cut(self, rng: random.Random) -> None:
        survivors = rng.randrange(len(self._journal) + 1)
        for op in self._journal[:survivors]:
            self._synced_start = _apply(self._synced, self._synced_start, op)
        self._journal.clear()
        self.log, self.start = list(self._synced), self._synced_start
        self.partial.clear()

    def synced_epoch_at(self, offset: int) -> int | None:
        """The epoch of the durable record at `offset`; None if there is none. Below the start, the snapshot has it."""
        if offset < self._synced_start.offset:
            return -1
        if any(snapshot_id.offset > offset for snapshot_id in self.snapshots):
            return -1
        return _epoch_at(self._synced, offset)

    @property
    def end_offset(self) -> int:
        return self.log[-1].next_offset if self.log else self.start.offset

    def read(self, offset: int, batches_max: int) -> tuple[RaftBatch, ...]:
        index = next((i for i, batch in enumerate(self.log) if batch.next_offset > offset), len(self.log))
        return tuple(self.log[index : index + batches_max])

    def summary(self) -> LogSummary:
        """The summary that the driver gets when it opens the log."""
        last_epoch = self.log[-1].epoch if self.log else self.start.epoch
        beyond = [s for s in self.snapshots if s > OffsetAndEpoch(last_epoch, self.end_offset)]
        if beyond:
            self.apply(StartLogAt(max(beyond)))
            self.sync_up_to(self.written)
        good = [s for s in self.snapshots if s == self.start or _epoch_at(self.log, s.offset - 1) == s.epoch]
        self.snapshots = {s: self.snapshots[s] for s in sorted(good) if s.offset >= self.start.offset}
        epochs: list[tuple[int, int]] = []
        versions: list[tuple[int, int]] = []
        voters: list[tuple[int, Voters]] = []
        base = self.snapshots.get(self.start)
        if base is not None:
            versions.append((self.start.offset - 1, base.kraft_version))
            if base.voters is not None:
                voters.append((self.start.offset - 1, base.voters))
        for batch in self.log:
            if not epochs or batch.epoch > epochs[-1][0]:
                epochs.append((batch.epoch, batch.base_offset))
            for index, control in enumerate(batch.controls):
                if isinstance(control, KRaftVersionControl):
                    versions.append((batch.base_offset + index, control.version))
                elif isinstance(control, Voters):
                    voters.append((batch.base_offset + index, control))
        return LogSummary(
            self.start, self.end_offset, tuple(epochs), tuple(self.snapshots), tuple(versions), tuple(voters)
        )


def _epoch_at(log: list[RaftBatch], offset: int) -> int | None:
    return next((batch.epoch for batch in log if batch.base_offset <= offset < batch.next_offset), None)


def _apply(log: list[RaftBatch], start: OffsetAndEpoch, op: LogOp) -> OffsetAndEpoch:
    match op:
        case Append(batch):
            log.append(batch)
        case TruncateFrom(offset):
            while log and log[-1].next_offset > offset:
                log.pop()
        case StartLogAt(snapshot_id):
            log.clear()
            return snapshot_id
        case AdvanceStart(snapshot_id):
            while log and log[0].next_offset <= snapshot_id.offset:
                log.pop(0)
            return snapshot_id
        case _:
            raise AssertionError(op)
    return start


@dataclass
class Faults:
    """The delays and fault rates of the simulation. Times are in milliseconds."""

    loss: float = 0.03
    duplicate: float = 0.05
    slow: float = 0.03
    latency: tuple[int, int] = (1, 30)
    sync: tuple[int, int] = (0, 15)
    store: tuple[int, int] = (0, 30)
    """The time until a fetched snapshot is durable."""
    crash_in_step: float = 0.0
    """The probability of a power failure while a step's effects are carried out."""


@dataclass(frozen=True)
class Acked:
    offset: int
    epoch: int
    value: bytes


@dataclass
class Node:
    key: ReplicaKey
    config: RaftConfig
    disk: SimDisk = field(default_factory=SimDisk)
    machine: RaftMachine | None = None
    life: int = 0
    """The number of starts. Messages and timers for an earlier process are ignored."""
    paused_until: int = 0
    wake: int | None = None
    proposed: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    """Offset -> (epoch, value) of the proposals that this leader has not acknowledged."""
    applied: int = 0
    """The state machine has received the records below this offset."""
    state: list[tuple[int, bytes]] = field(default_factory=list)
    """The state machine: every committed value with its offset."""

    @property
    def id(self) -> int:
        return self.key.id


class World:
    """A cluster, its clock, and the messages and timers in flight."""

    def __init__(
        self,
        seed: int,
        *,
        voters: int = 3,
        observers: int = 0,
        kraft_version: int = 1,
        faults: Faults | None = None,
        config: RaftConfig | None = None,
        invariants: Sequence[Any] = (),
    ) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.faults = faults or Faults()
        self.now = 1000
        self.nodes: dict[int, Node] = {}
        self.cut: set[tuple[int, int]] = set()
        self.history: list[str] = []
        self.invariants = list(invariants)
        self.acked: list[Acked] = []
        self.answers: dict[int, RaftResponse] = {}
        self.steps = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._tokens: dict[int, tuple[int, int, int]] = {}
        self._next_token = 0
        self._next_value = 0
        base = config or raft_config(controller_quorum_fetch_snapshot_max_bytes=100)
        keys = [key_of(i) for i in range(1, voters + 1)]
        members = tuple(voter_of(k if kraft_version else ReplicaKey(k.id)) for k in keys)
        bootstrap = tuple((voter.key.id, voter.endpoints) for voter in members)
        self.base = replace(base, voters=Voters(members), kraft_version=kraft_version, bootstrap=bootstrap)
        for node_id in range(1, voters + observers + 1):
            self.nodes[node_id] = Node(key_of(node_id), self._config(node_id))
        for node in self.nodes.values():
            self.start(node)

    def _config(self, node_id: int) -> RaftConfig:
        return replace(self.base, endpoints=voter_of(key_of(node_id)).endpoints)

    # ---- time

    def at(self, delay: int, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (self.now + delay, self._sequence, action))

    def run(self, duration: int, until: Callable[[], bool] | None = None) -> bool:
        """Run until the condition holds (True) or the time is over (False)."""
        end = self.now + duration
        while self._queue and self._queue[0][0] <= end:
            time, _, action = heapq.heappop(self._queue)
            self.now = time
            action()
            if until is not None and until():
                return True
        self.now = end
        return until is not None and until()

    def note(self, text: str) -> None:
        self.history.append(f"{self.now:>7} {text}")
        del self.history[:-400]

    def fail(self, kind: type[AssertionError], name: str, text: str) -> None:
        tail = "\n".join(self.history[-40:])
        raise kind(f"{name}: {text} (seed {self.seed}, step {self.steps})\n{tail}")

    # ---- nodes

    def start(self, node: Node) -> None:
        assert node.machine is None
        node.life += 1
        node.paused_until = 0
        summary = node.disk.summary()
        node.applied, node.state = 0, []
        node.proposed = {}
        self.note(f"start {node.key} end={summary.end_offset} {node.disk.election}")
        if summary.start.offset > 0:
            self._load(node, summary.start)
        seed = random.Random(self.rng.getrandbits(64))
        try:
            node.machine = RaftMachine(node.key, node.config, node.disk.election, summary, seed, self.now)
        except IllegalRaftStateError as error:
            self.fail(InvariantViolation, "NoIllegalState", str(error))
        self.deliver(node, node.life, Tick())

    def crash(self, node: Node) -> None:
        """A power failure: unsynced data are lost, completely or in part."""
        self.note(f"crash {node.key}")
        node.machine = None
        node.wake = None
        node.disk.power_cut(self.rng)

    def wipe(self, node: Node, *, new_directory: bool) -> None:
        """Replace the node's disk by an empty one."""
        if node.machine is not None:
            self.crash(node)
        self.note(f"wipe {node.key}")
        node.disk = SimDisk()
        if new_directory:
            node.key = key_of(node.id, node.key.directory_id.int % 100 + 1)

    def pause(self, node: Node, duration: int) -> None:
        self.note(f"pause {node.key} for {duration}")
        node.paused_until = self.now + duration

    @property
    def running(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.machine is not None]

    @property
    def leaders(self) -> list[Node]:
        return [node for node in self.running if node.machine is not None and node.machine.is_leader]

    def leader(self) -> Node | None:
        """The leader of the latest epoch that a node knows."""
        return max(self.leaders, key=lambda n: n.machine.epoch if n.machine else 0, default=None)

    # ---- events and effects

    def deliver(self, node: Node, life: int, event: Event) -> None:
        if node.machine is None or node.life != life:
            return
        if node.paused_until > self.now:
            self.at(node.paused_until - self.now, lambda: self.deliver(node, life, event))
            return
        self.steps += 1
        machine = node.machine
        before = machine.quorum.state
        try:
            effects = machine.step(event, self.now)
        except NotRaftLeaderError:
            raise
        except (IllegalRaftStateError, AssertionError) as error:
            self.note(f"{node.key} {event}")
            self.fail(InvariantViolation, "NoIllegalState", f"{node.key}: {error!r}")
            return
        if machine.quorum.state is not before:
            q = machine.quorum
            self.note(f"{node.key} -> {type(q.state).__name__} epoch {q.epoch} leader {q.leader_id} end {q.log.end}")
        for invariant in self.invariants:
            invariant.on_step(self, node, effects)
        self._carry_out(node, machine, effects)

    def _carry_out(self, node: Node, machine: RaftMachine, effects: Effects) -> None:
        crash_at = self.rng.randrange(4) if self.rng.random() < self.faults.crash_in_step else -1
        if effects.election is not None:
            self.write_election(node, effects.election)
        if crash_at == 0:
            return self.crash(node)
        for op in effects.log_ops:
            self._write(node, machine, op)
        if crash_at == 1:
            return self.crash(node)
        if effects.sync_ticket is not None:
            self._sync(node, effects.sync_ticket)
        if effects.load_snapshot is not None:
            self._load(node, effects.load_snapshot)
        if effects.high_watermark is not None:
            self._commit(node, effects.high_watermark)
        for invariant in self.invariants:
            invariant.on_done(self, node, effects)
        if crash_at == 2:
            return self.crash(node)
        for send in effects.sends:
            self._send(node, send)
        for reply in effects.replies:
            self._reply(node, reply)
        if crash_at == 3:
            return self.crash(node)
        self._wake(node, effects.wake_at_ms)
        return None

    def write_election(self, node: Node, election: ElectionState) -> None:
        node.disk.election = election

    def _wake(self, node: Node, wake_at: int | None) -> None:
        node.wake = wake_at
        if wake_at is None:
            return
        life = node.life

        def tick() -> None:
            if node.life == life and node.wake == wake_at:
                self.deliver(node, life, Tick())

        self.at(max(wake_at - self.now, 1), tick)

    def _write(self, node: Node, machine: RaftMachine, op: LogOp) -> None:
        disk = node.disk
        match op:
            case WriteSnapshot(snapshot_id, position, data):
                part = disk.partial.setdefault(snapshot_id, bytearray())
                del part[position:]
                part += data
            case FinishSnapshot(snapshot_id):
                version, voters, data = decode_snapshot(bytes(disk.partial.pop(snapshot_id)))
                life = node.life

                def stored() -> None:
                    if node.life == life and node.machine is not None:
                        disk.snapshots[snapshot_id] = Snapshot(data, version, voters)
                        self.deliver(node, life, SnapshotStored(snapshot_id, version, voters))

                self.at(self.rng.randint(*self.faults.store), stored)
            case _:
                disk.apply(op)

    def _sync(self, node: Node, ticket: int) -> None:
        written, life, disk = node.disk.written, node.life, node.disk

        def done() -> None:
            if node.life == life and node.machine is not None:
                disk.sync_up_to(written)
                self.deliver(node, life, Synced(ticket))

        self.at(self.rng.randint(*self.faults.sync), done)

    # ---- the state machine

    def _commit(self, node: Node, high_watermark: int) -> None:
        for batch in node.disk.read(node.applied, 1_000_000):
            if batch.next_offset > high_watermark:
                break
            if not batch.controls and batch.base_offset >= node.applied:
                node.state.append((batch.base_offset, bytes(batch.payload)))
        node.applied = max(node.applied, high_watermark)
        for offset in [offset for offset in node.proposed if offset < high_watermark]:
            epoch, value = node.proposed.pop(offset)
            if node.machine is not None and node.machine.epoch == epoch and node.machine.is_leader:
                self.acked.append(Acked(offset, epoch, value))

    def _load(self, node: Node, snapshot_id: OffsetAndEpoch) -> None:
        data = node.disk.snapshots[snapshot_id].data
        node.state = [(int.from_bytes(data[i : i + 8], "big"), data[i + 8 : i + 16]) for i in range(0, len(data), 16)]
        node.applied = snapshot_id.offset

    def take_snapshot(self, node: Node) -> None:
        machine = node.machine
        if machine is None or node.applied <= node.disk.start.offset or node.applied > node.disk.end_offset:
            return
        snapshot_id = machine.snapshot_id(node.applied)
        version, voters = machine.snapshot_controls(node.applied)
        data = b"".join(offset.to_bytes(8, "big") + value for offset, value in node.state)
        node.disk.snapshots[snapshot_id] = Snapshot(data, version, voters)
        self.note(f"{node.key} snapshot {snapshot_id}")
        self.deliver(node, node.life, SnapshotTaken(snapshot_id))

    def propose(self, node: Node) -> None:
        machine = node.machine
        if machine is None or not machine.is_leader or node.paused_until > self.now:
            return
        self._next_value += 1
        value = self._next_value.to_bytes(8, "big")
        offset = machine.quorum.log.end_offset
        node.proposed[offset] = (machine.epoch, value)
        self.deliver(node, node.life, Propose(value, 1))

    # ---- the network

    def request(self, node: Node, request: RaftRequest) -> int:
        """Send a request from outside the cluster. The response is stored in `answers`."""
        self._next_token += 1
        self.deliver(node, node.life, Received(self._next_token, request))
        return self._next_token

    def connected(self, source: int, destination: int) -> bool:
        return (source, destination) not in self.cut

    def _latency(self) -> int:
        slow = self.rng.random() < self.faults.slow
        return self.rng.randint(200, 1500) if slow else self.rng.randint(*self.faults.latency)

    def _send(self, node: Node, send: SendRequest) -> None:
        target = self.nodes.get(send.destination)
        lost = self.rng.random() < self.faults.loss
        if target is None or lost or not self.connected(node.id, send.destination):
            if self.rng.random() < 0.5:
                life = node.life
                failed = SendFailed(send.destination, send.correlation_id)
                self.at(self._latency(), lambda: self.deliver(node, life, failed))
            return
        copies = 2 if self.rng.random() < self.faults.duplicate else 1
        origin = (node.id, node.life, send.correlation_id)
        for _ in range(copies):
            self.at(self._latency(), lambda: self._arrive(target, origin, send.request))

    def _arrive(self, target: Node, origin: tuple[int, int, int], request: RaftRequest) -> None:
        if self.connected(origin[0], target.id) and target.machine is not None:
            self._next_token += 1
            self._tokens[self._next_token] = origin
            self.deliver(target, target.life, Received(self._next_token, request))

    def _reply(self, node: Node, reply: Reply) -> None:
        response = self._fill(node, reply.response)
        origin = self._tokens.pop(reply.token, None)
        if origin is None:
            self.answers[reply.token] = response
            return
        source_id, life, correlation_id = origin
        source = self.nodes[source_id]
        if self.rng.random() < self.faults.loss or not self.connected(node.id, source_id):
            return
        answered = Answered(node.id, correlation_id, response)
        copies = 2 if self.rng.random() < self.faults.duplicate else 1
        for _ in range(copies):
            self.at(self._latency(), lambda: self._answer(node.id, source, life, answered))

    def _answer(self, sender: int, source: Node, life: int, answered: Answered) -> None:
        if self.connected(sender, source.id):
            self.deliver(source, life, answered)

    def _fill(self, node: Node, response: RaftResponse) -> RaftResponse:
        if isinstance(response, FetchResponse) and response.read_offset >= 0:
            return replace(response, batches=node.disk.read(response.read_offset, self.rng.randint(1, 8)))
        if isinstance(response, FetchSnapshotResponse) and response.max_bytes and response.snapshot_id is not None:
            snapshot = node.disk.snapshots.get(response.snapshot_id)
            if snapshot is None:
                return replace(response, error=ErrorCode.SNAPSHOT_NOT_FOUND)
            data = encode_snapshot(snapshot)
            if response.position >= len(data):
                return replace(response, error=ErrorCode.POSITION_OUT_OF_RANGE)
            piece = data[response.position : response.position + response.max_bytes]
            return replace(response, size=len(data), data=piece)
        return response

    # ---- cutting links

    def partition(self, *groups: Sequence[int]) -> None:
        self.note(f"partition {groups}")
        side = {node_id: index for index, group in enumerate(groups) for node_id in group}
        ids = list(self.nodes)
        self.cut = {(a, b) for a in ids for b in ids if side.get(a, -1) != side.get(b, -1)}

    def heal(self) -> None:
        self.note("heal")
        self.cut.clear()


_SNAPSHOT_CONTROLS: dict[int, tuple[int, Voters | None]] = {}


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """The file: controls, by number, and the state."""
    number = hash((snapshot.kraft_version, snapshot.voters)) & 0xFFFFFFFFFFFFFFF
    _SNAPSHOT_CONTROLS[number] = (snapshot.kraft_version, snapshot.voters)
    return number.to_bytes(8, "big") + snapshot.data


def decode_snapshot(data: bytes) -> tuple[int, Voters | None, bytes]:
    version, voters = _SNAPSHOT_CONTROLS[int.from_bytes(data[:8], "big")]
    return version, voters, data[8:]
