"""Value: the inputs of the machine (events) and its outputs (effects).

The order of the parts of `Effects` is the rule of durability. The driver carries them out in this order, and finishes
one `Effects` before it begins with the next:

    1. election     write and sync it. Everything below depends on it being durable (a vote, a new epoch)
    2. log_ops      in their order; they need not be durable yet
    3. load_snapshot, high_watermark, leader    notify the state machine
    4. sends and replies    with the batches or the part of a snapshot that they need

If `sync_ticket` is set, the driver also syncs everything written to the log up to and including this step (one fsync
may serve several steps), and then reports `Synced(sync_ticket)`. Until then, a follower does not send its next fetch,
and a leader does not count its own records towards the majority. A leader may send records that it has not yet synced.
A snapshot has to be durable, and to have its final name, before `SnapshotStored` is reported.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct, field

from barnabas.core.buffers import Buffer
from barnabas.server.raft.machine.messages import RaftRequest, RaftResponse
from barnabas.server.raft.machine.values import ElectionState, Endpoints, OffsetAndEpoch, RaftBatch, Voters

# ---- events


class Tick(Struct, frozen=True):
    """The time `Effects.wake_at_ms` of the previous step has come."""


class Received(Struct, frozen=True):
    """A request from another replica. This step or a later one answers it with a `Reply` of the same `token`."""

    token: int
    request: RaftRequest


class Answered(Struct, frozen=True):
    """The response to a `SendRequest`."""

    source: int
    correlation_id: int
    response: RaftResponse


class SendFailed(Struct, frozen=True):
    """A `SendRequest` gets no response. `refused`: the host refused the connection, because the node's process does not
    run."""

    destination: int
    correlation_id: int
    refused: bool = False


class Propose(Struct, frozen=True):
    """Append records of the state machine as one batch. `step` raises NotRaftLeaderError unless this replica leads."""

    payload: Buffer
    count: int


class Synced(Struct, frozen=True):
    """All changes of the log up to this ticket are durable."""

    ticket: int


class SnapshotTaken(Struct, frozen=True):
    """The state machine has written a durable snapshot. With `clean`, the log below the snapshot is deleted."""

    snapshot_id: OffsetAndEpoch
    clean: bool = True


class SnapshotStored(Struct, frozen=True):
    """A fetched snapshot is complete and durable. The other fields come from its control records."""

    snapshot_id: OffsetAndEpoch
    kraft_version: int
    voters: Voters | None


class Resign(Struct, frozen=True):
    """Resign, if this replica still leads `epoch`. With `shutting_down`, this replica then waits for a
    later epoch of another replica, and does not begin one itself."""

    epoch: int
    shutting_down: bool = False


class UpgradeKRaftVersion(Struct, frozen=True):
    """Change kraft.version from 0 to 1: append the voters, with their directory ids, to the log."""


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
    """Append a batch to the log."""

    batch: RaftBatch


class TruncateFrom(Struct, frozen=True):
    """Remove the records at and above `offset`."""

    offset: int


class StartLogAt(Struct, frozen=True):
    """Remove the whole log. The log is then empty and starts at the snapshot's end."""

    snapshot_id: OffsetAndEpoch


class AdvanceStart(Struct, frozen=True):
    """Delete the log below the snapshot's end, and older snapshots."""

    snapshot_id: OffsetAndEpoch


class WriteSnapshot(Struct, frozen=True):
    """Write a part of a snapshot that is being fetched. Position 0 begins the snapshot again."""

    snapshot_id: OffsetAndEpoch
    position: int
    data: Buffer


class FinishSnapshot(Struct, frozen=True):
    """Sync a fetched snapshot, give it its name, read its control records, and report `SnapshotStored`."""

    snapshot_id: OffsetAndEpoch


LogOp: TypeAlias = Append | TruncateFrom | StartLogAt | AdvanceStart | WriteSnapshot | FinishSnapshot


class SendRequest(Struct, frozen=True):
    """A request to another node. `endpoints` are the node's last known addresses."""

    destination: int
    correlation_id: int
    request: RaftRequest
    endpoints: Endpoints = ()


class Reply(Struct, frozen=True):
    """The response to the request that was `Received` with this token."""

    token: int
    response: RaftResponse


class LeaderAndEpoch(Struct, frozen=True):
    """The leader of an epoch; -1 if the leader is unknown."""

    leader_id: int
    epoch: int


class Effects(Struct):
    """What the driver has to do after one step. The module's docstring states the order."""

    election: ElectionState | None = None
    log_ops: list[LogOp] = field(default_factory=list)
    load_snapshot: OffsetAndEpoch | None = None
    high_watermark: int | None = None
    leader: LeaderAndEpoch | None = None
    sends: list[SendRequest] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    sync_ticket: int | None = None
    wake_at_ms: int | None = None
