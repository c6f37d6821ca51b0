"""A metadata log in memory, whose commits a test decides on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.metadata.ports import CommittedBatch, MetadataListener
from barnabas.server.metadata.records.base import MetadataRecord


class ManualLog:
    """Proposals wait in `waiting` until `commit` or `lose`."""

    def __init__(self) -> None:
        self.waiting: list[tuple[tuple[MetadataRecord, ...], asyncio.Future[int]]] = []
        self.listeners: list[MetadataListener] = []
        self.next_offset = 0

    def propose(self, records: Sequence[MetadataRecord]) -> asyncio.Future[int]:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.waiting.append((tuple(records), future))
        return future

    def register(self, listener: MetadataListener) -> None:
        self.listeners.append(listener)

    async def write_snapshot(
        self, end_offset: int, epoch: int, timestamp_ms: int, records: Iterable[MetadataRecord]
    ) -> None:
        raise AssertionError("no test asks for a snapshot")

    def commit(self) -> None:
        """Commit the oldest proposal: listeners first, then the proposer."""
        records, future = self.waiting.pop(0)
        batch = CommittedBatch(self.next_offset, 1, 0, records, size_bytes=100)
        self.next_offset += len(records)
        for listener in self.listeners:
            listener.on_commit(batch)
        if not future.done():
            future.set_result(batch.last_offset)

    def lose(self) -> None:
        """Leadership is gone: nothing that waits will be committed."""
        for _, future in self.waiting:
            if not future.done():
                future.set_exception(KafkaError(ErrorCode.NOT_CONTROLLER))
        self.waiting.clear()


class Watcher:
    """An image subscriber that keeps what it was told."""

    def __init__(self) -> None:
        self.seen: list[tuple[ClusterDelta, ClusterImage]] = []

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        self.seen.append((delta, image))
