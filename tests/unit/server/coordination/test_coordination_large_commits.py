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
from barnabas.protocol.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.server.coordination.group.service import GroupCoordinator
from tests.configs import group_coordinator_config
from tests.golden.coordination.stage import settle
from tests.steps import longest_step
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
            response, longest = await longest_step(commit(groups, count, metadata))
            partitions = response.topics[0].partitions
            assert {p.error_code for p in partitions} == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
            assert len(partitions) == count
            assert longest <= work.STEP_UNITS
            assert writer[LOG].log == []

    run_virtual(scenario())


@pytest.mark.parametrize("commit", [plain, transactional])
def test_a_commit_of_ten_thousand_offsets_is_written_in_short_steps(commit: Commit) -> None:
    async def scenario() -> None:
        writer = MemoryWriter()
        async with coordinator(writer, Catalog(t=10_000)) as groups:
            groups.on_elected(0, 0)
            await settle()
            response, longest = await longest_step(commit(groups, 10_000, ""))
            assert {p.error_code for p in response.topics[0].partitions} == {ErrorCode.NONE}
            assert len(writer[LOG].log) == 1
            assert 10_000 // 4 <= longest <= 10_000 // 3  # the records are applied and appended in one step

    run_virtual(scenario())


@pytest.mark.parametrize("commit", [plain, transactional])
def test_a_topic_deleted_while_a_commit_is_built_gets_no_offsets(commit: Commit) -> None:
    async def scenario() -> None:
        writer = MemoryWriter()
        async with coordinator(writer, Catalog(t=10_000)) as groups:
            groups.on_elected(0, 0)
            await settle()
            task = asyncio.ensure_future(commit(groups, 10_000, ""))
            await asyncio.sleep(0)
            assert not task.done()
            groups.on_topics_changed(Catalog(), frozenset({"t"}))
            response = await task
            assert {p.error_code for p in response.topics[0].partitions} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            assert writer[LOG].log == []

    run_virtual(scenario())


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("names_partitions", [False, True])
def test_a_fetch_of_many_offsets_is_answered_in_short_steps(stable: bool, names_partitions: bool) -> None:
    async def scenario() -> None:
        async with coordinator(MemoryWriter(), Catalog(t=10_000)) as groups:
            groups.on_elected(0, 0)
            await settle()
            await plain(groups, 10_000, "")
            topics = [OffsetFetchRequestTopics(name="t", partition_indexes=list(range(90_000)))]
            requested = OffsetFetchRequestGroup(group_id="g", topics=topics if names_partitions else None)
            request = OffsetFetchRequest(groups=[requested], require_stable=stable)
            response, longest = await longest_step(groups.offset_fetch(Context(8), request))
            offsets = [p.committed_offset for p in response.groups[0].topics[0].partitions]
            assert offsets[:10_000] == list(range(10_000))
            assert set(offsets[10_000:]) == ({-1} if names_partitions else set())
            assert longest <= work.STEP_UNITS

    run_virtual(scenario())


def test_many_members_leave_in_several_operations() -> None:
    async def scenario() -> None:
        async with coordinator(MemoryWriter(), Catalog(t=1)) as groups:
            groups.on_elected(0, 0)
            await settle()
            await plain(groups, 1, "")
            operations = []
            write = groups._runtime.write

            async def counted(*arguments: Any, **options: Any) -> Any:
                operations.append(arguments)
                return await write(*arguments, **options)

            groups._runtime.write = counted  # type: ignore[method-assign]
            names = [f"m{number}" for number in range(2_500)]
            request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=name) for name in names])
            response = await groups.leave_group(Context(5), request)
            assert [member.member_id for member in response.members] == names
            assert {member.error_code for member in response.members} == {ErrorCode.UNKNOWN_MEMBER_ID}
            assert len(operations) == 3

    run_virtual(scenario())


def test_an_offset_is_read_before_a_stable_fetch_waits() -> None:
    """The response of a fetch that waits for a commit must not have offsets that were written while it waited."""

    async def scenario() -> None:
        writer = MemoryWriter()
        async with coordinator(writer, Catalog(t=1)) as groups:
            groups.on_elected(0, 0)
            await settle()
            writer.hold = True
            first = asyncio.ensure_future(plain(groups, 1, ""))
            await settle()
            topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
            requested = OffsetFetchRequestGroup(group_id="g", topics=topics)
            fetch = OffsetFetchRequest(groups=[requested], require_stable=True)
            fetched = asyncio.ensure_future(groups.offset_fetch(Context(8), fetch))
            await settle()
            second = offset_commit(1)
            second.topics[0].partitions[0].committed_offset = 7
            last = asyncio.ensure_future(groups.offset_commit(Context(8), second))
            await settle()
            writer.commit(LOG)
            await asyncio.gather(first, last)
            assert (await fetched).groups[0].topics[0].partitions[0].committed_offset == 0

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


@pytest.mark.parametrize("stable", [False, True])
def test_the_offsets_of_many_groups_are_fetched_in_short_steps(stable: bool) -> None:
    async def scenario() -> None:
        async with coordinator(MemoryWriter(), Catalog(t=1)) as groups:
            groups.on_elected(0, 0)
            await settle()
            requested = [OffsetFetchRequestGroup(group_id=f"g{number}", topics=[]) for number in range(5_000)]
            request = OffsetFetchRequest(groups=requested, require_stable=stable)
            response, longest = await longest_step(groups.offset_fetch(Context(8), request))
            assert [group.group_id for group in response.groups] == [group.group_id for group in requested]
            assert longest <= work.STEP_UNITS

    run_virtual(scenario())
