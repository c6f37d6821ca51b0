"""Reads a scripted conversation between Raft machines, and says what came out of it (after etcd/raft's testdata).

    boot VOTERS [observers=N] [kraft=0]      nodes 1..n, in simulated time 0; node i has the i-th shortest timeouts
    tick MS [NODES]                          time passes, for all or for some (the others are paused)
    deliver [A->B]                           deliver what is under way (on that link), and what that brings on, and sync
    hold A->B .. / release                   keep back what is sent on these links / deliver it after all
    drop [A->B]                              lose what is under way
    propose NODE VALUE | resign NODE | snapshot NODE | add NODE ID | remove NODE ID
    crash NODE | restart NODE                power off: all that is not synced is lost / on again
    sync NODES on|off                        whether their disks sync by themselves
    show [NODES]                             where everybody is

Blocks are separated by empty lines; what happens stands below `----`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from barnabas.server.raft.errors import NotRaftLeaderError
from barnabas.server.raft.machine.events import (
    AdvanceStart,
    Answered,
    Append,
    Effects,
    Event,
    FinishSnapshot,
    Propose,
    Received,
    Resign,
    SnapshotStored,
    SnapshotTaken,
    StartLogAt,
    Synced,
    Tick,
    TruncateFrom,
    WriteSnapshot,
)
from barnabas.server.raft.machine.messages import (
    AddVoterRequest,
    FetchResponse,
    FetchSnapshotResponse,
    RemoveVoterRequest,
)
from barnabas.server.raft.machine.raft import RaftMachine
from barnabas.server.raft.machine.values import RaftBatch, RaftConfig, ReplicaKey, VoterNode, Voters
from tests.configs import raft_config
from tests.property.raft_world import SimDisk, Snapshot, decode_snapshot, encode_snapshot, key_of, voter_of


class Slow:
    """The randomness of the script: the higher the node id, the longer each random timeout."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id

    def randrange(self, start: int, stop: int | None = None) -> int:
        return min(self._node_id * 100, (stop or start) - 1)

    def choice(self, seq: Any) -> Any:
        return seq[0]


@dataclass
class Stand:
    """One node of the conversation."""

    node_id: int
    config: RaftConfig
    disk: SimDisk = field(default_factory=SimDisk)
    machine: RaftMachine | None = None
    ticket: int | None = None
    syncs: bool = True


@dataclass(frozen=True)
class Letter:
    source: int
    target: int
    event: Any
    """A function of the token for a request; the event for a response."""


class Stage:
    def __init__(self) -> None:
        self.now = 0
        self.nodes: dict[int, Stand] = {}
        self.mail: list[Letter] = []
        self.held: set[str] = set()
        self.out: list[str] = []
        self.tokens: dict[int, tuple[int, int]] = {}
        self.token = 0

    # ---- commands

    def perform(self, line: str) -> None:
        name, *words = line.split()
        getattr(self, f"do_{name}")(*words)

    def do_boot(self, voters: str, *options: str) -> None:
        given = dict(option.split("=") for option in options)
        kraft, observers = int(given.get("kraft", "1")), int(given.get("observers", "0"))
        keys = [key_of(i) if kraft else ReplicaKey(i) for i in range(1, int(voters) + 1)]
        members = Voters(tuple(voter_of(key) for key in keys))
        bootstrap = tuple((voter.key.id, voter.endpoints) for voter in members.members)
        for i in range(1, int(voters) + observers + 1):
            config = raft_config(
                voters=members,
                kraft_version=kraft,
                endpoints=voter_of(key_of(i)).endpoints,
                bootstrap=bootstrap,
                controller_quorum_fetch_snapshot_max_bytes=24,
            )
            self.nodes[i] = Stand(i, config)
            self.do_restart(str(i))

    def do_restart(self, node: str) -> None:
        stand = self.nodes[int(node)]
        summary = stand.disk.summary()
        rng: Any = Slow(stand.node_id)
        stand.machine = RaftMachine(key_of(stand.node_id), stand.config, stand.disk.election, summary, rng, self.now)
        self.step(stand, Tick())

    def do_crash(self, node: str) -> None:
        stand = self.nodes[int(node)]
        stand.machine = None
        nothing_survives: Any = random.Random()
        nothing_survives.randrange = lambda stop: 0
        stand.disk.power_cut(nothing_survives)
        self.mail = [letter for letter in self.mail if letter.target != stand.node_id]

    def do_tick(self, ms: str, *nodes: str) -> None:
        self.now += int(ms)
        for stand in self._chosen(nodes):
            self.step(stand, Tick())

    def do_deliver(self, *links: str) -> None:
        for _ in range(500):
            letter = next((item for item in self.mail if self._flows(item, links)), None)
            if letter is None:
                if not self._sync_all():
                    return
                continue
            self.mail.remove(letter)
            stand = self.nodes[letter.target]
            if stand.machine is None:
                continue
            event = letter.event
            if not isinstance(event, Answered):
                self.token += 1
                correlation_id, request = event
                self.tokens[self.token] = (letter.source, correlation_id)
                event = Received(self.token, request)
            self.step(stand, event)
        raise AssertionError("the conversation does not come to rest")

    def do_hold(self, *links: str) -> None:
        self.held |= set(links)

    def do_release(self) -> None:
        self.held.clear()

    def do_drop(self, *links: str) -> None:
        self.mail = [item for item in self.mail if links and f"{item.source}->{item.target}" not in links]

    def do_sync(self, *words: str) -> None:
        for stand in self._chosen(words[:-1]):
            stand.syncs = words[-1] == "on"
        self._sync_all()

    def do_propose(self, node: str, value: str) -> None:
        try:
            self.step(self.nodes[int(node)], Propose(value.encode(), 1))
        except NotRaftLeaderError as error:
            self.out.append(f"{node} refuses: {error}")

    def do_resign(self, node: str) -> None:
        stand = self.nodes[int(node)]
        assert stand.machine is not None
        self.step(stand, Resign(stand.machine.epoch))

    def do_snapshot(self, node: str) -> None:
        stand = self.nodes[int(node)]
        machine = stand.machine
        assert machine is not None
        snapshot_id = machine.snapshot_id(machine.high_watermark)
        version, voters = machine.snapshot_controls(machine.high_watermark)
        data = b"".join(bytes(batch.payload) for batch in stand.disk.read(0, 1000)) + b"." * 40
        stand.disk.snapshots[snapshot_id] = Snapshot(data, version, voters)
        self.step(stand, SnapshotTaken(snapshot_id))

    def do_add(self, node: str, added: str) -> None:
        key = key_of(int(added))
        self._ask(node, AddVoterRequest(key, voter_of(key).endpoints))

    def do_remove(self, node: str, removed: str) -> None:
        self._ask(node, RemoveVoterRequest(key_of(int(removed))))

    def do_show(self, *nodes: str) -> None:
        for stand in self._chosen(nodes):
            machine = stand.machine
            if machine is None:
                continue
            q = machine.quorum
            voted = f" voted {q.voted.id}" if q.voted else ""
            role = type(q.state).__name__ + ("" if q.is_voter else " (observer)")
            self.out.append(
                f"{stand.node_id}: {role} epoch {q.epoch} leader {q.leader_id}{voted} log {q.log.start.offset}.."
                f"{q.log.end} high watermark {q.high_watermark} voters {','.join(map(str, q.voters.ids))}"
            )

    def _ask(self, node: str, request: Any) -> None:
        self.token += 1
        self.step(self.nodes[int(node)], Received(self.token, request))

    def _chosen(self, nodes: tuple[str, ...]) -> Iterator[Stand]:
        for node_id in map(int, nodes) if nodes else list(self.nodes):
            if self.nodes[node_id].machine is not None:
                yield self.nodes[node_id]

    def _flows(self, letter: Letter, links: tuple[str, ...]) -> bool:
        link = f"{letter.source}->{letter.target}"
        return link not in self.held and (not links or link in links)

    # ---- effects

    def step(self, stand: Stand, event: Event) -> None:
        assert stand.machine is not None
        before = stand.machine.quorum.state
        effects = stand.machine.step(event, self.now)
        me = stand.node_id
        q = stand.machine.quorum
        if q.state is not before:
            leader = f" of {q.leader_id}" if type(q.state).__name__ == "Follower" else ""
            self.out.append(f"{me} becomes {type(q.state).__name__}{leader} in epoch {q.epoch}")
        self._carry_out(stand, effects)

    def _carry_out(self, stand: Stand, effects: Effects) -> None:
        me = stand.node_id
        if effects.election is not None:
            stand.disk.election = effects.election
            e = effects.election
            voted = e.voted.id if e.voted else "-"
            self.out.append(f"{me} saves epoch {e.epoch} leader {e.leader_id} voted {voted}")
        stored = []
        for op in effects.log_ops:
            match op:
                case WriteSnapshot(snapshot_id, position, data):
                    part = stand.disk.partial.setdefault(snapshot_id, bytearray())
                    del part[position:]
                    part += data
                case FinishSnapshot(snapshot_id):
                    version, voters, data = decode_snapshot(bytes(stand.disk.partial.pop(snapshot_id)))
                    stand.disk.snapshots[snapshot_id] = Snapshot(data, version, voters)
                    stored.append(SnapshotStored(snapshot_id, version, voters))
                case _:
                    stand.disk.apply(op)
            self.out.append(f"{me} {_op(op)}")
        if effects.sync_ticket is not None:
            stand.ticket = effects.sync_ticket
        if effects.load_snapshot is not None:
            self.out.append(f"{me} loads snapshot {effects.load_snapshot}")
        if effects.high_watermark is not None:
            self.out.append(f"{me} commits up to {effects.high_watermark}")
        for send in effects.sends:
            self.out.append(f"{me} -> {send.destination} {_text(send.request)}")
            self.mail.append(Letter(me, send.destination, (send.correlation_id, send.request)))
        for reply in effects.replies:
            response = self._fill(stand, reply.response)
            target, correlation_id = self.tokens.pop(reply.token, (0, 0))
            self.out.append(f"{me} => {target or 'client'} {_text(response)}")
            if target:
                self.mail.append(Letter(me, target, Answered(me, correlation_id, response)))
        for event in stored:
            self.step(stand, event)

    def _sync_all(self) -> bool:
        moved = False
        for stand in self._chosen(()):
            if stand.ticket is not None and stand.syncs:
                ticket, stand.ticket = stand.ticket, None
                stand.disk.sync_up_to(stand.disk.written)
                self.step(stand, Synced(ticket))
                moved = True
        return moved

    def _fill(self, stand: Stand, response: Any) -> Any:
        if isinstance(response, FetchResponse) and response.read_offset >= 0:
            return replace(response, batches=stand.disk.read(response.read_offset, 10))
        if isinstance(response, FetchSnapshotResponse) and response.max_bytes and response.snapshot_id:
            data = encode_snapshot(stand.disk.snapshots[response.snapshot_id])
            piece = data[response.position : response.position + response.max_bytes]
            return replace(response, size=len(data), data=piece)
        return response


# ---- words


_SILENT = {"endpoints", "max_bytes", "max_wait_ms", "read_offset", "timeout_ms", "ack_when_committed"}
_USUAL: dict[str, Any] = {"error": 0, "leader_id": -1, "granted": False, "pre_vote": False, "message": ""}


def _text(message: Any) -> str:
    words = [type(message).__name__.removesuffix("Request").removesuffix("Response")]
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if name in _SILENT or value is None or value == () or (name in _USUAL and value == _USUAL[name]):
            continue
        words.append(f"{name}={_value(value)}")
    return " ".join(words)


def _value(value: Any) -> str:
    if isinstance(value, ReplicaKey):
        return str(value.id)
    if isinstance(value, tuple) and type(value) is tuple:
        return "[" + " ".join(_value(item) for item in value) + "]"
    if isinstance(value, RaftBatch):
        return _batch(value)
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, VoterNode):
        return str(value.key.id)
    return value.name if hasattr(value, "name") else str(value)


def _batch(batch: RaftBatch) -> str:
    content = "+".join(_control(control) for control in batch.controls) or bytes(batch.payload).decode()
    return f"{batch.base_offset}@{batch.epoch}:{content}"


def _control(control: Any) -> str:
    if isinstance(control, Voters):
        return "Voters(" + ",".join(map(str, control.ids)) + ")"
    return type(control).__name__.removesuffix("Control")


def _op(op: Any) -> str:
    if isinstance(op, Append):
        return f"appends {_batch(op.batch)}"
    if isinstance(op, WriteSnapshot):
        return f"writes {len(op.data)} bytes at {op.position} of snapshot {op.snapshot_id}"
    if isinstance(op, TruncateFrom):
        return f"truncates to {op.offset}"
    return f"{_OPS[type(op)]} {op.snapshot_id}"


_OPS = {
    StartLogAt: "drops its log, which starts anew at",
    AdvanceStart: "drops its log before",
    FinishSnapshot: "finishes snapshot",
}


def replay_script(text: str) -> str:
    """The script with its expected output replaced by the actual output."""
    stage = Stage()
    blocks = []
    for block in re.split(r"\n\n+", text.strip()):
        lines = block.splitlines()
        kept = lines[: lines.index("----")] if "----" in lines else lines
        commands = [line for line in kept if not line.startswith("#")]
        stage.out = []
        for command in commands:
            stage.perform(command)
        blocks.append("\n".join([*kept, *(["----", *stage.out] if commands else [])]))
    return "\n\n".join(blocks) + "\n"
