"""Port: what a replica needs from the node: a log, a file for its vote, snapshots, a network, and a state machine.

ReplicatedLog      the log on the disk                                (implemented by node, over storage)
QuorumStateStore   the file `quorum-state`                            (implemented by node)
SnapshotStorage    the files `<offset>-<epoch>.checkpoint`            (implemented by node)
NetworkChannel     one request, one response                          (implemented by node, over protocol.transport)
RaftListener       the replicated state machine                       (implemented by node, for the MetadataLog port)

A method that is not a coroutine returns without waiting for the device. The effect of a coroutine is durable when the
coroutine returns. An exception from any port except `NetworkChannel` stops the replica: a replica whose disk fails must
not vote.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from barnabas.core.buffers import Buffer
from barnabas.server.raft.machine.events import AdvanceStart, Append, LeaderAndEpoch, StartLogAt, TruncateFrom
from barnabas.server.raft.machine.messages import RaftRequest, RaftResponse
from barnabas.server.raft.machine.values import ElectionState, Endpoints, LogSummary, OffsetAndEpoch, RaftBatch, Voters


class ReplicatedLog(Protocol):
    """The log of the quorum. Only the driver writes to it."""

    def open(self) -> LogSummary:
        """Recover the log and read it through once.

        If a snapshot ends beyond the end of the log, the log starts at the end of that snapshot. Snapshots that
        contradict the log are left out of the summary.
        """
        ...

    def apply(self, op: Append | TruncateFrom | StartLogAt | AdvanceStart) -> None:
        """Change the log. An appended batch keeps its base offset and its epoch.

        After `AdvanceStart` and `StartLogAt`, older segments and snapshots may be deleted once the new start is
        durable, and not before.
        """
        ...

    def read(self, offset: int, bytes_max: int) -> Sequence[RaftBatch]:
        """Whole batches from the one that contains `offset`; at least one batch unless the log ends there."""
        ...

    async def sync(self) -> None:
        """Make durable all changes that were applied before the call."""
        ...


class QuorumStateStore(Protocol):
    """The file with the election state (Kafka's class of this name)."""

    def load(self) -> ElectionState: ...

    async def save(self, election: ElectionState) -> None:
        """Replace the file atomically (write, sync, rename). The new state is durable when the call returns."""
        ...


class SnapshotStorage(Protocol):
    """Snapshots: the complete ones, and the ones that are being fetched."""

    def write(self, snapshot_id: OffsetAndEpoch, position: int, data: Buffer) -> None:
        """Write a part of a snapshot that is being fetched. Position 0 begins the snapshot again."""
        ...

    async def finish(self, snapshot_id: OffsetAndEpoch) -> tuple[int, Voters | None]:
        """Check a fetched snapshot, make it durable and give it its name. Returns its kraft.version and its voters."""
        ...

    def read(self, snapshot_id: OffsetAndEpoch, position: int, bytes_max: int) -> tuple[int, Buffer] | None:
        """The size of the snapshot and a part of it, or None if the snapshot does not exist."""
        ...


class NetworkChannel(Protocol):
    """Sends requests to the other replicas (Kafka's interface of this name)."""

    async def send(self, node_id: int, endpoints: Endpoints, request: RaftRequest) -> RaftResponse:
        """Send a request and wait for the response.

        Raises OSError, TimeoutError or KafkaError if there is no response. ConnectionRefusedError means that the host
        of the replica reported that no process listens there.
        """
        ...


class RaftListener(Protocol):
    """The state machine over the log. Called on the loop, in the order of the log, and once for each offset."""

    def on_commit(self, batch: RaftBatch) -> None:
        """A batch of records is committed. Control batches are left out, so offsets may be skipped."""
        ...

    def on_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Replace the state with the one in this snapshot. The next committed batch begins at the snapshot's end."""
        ...

    def on_high_watermark(self, high_watermark: int) -> None:
        """Everything below this offset is committed, and `on_commit` has been called for its batches."""
        ...

    def on_leader(self, leader: LeaderAndEpoch) -> None:
        """The leader or the epoch has changed. `leader_id` is -1 if the leader is unknown."""
        ...
