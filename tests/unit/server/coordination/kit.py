"""Test doubles for coordination: an event loop with virtual time, partitions in memory, a catalog of topics."""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicId, TopicPartition
from barnabas.protocol.records.batch import iter_batches, iter_records
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.records.control import EndTxn, build_end_txn_marker
from barnabas.server.coordination.ports import CatalogTopic, LogRecord, Marker, ProducerIdAndEpoch
from barnabas.server.coordination.runtime import CoordinatorRuntime

T = TypeVar("T")

START_MS = 1_000_000


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with virtual time, which advances to the next timer when no callback is ready."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self.now


class _JumpingSelector(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._virtual = loop

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise AssertionError("deadlock: nothing is ready and no timer is set")
            self._virtual.now += timeout
        return ready


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


class LoopClock:
    """A clock that reads the time of the running event loop."""

    def now_ms(self) -> int:
        return START_MS + round(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


@dataclass
class MemoryPartition:
    """A replicated partition. Appends are committed at once, or by `MemoryWriter.commit` while `hold` is set."""

    log: list[bytes] = field(default_factory=list)
    end: int = 0
    committed: int = 0
    leader: bool = True
    waiters: list[tuple[int, asyncio.Future[None]]] = field(default_factory=list)


class MemoryWriter:
    """A `PartitionWriter` over partitions in memory."""

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, MemoryPartition] = {}
        self.hold = False
        self.refusals: list[ErrorCode] = []
        """Error codes of the next appends; NONE for an append that succeeds."""

    def __getitem__(self, tp: TopicPartition) -> MemoryPartition:
        return self.partitions.setdefault(tp, MemoryPartition())

    def append(
        self, tp: TopicPartition, records: Sequence[LogRecord], now_ms: int, producer: ProducerIdAndEpoch | None = None
    ) -> int:
        simple = [SimpleRecord(record.key, record.value, now_ms) for record in records]
        if producer is None:
            return self._add(tp, build_batch(simple, base_offset=self[tp].end), len(simple))
        batch = build_batch(
            simple,
            base_offset=self[tp].end,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=0,
            transactional=True,
        )
        return self._add(tp, batch, len(simple))

    def append_marker(self, tp: TopicPartition, marker: Marker, now_ms: int) -> int:
        batch = build_end_txn_marker(
            EndTxn(marker.committed, marker.coordinator_epoch),
            producer_id=marker.producer.producer_id,
            producer_epoch=marker.producer.epoch,
            base_offset=self[tp].end,
            timestamp=now_ms,
        )
        return self._add(tp, batch, 1)

    def _add(self, tp: TopicPartition, batch: bytes, count: int) -> int:
        partition = self[tp]
        if not partition.leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self.refusals:
            code = self.refusals.pop(0)
            if code is not ErrorCode.NONE:
                raise KafkaError(code)
        partition.log.append(batch)
        partition.end += count
        if not self.hold:
            partition.committed = partition.end
        return partition.end

    def high_watermark(self, tp: TopicPartition) -> int:
        return self[tp].committed

    async def wait_committed(self, tp: TopicPartition, offset: int) -> None:
        partition = self[tp]
        if not partition.leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if partition.committed < offset:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            partition.waiters.append((offset, future))
            await future

    async def read_log(self, tp: TopicPartition) -> AsyncIterator[bytes]:
        for batch in list(self[tp].log):
            yield batch

    # -- controls for tests ----------------------------------------------------------------------------------------

    def commit(self, tp: TopicPartition, offset: int | None = None) -> None:
        """Advance the high watermark to `offset`, or to the log end offset."""
        partition = self[tp]
        partition.committed = partition.end if offset is None else offset
        for waiting, future in list(partition.waiters):
            if waiting <= partition.committed:
                partition.waiters.remove((waiting, future))
                if not future.done():
                    future.set_result(None)

    def depose(self, tp: TopicPartition) -> None:
        """End the leadership of this node for the partition."""
        partition = self[tp]
        partition.leader = False
        for _, future in partition.waiters:
            if not future.done():
                future.set_exception(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        partition.waiters.clear()

    def records(self, tp: TopicPartition, start: int = 0) -> list[LogRecord]:
        """The data records from offset `start` on."""
        found = []
        for batch in self[tp].log:
            for pos, header in iter_batches(batch):
                if header.is_control or header.next_offset <= start:
                    continue
                found.extend(
                    LogRecord(record.key or b"", record.value)
                    for record in iter_records(batch, pos, header)
                    if record.offset >= start
                )
        return found


def check_committed_views(writer: MemoryWriter, runtime: CoordinatorRuntime[Any]) -> None:
    """Where the log of a partition is committed to its end, the committed view of the coordinator is the newest one."""
    for _, context in sorted(runtime._active.items()):
        if writer[context.tp].committed == writer[context.tp].end:
            assert context.timeline.uncommitted == 0, f"the committed view of {context.tp} stands still"


class Catalog:
    """A `TopicCatalog` with the given topics and partition counts. The topic ids are 1, 2, ..."""

    def __init__(self, **partitions: int) -> None:
        self.views = {
            name: CatalogTopic(name, UUID(int=i), count) for i, (name, count) in enumerate(partitions.items(), start=1)
        }

    def by_name(self, name: str) -> CatalogTopic | None:
        return self.views.get(name)

    def by_id(self, topic_id: TopicId) -> CatalogTopic | None:
        return next((view for view in self.views.values() if view.topic_id == topic_id), None)

    def existing(self, names: Iterable[str]) -> set[str]:
        return self.views.keys() & set(names)

    def names(self) -> Sequence[str]:
        return sorted(self.views)


@dataclass
class Context:
    """A `GroupRequestContext`."""

    api_version: int
    client_id: str | None = "client"
    client_host: str = "/127.0.0.1"
    may_describe: Callable[[str], bool] | None = None


def seeded() -> random.Random:
    return random.Random(4_3)
