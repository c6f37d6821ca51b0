"""Port: what a replica needs from the node: a log, a place for its vote, snapshots, a network, and someone to tell.

RaftLog        the log on the disk, batches as they are            (filled by node, over storage)
VoteStore      the file `quorum-state`                             (filled by node)
SnapshotStore  `<offset>-<epoch>.checkpoint` files                 (filled by node)
Network        one request, one response                           (filled by node, over net and wire)
RaftListener   the replicated state machine                        (filled by node, for the MetadataLog port)

What is not a coroutine returns at once and touches nothing slower than the page cache; what is one is durable when it
returns. An exception from any of them but `NetworkChannel` stops the replica: a disk that fails must not vote.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from barnabas.core.buffers import Buffer
from barnabas.server.raft.machine.events import AdvanceStart, Append, LeaderAndEpoch, StartAt, Truncate
from barnabas.server.raft.machine.messages import RaftRequest, RaftResponse
from barnabas.server.raft.machine.values import ElectionState, Endpoints, LogSummary, OffsetAndEpoch, RaftBatch, Voters


class ReplicatedLog(Protocol):
    """The log of the quorum. Only the driver writes to it."""

    def open(self) -> LogSummary:
        """Recover the log and read it through once. A snapshot beyond the end of the log is where the log starts;
        snapshots that contradict the log are not mentioned."""
        ...

    def apply(self, op: Append | Truncate | StartAt | AdvanceStart) -> None:
        """Write; an appended batch gets the base offset and the epoch that it says. After `AdvanceStart` and `StartAt`
        older segments and snapshots may go once the new start is durable, not before."""
        ...

    def read(self, offset: int, bytes_max: int) -> Sequence[RaftBatch]:
        """Whole batches from the one that holds `offset` on; at least one if there is any."""
        ...

    async def sync(self) -> None:
        """Make durable whatever was applied before the call."""
        ...


class QuorumStateStore(Protocol):
    """The one small file on which elections stand."""

    def load(self) -> ElectionState: ...

    async def save(self, election: ElectionState) -> None:
        """Durable when it returns, and whole: the old state or the new one after a power cut (write, sync, rename)."""
        ...


class SnapshotStorage(Protocol):
    """Snapshots: those being fetched, and those that can be read."""

    def write(self, snapshot_id: OffsetAndEpoch, position: int, data: Buffer) -> None:
        """A piece of one being fetched; position 0 starts it over."""
        ...

    async def finish(self, snapshot_id: OffsetAndEpoch) -> tuple[int, Voters | None]:
        """Check it, make it durable, give it its name; returns the kraft.version and the voters that it holds."""
        ...

    def read(self, snapshot_id: OffsetAndEpoch, position: int, bytes_max: int) -> tuple[int, Buffer] | None:
        """(size of the whole, a piece); None if there is no such snapshot (any more)."""
        ...


class NetworkChannel(Protocol):
    """The other replicas."""

    async def send(self, node_id: int, endpoints: Endpoints, request: RaftRequest) -> RaftResponse:
        """Raises OSError, TimeoutError or KafkaError when there is no answer; ConnectionRefusedError only where the
        other host says that the process does not run."""
        ...


class RaftListener(Protocol):
    """Told in the order of the log, on the loop; never twice of the same offset."""

    def on_commit(self, batch: RaftBatch) -> None:
        """A batch of records; control batches are not handed on, but their offsets count."""
        ...

    def on_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Forget everything and start from this; commits go on where it ends."""
        ...

    def on_high_watermark(self, high_watermark: int) -> None:
        """Everything before it has been handed on, control batches included."""
        ...

    def on_leader(self, leader: LeaderAndEpoch) -> None:
        """leader_id is -1 while none is known."""
        ...
