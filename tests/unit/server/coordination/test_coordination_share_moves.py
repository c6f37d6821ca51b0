"""The share coordinator while its partition is loaded."""

from __future__ import annotations

import asyncio
from uuid import UUID

from barnabas.core.errors import ErrorCode
from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.messages import initialize_share_group_state as initializing
from barnabas.protocol.wire.messages import read_share_group_state as reading
from barnabas.server.coordination.share.service import ShareCoordinator
from tests.configs import share_coordinator_config
from tests.golden.coordination.stage import settle
from tests.unit.server.coordination.kit import Catalog, LoopClock, MemoryWriter, run_virtual, seeded

T, U = UUID(int=1), UUID(int=2)


class NoPruner:
    async def delete_before(self, partition: TopicPartition, offset: int) -> None: ...


async def initialize(states: ShareCoordinator, topic_id: UUID) -> ErrorCode:
    data = initializing.PartitionData(partition=0, state_epoch=1, start_offset=0)
    topic = initializing.InitializeStateData(topic_id=topic_id, partitions=[data])
    response = await states.initialize_share_group_state(
        initializing.InitializeShareGroupStateRequest(group_id="g", topics=[topic])
    )
    return ErrorCode(response.results[0].partitions[0].error_code)


async def read(states: ShareCoordinator, topic_id: UUID) -> ErrorCode:
    topic = reading.ReadStateData(topic_id=topic_id, partitions=[reading.PartitionData(partition=0, leader_epoch=0)])
    response = await states.read_share_group_state(reading.ReadShareGroupStateRequest(group_id="g", topics=[topic]))
    return ErrorCode(response.results[0].partitions[0].error_code)


def test_topics_that_change_while_the_coordinator_loads_are_known_afterwards() -> None:
    """A topic that was created meanwhile was unknown until the next change of the metadata, and the
    state of a topic that was deleted meanwhile stayed for ever."""

    async def scenario() -> None:
        writer = MemoryWriter()
        states = ShareCoordinator(share_coordinator_config(), writer, NoPruner(), Catalog(t=1), LoopClock(), seeded())
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(states.run())
            await settle()
            states.on_partition_count(1)
            states.on_elected(0, 1)
            await settle()
            assert await initialize(states, T) is ErrorCode.NONE
            assert await initialize(states, U) is not ErrorCode.NONE

            states.on_elected(0, 2)
            changed = Catalog(t=1, u=1)
            del changed.views["t"]
            states.on_topics_changed(changed, frozenset({T}))
            await settle()
            assert await initialize(states, U) is ErrorCode.NONE
            assert await read(states, T) is not ErrorCode.NONE
            assert [key.topic_id for _, shard in states._runtime.active() for key in shard.states] == [U]
            running.cancel()

    run_virtual(scenario())
