"""The offset APIs of share groups with very many partitions: the event loop runs other tasks in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from barnabas.core import work
from barnabas.core.errors import ErrorCode
from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.messages import alter_share_group_offsets as alter
from barnabas.protocol.wire.messages import delete_share_group_offsets as delete
from barnabas.protocol.wire.messages import describe_share_group_offsets as describe
from barnabas.server.coordination.group.service import GroupCoordinator
from barnabas.server.coordination.group.share.service import ShareGroupService
from barnabas.server.coordination.share.state import ShareState
from tests.configs import group_coordinator_config
from tests.golden.coordination.stage import settle
from tests.steps import longest_step
from tests.unit.server.coordination.kit import Catalog, Context, LoopClock, MemoryWriter, run_virtual, seeded

EXISTING = 3_000
REQUESTED = 20_000


class States:
    """A `ShareStates` and `PartitionEnds` that knows every share partition."""

    def __init__(self) -> None:
        self.requested: list[int] = []
        self.ends_at_once = 0

    async def initialize(self, group_id: str, state_epoch: int, starts: Any) -> Any:
        self.requested += [p for partitions in starts.values() for p in partitions]
        return {(topic_id, p): None for topic_id, partitions in starts.items() for p in partitions}

    async def summaries(self, group_id: str, partitions: Any) -> Any:
        self.requested += [p for some in partitions.values() for p in some]
        return {(t, p): ShareState(start_offset=p, complete_count=0) for t, some in partitions.items() for p in some}

    async def delete(self, group_id: str, partitions: Any) -> Any:
        return {(topic_id, p): None for topic_id, some in partitions.items() for p in some}

    async def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        chosen = list(partitions)
        self.ends_at_once = max(self.ends_at_once, len(chosen))
        return {tp: tp.partition + 5 for tp in chosen}


@asynccontextmanager
async def service() -> AsyncIterator[tuple[ShareGroupService, States]]:
    groups = GroupCoordinator(
        group_coordinator_config(), MemoryWriter(), Catalog(t=EXISTING), LoopClock(), seeded()
    )  # fmt: skip
    groups.on_partition_count(1)
    owner = asyncio.ensure_future(groups.run())
    await settle()
    groups.on_elected(0, 0)
    await settle()
    states = States()
    try:
        yield ShareGroupService(groups, states, states), states
    finally:
        owner.cancel()
        await asyncio.gather(owner, return_exceptions=True)


def describe_request(partitions: list[int]) -> describe.DescribeShareGroupOffsetsRequest:
    topic = describe.DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=partitions)
    group = describe.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=[topic])
    return describe.DescribeShareGroupOffsetsRequest(groups=[group])


def test_the_offsets_of_many_partitions_are_described_in_short_steps() -> None:
    async def scenario() -> None:
        async with service() as (shares, states):
            wanted = [p % (EXISTING + 1) for p in range(REQUESTED)]
            request = describe_request(wanted)
            response, longest = await longest_step(shares.describe_share_group_offsets(Context(0), request))
            partitions = response.groups[0].topics[0].partitions
            assert [p.partition_index for p in partitions] == wanted
            known = [p for p in partitions if p.partition_index < EXISTING]
            assert {(p.start_offset - p.partition_index, p.lag, p.error_code) for p in known} == {(0, 5, 0)}
            assert partitions[EXISTING].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert sorted(states.requested) == list(range(EXISTING)), "each share partition is requested once"
            assert states.ends_at_once <= 1_000
            assert longest <= 2 * work.STEP_UNITS

    run_virtual(scenario())


def test_the_offsets_of_many_groups_are_described_in_short_steps() -> None:
    async def scenario() -> None:
        async with service() as (shares, _):
            group = describe.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=[])
            request = describe.DescribeShareGroupOffsetsRequest(groups=[group] * 5_000)
            response, longest = await longest_step(shares.describe_share_group_offsets(Context(0), request))
            assert len(response.groups) == 5_000
            assert longest <= work.STEP_UNITS

    run_virtual(scenario())


def test_the_offsets_of_many_partitions_are_altered_in_short_steps() -> None:
    async def scenario() -> None:
        async with service() as (shares, states):
            partitions = [
                alter.AlterShareGroupOffsetsRequestPartition(partition_index=p, start_offset=1)
                for p in range(REQUESTED)
            ]
            topic = alter.AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=partitions)
            request = alter.AlterShareGroupOffsetsRequest(group_id="g", topics=[topic])
            response, longest = await longest_step(shares.alter_share_group_offsets(Context(0), request))
            codes = [p.error_code for p in response.responses[0].partitions]
            missing = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * (REQUESTED - EXISTING)
            assert codes == [*[ErrorCode.NONE] * EXISTING, *missing]
            assert states.requested == list(range(EXISTING))
            assert longest <= 2 * work.STEP_UNITS

    run_virtual(scenario())


def test_the_offsets_of_many_topics_are_deleted_in_short_steps() -> None:
    async def scenario() -> None:
        async with service() as (shares, _):
            await shares.alter_share_group_offsets(Context(0), one_partition())
            topics = [
                delete.DeleteShareGroupOffsetsRequestTopic(topic_name=name)
                for name in ["t", *(f"x{index}" for index in range(REQUESTED))]
            ]
            request = delete.DeleteShareGroupOffsetsRequest(group_id="g", topics=topics)
            response, longest = await longest_step(shares.delete_share_group_offsets(Context(0), request))
            codes = [topic.error_code for topic in response.responses]
            assert codes == [ErrorCode.NONE, *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * REQUESTED]
            assert longest <= work.STEP_UNITS

    run_virtual(scenario())


def one_partition() -> alter.AlterShareGroupOffsetsRequest:
    partition = alter.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=1)
    topic = alter.AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[partition])
    return alter.AlterShareGroupOffsetsRequest(group_id="g", topics=[topic])


def test_a_topic_that_is_deleted_while_its_offsets_are_altered_is_unknown() -> None:
    async def scenario() -> None:
        groups_catalog = Catalog()
        async with service() as (shares, _):
            groups = shares._groups
            assert isinstance(groups, GroupCoordinator)
            partitions = [
                alter.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=1)
                for _ in range(REQUESTED)
            ]
            topic = alter.AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=partitions)
            request = alter.AlterShareGroupOffsetsRequest(group_id="g", topics=[topic, topic])
            task = asyncio.ensure_future(shares.alter_share_group_offsets(Context(0), request))
            await asyncio.sleep(0)
            assert not task.done()
            groups.on_topics_changed(groups_catalog, frozenset({"t"}))
            response = await task
            codes = {p.error_code for answer in response.responses for p in answer.partitions}
            assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            assert {answer.topic_id for answer in response.responses} == {UUID(int=0)}

    run_virtual(scenario())
