"""What must always hold in a Raft cluster: those of Kafka's RaftEventSimulationTest and of the KRaft specification.

An invariant looks at the node that has just moved, twice: `on_step` when the machine has decided, `on_done` when that
is written and before anyone else hears of it. It keeps what it has seen, across crashes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.server.raft.machine.events import Append, Effects
from barnabas.server.raft.machine.messages import VoteResponse
from barnabas.server.raft.machine.states import Candidate, Leader, Prospective
from barnabas.server.raft.machine.values import RaftBatch, Voters

if TYPE_CHECKING:
    from tests.property.raft_world import Node, World


class Invariant:
    def on_step(self, world: World, node: Node, effects: Effects) -> None: ...

    def on_done(self, world: World, node: Node, effects: Effects) -> None: ...

    def violated(self, world: World, text: str) -> None:
        from tests.property.raft_world import InvariantViolation

        world.fail(InvariantViolation, type(self).__name__, text)


class MonotonicEpoch(Invariant):
    """A replica never goes back to an earlier epoch, not even over a restart."""

    def __init__(self) -> None:
        self.seen: dict[object, int] = {}

    def on_done(self, world: World, node: Node, effects: Effects) -> None:
        assert node.machine is not None
        epoch = node.machine.epoch
        if epoch < self.seen.get(node.key, 0):
            self.violated(world, f"{node.key} went from epoch {self.seen[node.key]} to {epoch}")
        self.seen[node.key] = epoch


class SingleLeader(Invariant):
    """NeverTwoLeadersInSameEpoch: an epoch has one leader, also over time and over restarts of the leader."""

    def __init__(self) -> None:
        self.leaders: dict[int, tuple[object, int]] = {}

    def on_done(self, world: World, node: Node, effects: Effects) -> None:
        assert node.machine is not None
        if node.machine.is_leader:
            me = (node.key, node.life)
            other = self.leaders.setdefault(node.machine.epoch, me)
            if other != me:
                self.violated(world, f"{other} and {me} both led epoch {node.machine.epoch}")


class OneVotePerEpoch(Invariant):
    """A replica votes for at most one candidate in an epoch."""

    def __init__(self) -> None:
        self.votes: dict[tuple[object, int], object] = {}

    def on_done(self, world: World, node: Node, effects: Effects) -> None:
        assert node.machine is not None
        q = node.machine.quorum
        if q.voted is None:
            return
        granted = any(isinstance(r.response, VoteResponse) and r.response.granted for r in effects.replies)
        if isinstance(q.state, Candidate) or (granted and effects.election is not None):
            vote = self.votes.setdefault((node.key, q.epoch), q.voted)
            if vote != q.voted:
                self.violated(world, f"{node.key} voted for {vote} and {q.voted} in epoch {q.epoch}")


class MajorityReachedHighWatermark(Invariant):
    """Records that a leader considers committed are durable on a majority of the voters."""

    def on_done(self, world: World, node: Node, effects: Effects) -> None:
        machine = node.machine
        assert machine is not None
        if effects.high_watermark is None or not machine.is_leader:
            return
        last = effects.high_watermark - 1
        epoch = machine.quorum.log.epoch_at(last)
        having = 0
        for key in machine.voters.keys:
            other = world.nodes[key.id]
            if key.covers(other.key) and other.disk.synced_epoch_at(last) in (epoch, -1):
                having += 1
        if having < machine.voters.majority:
            self.violated(world, f"{node.key} calls {last} committed, which {having} of {machine.voters} have")


class LeaderCommitsOwnEpoch(Invariant):
    """A leader's high watermark includes earlier epochs only together with a record of its own epoch."""

    def on_step(self, world: World, node: Node, effects: Effects) -> None:
        machine = node.machine
        assert machine is not None
        if effects.high_watermark is not None and machine.is_leader:
            epoch = machine.quorum.log.epoch_at(effects.high_watermark - 1)
            if epoch != machine.epoch:
                self.violated(world, f"{node.key} leads epoch {machine.epoch}, and commits up to one of epoch {epoch}")


class OneChangeAtATime(Invariant):
    """A leader changes the voters only when the change before is committed (KIP-853), so that majorities overlap."""

    def on_done(self, world: World, node: Node, effects: Effects) -> None:
        machine = node.machine
        assert machine is not None
        if not machine.is_leader or not any(isinstance(op, Append) and _voters_of(op.batch) for op in effects.log_ops):
            return
        changes = [batch for batch in node.disk.log if _voters_of(batch)]
        if len(changes) > 1 and changes[-2].base_offset >= machine.high_watermark:
            self.violated(world, f"{node.key} changes the voters, and {changes[-2]} is not committed")


class VotersFollowTheLog(Invariant):
    """The voters are those of the last record of voters in the log, committed or not; truncated ones do not count."""

    def on_done(self, world: World, node: Node, effects: Effects) -> None:
        assert node.machine is not None
        if not effects.log_ops:
            return
        disk = node.disk
        base = disk.snapshots.get(disk.start)
        expected = base.voters if base is not None and base.voters is not None else node.config.voters
        for batch in disk.log:
            expected = _voters_of(batch) or expected
        if node.machine.voters != expected:
            self.violated(world, f"{node.key} counts {node.machine.voters}, its log says {expected}")


def _voters_of(batch: RaftBatch) -> Voters | None:
    return next((control for control in reversed(batch.controls) if isinstance(control, Voters)), None)


class MonotonicHighWatermark(Invariant):
    """The high watermark of a process never decreases."""

    def __init__(self) -> None:
        self.seen: dict[tuple[int, int], int] = {}

    def on_step(self, world: World, node: Node, effects: Effects) -> None:
        assert node.machine is not None
        mark, process = node.machine.high_watermark, (node.id, node.life)
        if mark < self.seen.get(process, -1):
            self.violated(world, f"{node.key}: high watermark from {self.seen[process]} to {mark}")
        if mark > node.machine.quorum.log.end_offset:
            self.violated(world, f"{node.key}: high watermark {mark} beyond the log")
        self.seen[process] = mark


class SnapshotAtLogStart(Invariant):
    """A log that does not start at 0 starts where a snapshot ends."""

    def on_done(self, world: World, node: Node, effects: Effects) -> None:
        disk = node.disk
        assert node.machine is not None
        if disk.start.offset > 0 and disk.start not in disk.snapshots:
            self.violated(
                world, f"{node.key}: the log starts at {disk.start}, the snapshots are {list(disk.snapshots)}"
            )
        if node.machine.quorum.log.start != disk.start or node.machine.quorum.log.end_offset != disk.end_offset:
            self.violated(world, f"{node.key}: the machine does not know where the log is")


class LeaderNeverLoadSnapshot(Invariant):
    """A leader's log contains all committed records."""

    def on_step(self, world: World, node: Node, effects: Effects) -> None:
        assert node.machine is not None
        if effects.load_snapshot is not None and node.machine.is_leader:
            self.violated(world, f"{node.key} loads {effects.load_snapshot} as a leader")


class NoLogDivergence(Invariant):
    """Log matching: the same offset and epoch mean the same record, after the same record."""

    _unknown = -1
    """The epoch before the first record of a log: it is in a snapshot, or there is none."""

    def __init__(self) -> None:
        self.records: dict[tuple[int, int], tuple[RaftBatch, int]] = {}

    def on_done(self, world: World, node: Node, effects: Effects) -> None:
        log = node.disk.log
        appended = sum(isinstance(op, Append) for op in effects.log_ops)
        for index in range(len(log) - appended, len(log)):
            batch = log[index]
            before = log[index - 1].epoch if index > 0 else self._unknown
            place = (batch.base_offset, batch.epoch)
            known, known_before = self.records.get(place, (batch, before))
            if known_before == self._unknown:
                known_before = before
            self.records[place] = (known, known_before)
            if known != batch or before not in (self._unknown, known_before):
                self.violated(world, f"{node.key} has {batch} after epoch {before}; known: {known, known_before}")


class ConsistentCommittedData(Invariant):
    """The committed records of all nodes are equal at each offset, also those loaded from a snapshot."""

    def __init__(self) -> None:
        self.values: dict[int, bytes] = {}
        self.epochs: dict[int, int] = {}
        self._checked: dict[tuple[int, int], int] = {}

    def on_done(self, world: World, node: Node, effects: Effects) -> None:
        process = (node.id, node.life)
        if effects.load_snapshot is not None:
            self._checked[process] = 0
        start = self._checked.get(process, 0)
        for offset, value in node.state[start:]:
            if self.values.setdefault(offset, value) != value:
                self.violated(world, f"{node.key} has {value!r} at {offset}, others {self.values[offset]!r}")
        self._checked[process] = len(node.state)
        if effects.high_watermark is not None:
            for batch in reversed(node.disk.log):
                if batch.next_offset <= effects.high_watermark:
                    epoch = self.epochs.setdefault(batch.base_offset, batch.epoch)
                    if epoch != batch.epoch:
                        self.violated(world, f"{node.key} committed {batch}, others that offset of epoch {epoch}")
                    break


class LeaderHasAllAckedValues(Invariant):
    """An elected leader has every value that was acknowledged before."""

    def __init__(self) -> None:
        self._checked: set[tuple[int, int]] = set()

    def on_done(self, world: World, node: Node, effects: Effects) -> None:
        machine = node.machine
        assert machine is not None
        if not isinstance(machine.quorum.state, Leader) or (machine.epoch, node.life) in self._checked:
            return
        self._checked.add((machine.epoch, node.life))
        log = {batch.base_offset: bytes(batch.payload) for batch in node.disk.log}
        for acked in world.acked:
            if acked.epoch < machine.epoch and acked.offset >= node.disk.start.offset:
                if log.get(acked.offset) != acked.value:
                    self.violated(world, f"{node.key} leads epoch {machine.epoch} without {acked}")
            elif acked.epoch < machine.epoch and (acked.offset, acked.value) not in node.state:
                self.violated(world, f"{node.key} leads epoch {machine.epoch}; its snapshot misses {acked}")


class NoIllegalState(Invariant):
    """StatesMatchRoles: states fit roles. A machine that stops with an error is reported under this name too."""

    def on_step(self, world: World, node: Node, effects: Effects) -> None:
        assert node.machine is not None
        q = node.machine.quorum
        if isinstance(q.state, Candidate | Prospective) and not q.is_voter:
            self.violated(world, f"{node.key} stands for election and is not a voter")
        if (q.leader_id == node.id) != (type(q.state).__name__ in ("Leader", "Resigned")):
            self.violated(world, f"{node.key}: leader id {q.leader_id} in {type(q.state).__name__}")
        if q.voted is not None and isinstance(q.state, Leader) and q.voted != node.key:
            self.violated(world, f"{node.key} leads, and voted for {q.voted}")


def all_invariants() -> list[Invariant]:
    return [kind() for kind in ALL]


ALL: tuple[type[Invariant], ...] = (
    MonotonicEpoch,
    SingleLeader,
    OneVotePerEpoch,
    MajorityReachedHighWatermark,
    LeaderCommitsOwnEpoch,
    OneChangeAtATime,
    VotersFollowTheLog,
    MonotonicHighWatermark,
    SnapshotAtLogStart,
    LeaderNeverLoadSnapshot,
    NoLogDivergence,
    ConsistentCommittedData,
    LeaderHasAllAckedValues,
    NoIllegalState,
)
