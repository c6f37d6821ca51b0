"""Ports in memory, for replicas that run on the loop of the test."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from barnabas.core.buffers import Buffer
from barnabas.server.raft.driver import RaftDriver
from barnabas.server.raft.machine.events import AdvanceStart, Append, LeaderAndEpoch, StartLogAt, TruncateFrom
from barnabas.server.raft.machine.messages import RaftRequest, RaftResponse
from barnabas.server.raft.machine.values import ElectionState, Endpoints, LogSummary, OffsetAndEpoch, RaftBatch, Voters
from tests.property.raft_world import SimDisk, Snapshot, decode_snapshot, encode_snapshot


class MemoryLog:
    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.syncs = 0
        self.broken: OSError | None = None

    def open(self) -> LogSummary:
        return self.disk.summary()

    def apply(self, op: Append | TruncateFrom | StartLogAt | AdvanceStart) -> None:
        self.disk.apply(op)

    def read(self, offset: int, bytes_max: int) -> Sequence[RaftBatch]:
        return self.disk.read(offset, 10)

    async def sync(self) -> None:
        written = self.disk.written
        await asyncio.sleep(0)
        if self.broken is not None:
            raise self.broken
        self.disk.sync_up_to(written)
        self.syncs += 1


class MemoryVotes:
    """Records when a vote became durable, in the order of all events."""

    def __init__(self, disk: SimDisk, events: list[str]) -> None:
        self.disk = disk
        self.events = events

    def load(self) -> ElectionState:
        return self.disk.election

    async def save(self, election: ElectionState) -> None:
        await asyncio.sleep(0)
        self.disk.election = election
        self.events.append(f"saved epoch {election.epoch}")


class MemorySnapshots:
    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk

    def write(self, snapshot_id: OffsetAndEpoch, position: int, data: Buffer) -> None:
        part = self.disk.partial.setdefault(snapshot_id, bytearray())
        del part[position:]
        part += data

    async def finish(self, snapshot_id: OffsetAndEpoch) -> tuple[int, Voters | None]:
        version, voters, data = decode_snapshot(bytes(self.disk.partial.pop(snapshot_id)))
        self.disk.snapshots[snapshot_id] = Snapshot(data, version, voters)
        return version, voters

    def read(self, snapshot_id: OffsetAndEpoch, position: int, bytes_max: int) -> tuple[int, Buffer] | None:
        snapshot = self.disk.snapshots.get(snapshot_id)
        if snapshot is None:
            return None
        data = encode_snapshot(snapshot)
        return len(data), data[position : position + bytes_max]


class MemoryNetwork:
    """Calls the other driver. A driver that does not run does not answer."""

    def __init__(self, events: list[str]) -> None:
        self.drivers: dict[int, RaftDriver] = {}
        self.events = events

    async def send(self, node_id: int, endpoints: Endpoints, request: RaftRequest) -> RaftResponse:
        driver = self.drivers.get(node_id)
        self.events.append(f"{type(request).__name__} to {node_id}")
        await asyncio.sleep(0)
        if driver is None:
            raise ConnectionRefusedError(f"node {node_id} is not there")
        return await driver.handle(request)


class Recorder:
    """A state machine that records its calls."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.snapshots: list[OffsetAndEpoch] = []
        self.leaders: list[LeaderAndEpoch] = []
        self.high_watermark = -1

    def on_commit(self, batch: RaftBatch) -> None:
        self.values.append(bytes(batch.payload))

    def on_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        self.values.clear()
        self.snapshots.append(snapshot_id)

    def on_high_watermark(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark

    def on_leader(self, leader: LeaderAndEpoch) -> None:
        self.leaders.append(leader)
