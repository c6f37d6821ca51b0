"""Shell: the actions of an operator during faults: move partitions, drain brokers, change configs, create topics.

An action that is rejected or times out is written to the trace, and not repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from barnabas.client.values import ConfigChange, ConfigResource
from barnabas.core.errors import BarnabasError, KafkaError, error_code
from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.testing.sim.cluster.fault_context import ClusterFault, FaultContext
from barnabas.testing.sim.workload.supervisor import PATIENCE

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin

_WITHIN_MS: Final = 8_000


@asynccontextmanager
async def admin_of(context: FaultContext) -> AsyncIterator[AsyncAdmin]:
    """An admin client for one action. An error of the block is written to the trace and suppressed."""
    try:
        async with context.world.admin(default_api_timeout_ms=_WITHIN_MS, **PATIENCE) as admin:
            yield admin
    except (BarnabasError, TimeoutError) as error:
        context.world.trace.event("operator", f"gives up: {type(error).__name__}: {str(error)[:120]}")


async def reassign(
    context: FaultContext, admin: AsyncAdmin, moves: Mapping[TopicPartition, Sequence[int] | None]
) -> None:
    """Moves partitions to the given replicas; None cancels a move."""
    topics: dict[str, list[ReassignablePartition]] = {}
    for tp, replicas in moves.items():
        wanted = None if replicas is None else list(replicas)
        topics.setdefault(tp.topic, []).append(ReassignablePartition(partition_index=tp.partition, replicas=wanted))
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=_WITHIN_MS,
        topics=[ReassignableTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
    )
    targets = {str(tp): replicas for tp, replicas in moves.items()}
    context.world.trace.event("operator", f"reassigns {targets}")
    answer = await admin.cluster.send_controller(request, deadline=admin.cluster.deadline(_WITHIN_MS))
    assert isinstance(answer, AlterPartitionReassignmentsResponse)
    refused = [answer.error_code, *(p.error_code for topic in answer.responses for p in topic.partitions)]
    for code in refused:
        if code:
            raise KafkaError(error_code(code), "The reassignment was refused.")


async def move(context: FaultContext) -> None:
    """Moves one partition to other brokers. Some moves are cancelled before their end."""
    tp, rng = context.any_partition(), context.rng
    image = context.cluster.partition(tp)
    ids = [broker.node_id for broker in context.cluster.brokers]
    if image is None:
        return
    wanted = rng.sample(ids, min(len(image.replicas), len(ids)))
    async with admin_of(context) as admin:
        await reassign(context, admin, {tp: wanted})
        if rng.random() < 0.3:
            await asyncio.sleep(context.some(0.0, 1.0))
            await reassign(context, admin, {tp: None})


async def drain(context: FaultContext) -> None:
    """Moves all replicas off one broker to other brokers (with three brokers, partitions then have fewer replicas)."""
    broker = context.any_broker().node_id
    image = context.cluster.newest_image()
    others = [other.node_id for other in context.cluster.brokers if other.node_id != broker]
    moves: dict[TopicPartition, list[int] | None] = {}
    back: dict[TopicPartition, list[int] | None] = {}
    for topic in () if image is None else image.topics:
        for index, partition in enumerate(topic.partitions):
            if broker in partition.replicas:
                kept = [replica for replica in partition.replicas if replica != broker]
                free = [other for other in others if other not in kept]
                tp = TopicPartition(topic.name, index)
                moves[tp] = [*kept, *free[:1]]
                back[tp] = list(partition.replicas)
    if not moves:
        return
    async with admin_of(context) as admin:
        await reassign(context, admin, moves)
        await asyncio.sleep(context.some(1.0, 6.0))
        await reassign(context, admin, back)


async def elect_preferred(context: FaultContext) -> None:
    async with admin_of(context) as admin:
        await admin.elect_leaders()


async def change_configs(context: FaultContext) -> None:
    """Changes configs of a topic that do not affect any guarantee."""
    rng = context.rng
    name, value = rng.choice(
        [
            ("max.message.bytes", "500000"),
            ("segment.ms", str(rng.choice([1_500, 604_800_000]))),
            ("internal.segment.bytes", str(rng.choice([6_000, 1 << 20]))),
            ("index.interval.bytes", str(rng.choice([0, 4096]))),
            ("message.timestamp.type", rng.choice(["CreateTime", "LogAppendTime"])),
        ]
    )
    topic = context.choice(context.topics)
    async with admin_of(context) as admin:
        await admin.incremental_alter_configs({ConfigResource.topic(topic): [ConfigChange(name, value)]})


async def make_topics(context: FaultContext) -> None:
    """Creates a topic, writes to the topic, and deletes it."""
    name = f"brief-{context.rng.randrange(1_000)}"
    async with admin_of(context) as admin:
        await admin.create_topic(name, context.rng.randint(1, 3))
        await asyncio.sleep(context.some(0.0, 3.0))
        await admin.delete_topics([name])


OPERATIONS = (
    ClusterFault("move a partition", 4, move),
    ClusterFault("drain a broker", 2, drain),
    ClusterFault("elect preferred leaders", 1, elect_preferred),
    ClusterFault("change configs", 1, change_configs),
    ClusterFault("make topics", 2, make_topics),
)
