"""Value: what happens to the machine (events), and what it wants done (effects).

The rule of durability is in the order of an `Effects`. Whoever carries it out does this, and does not begin with the
next one before it has finished:

    1. election     write it and sync it. Nothing below may be seen by anyone before that (a vote, a new epoch)
    2. log_ops      in their order; they need not be durable yet
    3. load_snapshot, high_watermark, leader    tell the state machine
    4. sends and replies    filling in what is to be read from the log or a snapshot

and when `sync_ticket` is set, it sees to it that everything written to the log up to and including this step is synced
(one fsync may serve many), and then reports `Synced(sync_ticket)`. Only that makes a follower's records count: it does
not fetch on before, and the leader does not count itself before. A leader's records may travel before they are synced.
A snapshot has to be durable, and to have its name, before `SnapshotStored` is reported.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct, field

from barnabas.core.buffers import Buffer
from barnabas.server.raft.machine.messages import RaftRequest, RaftResponse
from barnabas.server.raft.machine.values import ElectionState, Endpoints, OffsetAndEpoch, RaftBatch, Voters

# ---- events


class Tick(Struct, frozen=True):
    """Time has passed: `Effects.wake_at_ms` of the step before has come."""


class Received(Struct, frozen=True):
    """A request from elsewhere; `token` comes back with the `Reply`, in this step or in a later one."""

    token: int
    request: RaftRequest


class Answered(Struct, frozen=True):
    """The response to a `SendRequest`."""

    source: int
    correlation_id: int
    response: RaftResponse


class SendFailed(Struct, frozen=True):
    """A `SendRequest` will not be answered; `refused` when the other host says that no such process runs there."""

    destination: int
    correlation_id: int
    refused: bool = False


class Propose(Struct, frozen=True):
    """Append records of the state machine as one batch. Raises NotRaftLeaderError where they cannot be."""

    payload: Buffer
    count: int


class Synced(Struct, frozen=True):
    """Everything up to this ticket is on the platter."""

    ticket: int


class SnapshotTaken(Struct, frozen=True):
    """The state machine has stored a snapshot of its own, durably. With `clean` the log before it goes."""

    snapshot_id: OffsetAndEpoch
    clean: bool = True


class SnapshotStored(Struct, frozen=True):
    """A fetched snapshot is complete and durable, and this is what its control records say."""

    snapshot_id: OffsetAndEpoch
    kraft_version: int
    voters: Voters | None


class Resign(Struct, frozen=True):
    """Give up leadership, if it is still that of `epoch`; with `for_good`, the node is shutting down."""

    epoch: int
    for_good: bool = False


class UpgradeKRaftVersion(Struct, frozen=True):
    """Go from kraft.version 0 to 1: write the voters, with their directories, into the log."""


Event: TypeAlias = (
    Tick
    | Received
    | Answered
    | SendFailed
    | Propose
    | Synced
    | SnapshotTaken
    | SnapshotStored
    | Resign
    | UpgradeKRaftVersion
)

# ---- effects


class Append(Struct, frozen=True):
    batch: RaftBatch


class Truncate(Struct, frozen=True):
    """Drop everything from `offset` on."""

    offset: int


class StartAt(Struct, frozen=True):
    """Drop the whole log; it begins anew, empty, where the snapshot ends."""

    snapshot_id: OffsetAndEpoch


class AdvanceStart(Struct, frozen=True):
    """Drop what is before the end of this snapshot, and older snapshots."""

    snapshot_id: OffsetAndEpoch


class WriteSnapshot(Struct, frozen=True):
    """Write a piece of a snapshot being fetched; position 0 starts it over."""

    snapshot_id: OffsetAndEpoch
    position: int
    data: Buffer


class FinishSnapshot(Struct, frozen=True):
    """Sync the fetched snapshot, give it its name, read its control records, report `SnapshotStored`."""

    snapshot_id: OffsetAndEpoch


LogOp: TypeAlias = Append | Truncate | StartAt | AdvanceStart | WriteSnapshot | FinishSnapshot


class SendRequest(Struct, frozen=True):
    """A request to another node, at most one at a time to each; `endpoints` say where it was last seen."""

    destination: int
    correlation_id: int
    request: RaftRequest
    endpoints: Endpoints = ()


class Reply(Struct, frozen=True):
    token: int
    response: RaftResponse


class LeaderAndEpoch(Struct, frozen=True):
    leader_id: int
    epoch: int


class Effects(Struct):
    """What one step wants done; see the top of this file for the order."""

    election: ElectionState | None = None
    log_ops: list[LogOp] = field(default_factory=list)
    load_snapshot: OffsetAndEpoch | None = None
    high_watermark: int | None = None
    leader: LeaderAndEpoch | None = None
    sends: list[SendRequest] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    sync_ticket: int | None = None
    wake_at_ms: int | None = None
