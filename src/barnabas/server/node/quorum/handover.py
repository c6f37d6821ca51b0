"""Shell: hands what the quorum has committed to the listeners of the metadata log: fills `raft.RaftListener`.

A listener hears of a leader when it may act on it: of another node at once; that this node leads, only when everything
of earlier epochs has been handed over (Kafka's `handleLeaderChange`), so that the controller decides on all that was
ever committed. A replica that starts over in the same process begins again at its snapshot; what was handed over
before is left out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from barnabas.protocol.records.batch import iter_records, read_header
from barnabas.server.metadata.image.small import METADATA_VERSION
from barnabas.server.metadata.ports import CommittedBatch, MetadataListener
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.metadata.records.codec import LATEST_METADATA_VERSION, FeatureLevelRecord, decode_record
from barnabas.server.node.quorum.raft_log import RaftLog
from barnabas.server.node.quorum.snapshot_store import SnapshotStore
from barnabas.server.raft.machine.events import LeaderAndEpoch
from barnabas.server.raft.machine.values import NO_NODE, OffsetAndEpoch, RaftBatch

NOBODY = LeaderAndEpoch(NO_NODE, 0)


class Handover:
    """`handed_over` is the offset before which the listeners know everything."""

    def __init__(self, node_id: int, log: RaftLog, snapshots: SnapshotStore) -> None:
        self._node_id = node_id
        self._log = log
        self._snapshots = snapshots
        self._listeners: list[MetadataListener] = []
        self._proposed: deque[CommittedBatch] = deque()
        self._to_lead: tuple[int, LeaderAndEpoch] | None = None
        """(end of the log when this node won, what to tell then)"""
        self._waiters: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self.snapshot: OffsetAndEpoch | None = None
        self.handed_over = 0
        self.leader = NOBODY
        """As told to the listeners."""
        self.metadata_version = LATEST_METADATA_VERSION
        """Of what is committed."""

    # ---- listeners

    def register(self, listener: MetadataListener) -> None:
        """Tell it everything so far, and from now on."""
        if self.snapshot is not None:
            listener.on_snapshot(self._snapshots.load(self.snapshot))
        start = 0 if self.snapshot is None else self.snapshot.offset
        if start < self.handed_over:
            for batch in self._log.batches_from(start):
                if batch.next_offset > self.handed_over:
                    break
                if not batch.controls:
                    listener.on_commit(_committed(batch))
        self._listeners.append(listener)
        if self.leader != NOBODY:
            listener.on_leader(self.leader.leader_id, self.leader.epoch)

    def expect(self, batch: CommittedBatch) -> None:
        """This node has proposed it: when it comes back committed, it need not be decoded."""
        self._proposed.append(batch)

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Until it holds, looked at whenever something was handed over."""
        if not condition():
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append((condition, done))
            await done

    # ---- raft.RaftListener

    def on_commit(self, batch: RaftBatch) -> None:
        if batch.next_offset <= self.handed_over:
            return
        committed = self._take_proposed(batch) or _committed(batch)
        self._note_version(committed.records)
        for listener in self._listeners:
            listener.on_commit(committed)
        self.handed_over = batch.next_offset

    def on_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        self.snapshot = snapshot_id
        if snapshot_id.offset <= self.handed_over:
            self._snapshots.forget()
            return
        snapshot = self._snapshots.load(snapshot_id)
        self._note_version(snapshot.records)
        for listener in self._listeners:
            listener.on_snapshot(snapshot)
        self.handed_over = snapshot_id.offset

    def on_high_watermark(self, high_watermark: int) -> None:
        self.handed_over = max(self.handed_over, high_watermark)
        if self._to_lead is not None and self.handed_over >= self._to_lead[0]:
            leader = self._to_lead[1]
            self._to_lead = None
            self._tell(leader)
        self._wake()

    def on_leader(self, leader: LeaderAndEpoch) -> None:
        self._to_lead = None
        if leader.leader_id == self._node_id:
            self._to_lead = (self._log.end_offset, leader)
            leader = LeaderAndEpoch(NO_NODE, leader.epoch)
        self._tell(leader)

    def on_stopped(self) -> None:
        """The replica runs no more: nobody leads that this node knows of."""
        self._to_lead = None
        if self.leader.leader_id != NO_NODE:
            self._tell(LeaderAndEpoch(NO_NODE, self.leader.epoch))

    # ---- inside

    def _tell(self, leader: LeaderAndEpoch) -> None:
        if leader.leader_id != self._node_id:
            self._proposed.clear()
        self.leader = leader
        for listener in self._listeners:
            listener.on_leader(leader.leader_id, leader.epoch)
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for condition, done in waiters:
            if done.done():
                continue
            if condition():
                done.set_result(None)
            else:
                self._waiters.append((condition, done))

    def _take_proposed(self, batch: RaftBatch) -> CommittedBatch | None:
        proposed = self._proposed
        while proposed and proposed[0].base_offset < batch.base_offset:
            proposed.popleft()
        if proposed and (proposed[0].base_offset, proposed[0].epoch) == (batch.base_offset, batch.epoch):
            return proposed.popleft()
        return None

    def _note_version(self, records: Iterable[MetadataRecord]) -> None:
        self.metadata_version = version_after(records, self.metadata_version)


def version_after(records: Iterable[MetadataRecord], version: int) -> int:
    """The metadata.version that holds after these records."""
    for record in records:
        if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
            version = record.feature_level
    return version


def _committed(batch: RaftBatch) -> CommittedBatch:
    header = read_header(batch.payload)
    values = [record.value for record in iter_records(batch.payload, 0, header)]
    records = tuple(decode_record(value) for value in values if value is not None)
    return CommittedBatch(batch.base_offset, batch.epoch, header.max_timestamp, records, header.size)
