"""Shell: the workload of group members, and of consumers that are assigned every partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.core.errors import BarnabasError
from barnabas.core.ids import TopicPartition
from barnabas.testing.histories import OperationKind
from barnabas.testing.sim.workload.impatience import Impatience, membership_of
from barnabas.testing.sim.workload.supervisor import ATOMIC, GROUP, PATIENCE, PLAIN, polls_of

if TYPE_CHECKING:
    from barnabas.client.consumer.consumer import AsyncConsumer
    from barnabas.testing.sim.workload.supervisor import Workload


async def read(workload: Workload, who: str) -> None:
    """Runs one member of the group. The member polls both topics, commits its position, and waits for the response."""
    rng, impatience = workload.world.random_stream(who), Impatience(workload, who)
    async with workload.world.consumer(
        group_id=GROUP,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        session_timeout_ms=6_000,
        heartbeat_interval_ms=1_000,
        fetch_max_wait_ms=200,
        client_rack=workload.rack_of(who),
        default_api_timeout_ms=8_000,
        group_protocol="consumer" if workload.world.seed % 2 else "classic",
        **PATIENCE,
    ) as consumer:
        consumer.subscribe([PLAIN, ATOMIC])
        workload.facts.recorder.note(who, OperationKind.SUBSCRIBE, (), workload.now())
        while not workload.stopping:
            await _poll(workload, who, consumer, impatience, 300)
            if rng.random() < 0.5:
                await _commit(workload, consumer)


async def watch(workload: Workload, who: str) -> None:
    """Reads every partition from its start with isolation level read_committed and manual assignment, so that its polls
    may neither skip nor repeat records."""
    impatience = Impatience(workload, who)
    tps = [TopicPartition(topic, index) for topic in (PLAIN, ATOMIC) for index in range(workload.partitions)]
    async with workload.world.consumer(
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        fetch_max_wait_ms=300,
        client_rack=workload.rack_of(who),
        default_api_timeout_ms=8_000,
        **PATIENCE,
    ) as consumer:
        consumer.assign(tps)
        workload.facts.recorder.note(who, OperationKind.ASSIGN, [str(tp) for tp in tps], workload.now())
        while not workload.stopping:
            await _poll(workload, who, consumer, impatience, 500)


async def _poll(
    workload: Workload, who: str, consumer: AsyncConsumer, impatience: Impatience, timeout_ms: float
) -> None:
    recorder = workload.facts.recorder
    before = membership_of(consumer)
    operation = recorder.invoke(who, OperationKind.POLL, (), workload.now())
    try:
        records = await impatience.read(consumer, timeout_ms)
    except BarnabasError:
        recorder.info(operation, (), workload.now())
        raise
    recorder.ok(operation, polls_of(records), workload.now(), rebalanced=membership_of(consumer) != before)


async def _commit(workload: Workload, consumer: AsyncConsumer) -> None:
    positions = positions_of(consumer)
    if not positions:
        return
    await consumer.commit(positions)
    workload.on_committed(GROUP, positions)
    committed = workload.facts.committed
    for tp, offset in positions.items():
        committed[tp] = max(committed.get(tp, 0), offset)


def positions_of(consumer: AsyncConsumer) -> dict[TopicPartition, int]:
    """The positions behind what the program has received, for the partitions whose position is known."""
    return {tp: found.offset for tp, found in sorted(consumer._subscription.all_returned().items())}
