"""A share partition at its leader, with a share coordinator that can be held up, fail, or have found another leader.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from concurrent.futures import Executor
from typing import Any, cast
from uuid import UUID

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.server.replication.partition import Isolation, Partition, PartitionRead, SpecialTimestamp
from barnabas.server.replication.purgatory import Purgatory
from barnabas.server.replication.rules.share_values import Ack, AcquireRequest
from barnabas.server.replication.shares.partition import SharePartition
from barnabas.server.replication.shares.partitions import SharePartitions
from barnabas.server.replication.shares.ports import ShareGroupConfig
from barnabas.server.storage.values import TimestampOffset
from tests.configs import share_partition_config
from tests.unit.server.coordination.kit import LoopClock, run_virtual

SETTINGS = ShareGroupConfig(
    share_partition_config(share_record_lock_duration_ms=1_000),
    Isolation.READ_UNCOMMITTED,
    SpecialTimestamp.EARLIEST,
)
NO_DISK = cast("Executor", None)


class Leader:
    """The partition: two batches of five records."""

    name = TopicPartition("t", 0)
    topic_id = UUID(int=1)
    leader_epoch = 3
    is_leader = True
    log = None

    def __init__(self) -> None:
        self.consumer_fetches = Purgatory()

    async def list_offset(self, timestamp: int, **_: Any) -> TimestampOffset:
        return TimestampOffset(-1, 0 if timestamp == SpecialTimestamp.EARLIEST else 10, 3)

    def read(self, offset: int, max_bytes: int, **_: Any) -> PartitionRead:
        batches = [build_batch([SimpleRecord(None, b"v", 1)] * 5, base_offset=base) for base in (0, 5)]
        return PartitionRead(b"".join(batches[offset // 5 :]), 10, 10, 0)


class Coordinator:
    """Remembers what is written; `codes` refuse the next writes, `gate` holds them up."""

    def __init__(self) -> None:
        self.written: list[tuple[int, int, list[tuple[int, int, int, int]]]] = []
        self.codes: list[ErrorCode] = []
        self.gate: asyncio.Event | None = None
        self.stored: tuple[int, int, list[tuple[int, int, int, int]]] = (7, -1, [])

    async def read(self, *_: object) -> tuple[int, int, list[tuple[int, int, int, int]]]:
        await asyncio.sleep(0)
        return self.stored

    async def write(
        self,
        group_id: str,
        topic_id: UUID,
        partition: int,
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        complete_count: int,
        batches: Iterable[tuple[int, int, int, int]],
    ) -> None:
        assert (state_epoch, leader_epoch) == (7, 3)
        if self.gate is not None:
            await self.gate.wait()
        if self.codes:
            raise KafkaError(self.codes.pop(0))
        self.written.append((start_offset, complete_count, [tuple(batch) for batch in batches]))  # type: ignore[misc]


class Stage:
    def __init__(self) -> None:
        self.coordinator = Coordinator()
        self.leader = Leader()
        self.shares = SharePartitions(self.coordinator, lambda group_id: SETTINGS, LoopClock())

    async def get(self) -> SharePartition:
        return await self.shares.get("g", cast("Partition", self.leader))


def on_stage(story: Any) -> None:
    async def main() -> None:
        stage = Stage()
        owner = asyncio.get_running_loop().create_task(stage.shares.run())
        await asyncio.sleep(0)
        try:
            await cast("Coroutine[Any, Any, None]", story(stage))
        finally:
            owner.cancel()
            await asyncio.gather(owner, return_exceptions=True)

    run_virtual(main())


def test_start_offset_is_written_at_once() -> None:
    async def story(stage: Stage) -> None:
        one, other = await asyncio.gather(stage.get(), stage.get())
        assert one is other
        assert stage.coordinator.written == [(0, 0, [])]

    on_stage(story)


def test_transitions_during_a_write_share_the_next_write() -> None:
    async def story(stage: Stage) -> None:
        share = await stage.get()
        taken = await share.fetch(AcquireRequest("m", 100), 1 << 20, NO_DISK)
        assert [tuple(piece) for piece in taken.acquired] == [(0, 9, 1)]
        stage.coordinator.gate = asyncio.Event()
        first = share.acknowledge("m", [Ack(5, 5, [1])])
        await asyncio.sleep(0.1)
        rest = [share.acknowledge("m", [Ack(o, o, [1])]) for o in (0, 1, 7)]
        await asyncio.sleep(0.1)
        assert first is not None
        assert not first.done()
        stage.coordinator.gate.set()
        await asyncio.gather(*(future for future in (first, *rest) if future is not None))
        assert stage.coordinator.written[1:] == [
            (0, 1, [(5, 5, 2, 1)]),
            (0, 4, [(0, 1, 2, 1), (7, 7, 2, 1)]),
        ]

    on_stage(story)


def test_failed_write_leaves_records_acquired() -> None:
    async def story(stage: Stage) -> None:
        share = await stage.get()
        await share.fetch(AcquireRequest("m", 100), 1 << 20, NO_DISK)
        stage.coordinator.codes.append(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        refused = share.acknowledge("m", [Ack(0, 9, [1])])
        assert refused is not None
        with pytest.raises(KafkaError):
            await refused
        again = share.acknowledge("m", [Ack(0, 9, [1])])
        assert again is not None
        await again
        assert share.state is not None
        assert share.state.start_offset == 10

    on_stage(story)


def test_expired_locks_complete_waiting_fetches() -> None:
    async def story(stage: Stage) -> None:
        share = await stage.get()
        await share.fetch(AcquireRequest("m", 100), 1 << 20, NO_DISK)
        assert (await share.fetch(AcquireRequest("n", 100), 1 << 20, NO_DISK)).acquired == []
        await asyncio.sleep(1.2)
        taken = await share.fetch(AcquireRequest("n", 100), 1 << 20, NO_DISK)
        assert [tuple(piece) for piece in taken.acquired] == [(0, 9, 2)]
        with pytest.raises(KafkaError) as refused:
            share.acknowledge("m", [Ack(0, 9, [1])])
        assert refused.value.code is ErrorCode.INVALID_RECORD_STATE

    on_stage(story)


@pytest.mark.parametrize("code", [ErrorCode.FENCED_STATE_EPOCH, ErrorCode.FENCED_LEADER_EPOCH])
def test_fenced_share_partition_is_loaded_again(code: ErrorCode) -> None:
    async def story(stage: Stage) -> None:
        share = await stage.get()
        await share.fetch(AcquireRequest("m", 100), 1 << 20, NO_DISK)
        stage.coordinator.codes.append(code)
        refused = share.acknowledge("m", [Ack(0, 9, [1])])
        assert refused is not None
        with pytest.raises(KafkaError):
            await refused
        await asyncio.sleep(0)
        with pytest.raises(KafkaError) as told:
            await share.fetch(AcquireRequest("m", 100), 1 << 20, NO_DISK)
        assert told.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        stage.coordinator.stored = (7, 4, [(5, 6, 2, 1)])
        fresh = await stage.get()
        assert fresh is not share
        taken = await fresh.fetch(AcquireRequest("m", 100), 1 << 20, NO_DISK)
        assert [tuple(piece) for piece in taken.acquired] == [(4, 4, 1), (7, 9, 1)]

    on_stage(story)


def test_lost_leadership_answers_all_waiting_requests() -> None:
    async def story(stage: Stage) -> None:
        share = await stage.get()
        await share.fetch(AcquireRequest("m", 100), 1 << 20, NO_DISK)
        stage.coordinator.gate = asyncio.Event()
        waiting = share.acknowledge("m", [Ack(0, 9, [1])])
        await asyncio.sleep(0.1)
        stage.shares.on_resigned(TopicPartition("t", 0), 3)
        assert waiting is not None
        with pytest.raises(KafkaError) as told:
            await waiting
        assert told.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert len(stage.shares) == 0
        stage.coordinator.gate.set()

    on_stage(story)
