"""A metadata log in memory that knows leaders. It commits at once, or when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.server.metadata.ports import CommittedBatch, MetadataListener
from barnabas.server.metadata.records.base import MetadataRecord


class LeaderLog:
    """`elect` a leader; proposals of node 1 are accepted while it leads, and committed at once unless `held`."""

    def __init__(self) -> None:
        self.listeners: list[MetadataListener] = []
        self.waiting: list[tuple[tuple[MetadataRecord, ...], asyncio.Future[int]]] = []
        self.next_offset = 0
        self.epoch = 0
        self.leader_id = -1
        self.held = False
        self.batches: list[tuple[MetadataRecord, ...]] = []

    def register(self, listener: MetadataListener) -> None:
        self.listeners.append(listener)

    async def write_snapshot(
        self, end_offset: int, epoch: int, timestamp_ms: int, records: Iterable[MetadataRecord]
    ) -> None:
        raise AssertionError("no test asks for a snapshot")

    def elect(self, leader_id: int) -> None:
        """What the old leader proposed and did not commit is lost."""
        self.epoch += 1
        self.leader_id = leader_id
        waiting, self.waiting = self.waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(KafkaError(ErrorCode.NOT_CONTROLLER))
        for listener in self.listeners:
            listener.on_leader(leader_id, self.epoch)

    def propose(self, records: Sequence[MetadataRecord]) -> asyncio.Future[int]:
        if self.leader_id != 1:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.waiting.append((tuple(records), future))
        if not self.held:
            asyncio.get_running_loop().call_soon(self.commit)
        return future

    def append(self, records: Sequence[MetadataRecord]) -> None:
        """Committed by somebody else."""
        batch = CommittedBatch(self.next_offset, self.epoch, 0, tuple(records), size_bytes=100)
        self.next_offset += len(records)
        self.batches.append(batch.records)
        for listener in self.listeners:
            listener.on_commit(batch)

    def commit(self) -> None:
        """Everything that waits."""
        while self.waiting:
            records, future = self.waiting.pop(0)
            self.append(records)
            if not future.done():
                future.set_result(self.next_offset - 1)
