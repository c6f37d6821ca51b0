"""Shell: notifies the listeners of the metadata log of committed records; implements `RaftListener`.

`RaftListener` receives encoded batches and Raft's view of the leader; a `MetadataListener` receives decoded records,
and is notified of a leader when the listener may act on the notification: of another node's leadership at once, of this
node's leadership after all records of earlier epochs (Kafka's `handleLeaderChange`), so that the controller decides on
complete metadata. A replica that restarts in the same process starts again at its snapshot; the listeners are not
notified again of records that they have.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from barnabas.protocol.records.batch import iter_records, read_header
from barnabas.server.metadata.errors import MetadataError
from barnabas.server.metadata.features import level_name
from barnabas.server.metadata.image.small import METADATA_VERSION
from barnabas.server.metadata.ports import CommittedBatch, MetadataListener
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.metadata.records.codec import LATEST_METADATA_VERSION, FeatureLevelRecord, decode_record
from barnabas.server.quorum.raft_log import RaftLog
from barnabas.server.quorum.snapshot_store import SnapshotStore
from barnabas.server.raft.machine.events import LeaderAndEpoch
from barnabas.server.raft.machine.values import NO_NODE, OffsetAndEpoch, RaftBatch

NO_LEADER = LeaderAndEpoch(NO_NODE, 0)


class Handover:
    """The listeners have been notified of everything before the offset `notified_offset`."""

    def __init__(self, node_id: int, log: RaftLog, snapshots: SnapshotStore) -> None:
        self._node_id = node_id
        self._log = log
        self._snapshots = snapshots
        self._listeners: list[MetadataListener] = []
        self._proposed: deque[CommittedBatch] = deque()
        self._own_leadership: tuple[int, LeaderAndEpoch] | None = None
        """(log end offset when this node was elected, leadership to notify when everything before it is committed)"""
        self._waiters: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self.snapshot: OffsetAndEpoch | None = None
        self.notified_offset = 0
        self.leader = NO_LEADER
        """The leader of which the listeners were last notified."""
        self.metadata_version = LATEST_METADATA_VERSION
        """The metadata.version after the committed records."""

    # ---- listeners

    def register(self, listener: MetadataListener) -> None:
        """Notify `listener` of all committed records so far, and of all later ones."""
        if self.snapshot is not None:
            listener.on_snapshot(self._snapshots.load(self.snapshot))
        start = 0 if self.snapshot is None else self.snapshot.offset
        if start < self.notified_offset:
            for batch in self._log.batches_from(start):
                if batch.next_offset > self.notified_offset:
                    break
                if not batch.controls:
                    listener.on_commit(_committed(batch))
        self._listeners.append(listener)
        if self.leader != NO_LEADER:
            listener.on_leader(self.leader.leader_id, self.leader.epoch)

    def expect(self, batch: CommittedBatch) -> None:
        """Remember a batch that this node has proposed, so that it need not be decoded when it is committed."""
        self._proposed.append(batch)

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` is true. The condition is checked after each notification."""
        if not condition():
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append((condition, done))
            await done

    # ---- RaftListener

    def on_commit(self, batch: RaftBatch) -> None:
        if batch.next_offset <= self.notified_offset:
            return
        committed = self._take_proposed(batch) or _committed(batch)
        self._update_version(committed.records)
        for listener in self._listeners:
            listener.on_commit(committed)
        self.notified_offset = batch.next_offset

    def on_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        self.snapshot = snapshot_id
        if snapshot_id.offset <= self.notified_offset:
            self._snapshots.forget()
            return
        snapshot = self._snapshots.load(snapshot_id)
        self._update_version(snapshot.records)
        for listener in self._listeners:
            listener.on_snapshot(snapshot)
        self.notified_offset = snapshot_id.offset

    def on_high_watermark(self, high_watermark: int) -> None:
        self.notified_offset = max(self.notified_offset, high_watermark)
        if self._own_leadership is not None and self.notified_offset >= self._own_leadership[0]:
            leader = self._own_leadership[1]
            self._own_leadership = None
            self._notify_leader(leader)
        self._wake()

    def on_leader(self, leader: LeaderAndEpoch) -> None:
        self._own_leadership = None
        if leader.leader_id == self._node_id:
            self._own_leadership = (self._log.end_offset, leader)
            leader = LeaderAndEpoch(NO_NODE, leader.epoch)
        self._notify_leader(leader)

    def on_replica_stopped(self) -> None:
        """The replica has stopped: the leader is unknown."""
        self._own_leadership = None
        if self.leader.leader_id != NO_NODE:
            self._notify_leader(LeaderAndEpoch(NO_NODE, self.leader.epoch))

    # ---- inside

    def _notify_leader(self, leader: LeaderAndEpoch) -> None:
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

    def _update_version(self, records: Iterable[MetadataRecord]) -> None:
        """Raises MetadataError for a metadata.version above the levels that this node knows: the records that follow
        may have fields that this node would lose."""
        self.metadata_version = version = version_after(records, self.metadata_version)
        if version > LATEST_METADATA_VERSION:
            newest = level_name(METADATA_VERSION, LATEST_METADATA_VERSION)
            raise MetadataError(
                f"The cluster has metadata.version {version}, and this version of Barnabas knows levels up to "
                f"{LATEST_METADATA_VERSION} ({newest}): this node cannot be part of the cluster. Run a newer version "
                "of Barnabas."
            )


def version_after(records: Iterable[MetadataRecord], version: int) -> int:
    """The metadata.version after `records`, if `version` was the version before."""
    for record in records:
        if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
            version = record.feature_level
    return version


def _committed(batch: RaftBatch) -> CommittedBatch:
    header = read_header(batch.payload)
    values = [record.value for record in iter_records(batch.payload, 0, header)]
    records = tuple(decode_record(value) for value in values if value is not None)
    return CommittedBatch(batch.base_offset, batch.epoch, header.max_timestamp, records, header.size)
