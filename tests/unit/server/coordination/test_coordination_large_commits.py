"""Commits of many offsets, and topics that change while a coordinator loads."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from barnabas.core import work
from barnabas.core.errors import ErrorCode
from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.server.coordination.group.service import GroupCoordinator
from tests.configs import group_coordinator_config
from tests.golden.coordination.stage import settle
from tests.unit.server.coordination.kit import Catalog, Context, LoopClock, MemoryWriter, run_virtual

LOG = TopicPartition("__consumer_offsets", 0)


@asynccontextmanager
async def coordinator(writer: MemoryWriter, catalog: Catalog) -> AsyncIterator[GroupCoordinator]:
    config = group_coordinator_config()
    groups = GroupCoordinator(config, writer, catalog, LoopClock(), random.Random(1))
    groups.on_partition_count(1)
    owner = asyncio.ensure_future(groups.run())
    await settle()
    try:
        yield groups
    finally:
        owner.cancel()
        await asyncio.gather(owner, return_exceptions=True)


def offset_commit(count: int, metadata: str = "") -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(partition_index=i, committed_offset=i, committed_metadata=metadata)
        for i in range(count)
    ]
    topic = OffsetCommitRequestTopic(name="t", partitions=partitions)
    return OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=[topic])


def txn_offset_commit(count: int, metadata: str = "") -> TxnOffsetCommitRequest:
    partitions = [
        TxnOffsetCommitRequestPartition(partition_index=i, committed_offset=i, committed_metadata=metadata)
        for i in range(count)
    ]
    topic = TxnOffsetCommitRequestTopic(name="t", partitions=partitions)
    return TxnOffsetCommitRequest(
        transactional_id="x", group_id="g", producer_id=1, producer_epoch=0, generation_id=-1, topics=[topic]
    )


Commit = Callable[[GroupCoordinator, int, str], Awaitable[Any]]


async def plain(groups: GroupCoordinator, count: int, metadata: str) -> Any:
    return await groups.offset_commit(Context(8), offset_commit(count, metadata))


async def transactional(groups: GroupCoordinator, count: int, metadata: str) -> Any:
    return await groups.txn_offset_commit(Context(3), txn_offset_commit(count, metadata))


@pytest.mark.parametrize("commit", [plain, transactional])
@pytest.mark.parametrize(("count", "metadata"), [(60_000, ""), (1_000, "m" * 2_000)])
def test_a_commit_that_cannot_fit_into_a_batch_is_rejected_in_short_steps(
    commit: Commit, count: int, metadata: str
) -> None:
    async def scenario() -> None:
        writer = MemoryWriter()
        async with coordinator(writer, Catalog(t=100_000)) as groups:
            groups.on_elected(0, 0)
            await settle()
            longest = 0
            work.STEP.units = 0
            task = asyncio.ensure_future(commit(groups, count, metadata))
            while not task.done():
                await asyncio.sleep(0)
                longest, work.STEP.units = max(longest, work.STEP.units), 0
            partitions = task.result().topics[0].partitions
            assert {p.error_code for p in partitions} == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
            assert len(partitions) == count
            assert longest <= work.STEP_UNITS
            assert writer[LOG].log == []

    run_virtual(scenario())


@pytest.mark.parametrize("commit", [plain, transactional])
def test_a_commit_of_ten_thousand_offsets_is_written(commit: Commit) -> None:
    async def scenario() -> None:
        writer = MemoryWriter()
        async with coordinator(writer, Catalog(t=10_000)) as groups:
            groups.on_elected(0, 0)
            await settle()
            response = await commit(groups, 10_000, "")
            assert {p.error_code for p in response.topics[0].partitions} == {ErrorCode.NONE}
            assert len(writer[LOG].log) == 1

    run_virtual(scenario())


def test_topics_that_change_while_a_coordinator_loads_are_known_when_it_has_loaded() -> None:
    async def scenario() -> None:
        writer = MemoryWriter()
        async with coordinator(writer, Catalog(old=1, t=1)) as groups:
            groups.on_elected(0, 0)
            groups.on_topics_changed(Catalog(t=2))
            await settle()
            response = await plain(groups, 2, "")
            assert [p.error_code for p in response.topics[0].partitions] == [ErrorCode.NONE, ErrorCode.NONE]

    run_virtual(scenario())
