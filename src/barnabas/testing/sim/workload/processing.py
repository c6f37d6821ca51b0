"""Shell: the workload of a group whose members process each record, fail while they do so, and have listeners that are
slow and that fail. Whatever they do, the group processes every record at least once."""

from __future__ import annotations

import asyncio
import contextlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from barnabas.client.consumer.coordinator import RebalanceListener
from barnabas.client.errors import CommitFailedError
from barnabas.client.values import ConfigChange, ConfigResource, ConfigResourceType
from barnabas.testing.sim.errors import CorrectnessError, LivenessError
from barnabas.testing.sim.workload.impatience import Impatience, ProgramFailedError, within
from barnabas.testing.sim.workload.supervisor import PATIENCE, PLAIN, decode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.consumer.consumer import AsyncConsumer
    from barnabas.client.values import ConsumerRecord
    from barnabas.core.ids import TopicPartition
    from barnabas.testing.sim.workload.supervisor import Workload

PROCESSORS: Final = "processors"
"""The group id of the processors."""
HEARTBEAT_INTERVAL_MS: Final = 300
SESSION_TIMEOUT_MS: Final = 6_000
NODES: Final = MappingProxyType(
    {
        "group.consumer.min.heartbeat.interval.ms": str(HEARTBEAT_INTERVAL_MS),
        "group.consumer.min.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    }
)
"""The settings of nodes with which the group of processors can be configured."""
_FAILING_SHARE: Final = 0.02
_POLL_MS: Final = 300.0
_WITHIN_S: Final = 40.0
"""Simulated seconds within which calm processors process what is left: several session time-outs."""


class ListenerFailedError(Exception):
    """A rebalance listener has failed on purpose."""


async def prepare_processors(admin: AsyncAdmin) -> None:
    """Configures short intervals, so that the members learn of each other within the run."""
    group = ConfigResource(ConfigResourceType.GROUP, PROCESSORS)
    changes = [
        ConfigChange("consumer.heartbeat.interval.ms", str(HEARTBEAT_INTERVAL_MS)),
        ConfigChange("consumer.session.timeout.ms", str(SESSION_TIMEOUT_MS)),
    ]
    for error in (await admin.incremental_alter_configs({group: changes})).values():
        if error is not None:
            raise error


async def process(workload: Workload, who: str) -> None:
    """Runs one member of the group. The member ends normally, or with an exception while it processes a record."""
    rng, world = workload.world.random_stream(who), workload.world
    with contextlib.suppress(ProgramFailedError, ListenerFailedError):
        async with world.consumer(
            group_id=PROCESSORS,
            auto_offset_reset="earliest",
            enable_auto_commit=(automatic := rng.random() < 0.5),
            auto_commit_interval_ms=500,
            isolation_level="read_committed",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
            fetch_max_wait_ms=200,
            default_api_timeout_ms=8_000,
            max_poll_records=rng.choice([5, 50]),
            group_protocol="classic" if workload.world.seed % 2 else "consumer",
            **PATIENCE,
        ) as consumer:
            program = _Program(workload, who, consumer, commits=not automatic)
            consumer.subscribe([PLAIN], program.listener)
            lifetime = rng.choice([3, 10, 1_000])
            while not workload.stopping and (lifetime > 0 or workload.calm):  # in the end a member must not get stuck
                lifetime -= 1
                await program.work()
    if not workload.calm:
        await asyncio.sleep(rng.random() * 1.5)  # so that the others take over meanwhile


async def until_processed(workload: Workload, *, after_s: float = 0.0) -> None:
    """Makes the programs calm, and waits until the group has processed every record that was acknowledged by now.
    `after_s` are the simulated seconds during which members may still be delayed by what was before."""
    workload.calm = True
    facts = workload.facts
    wanted = dict(facts.plain) if workload.mix.processors else {}

    def done() -> bool:
        return workload.failure is not None or wanted.keys() <= facts.processed

    try:
        await workload.world.until(done, after_s + _WITHIN_S, "the processors process every acknowledged record")
    except LivenessError as error:
        async with workload.world.consumer(group_id=PROCESSORS, default_api_timeout_ms=60_000) as consumer:
            committed = await consumer.committed(sorted({tp for tp, _ in wanted.values()}))
        for value in sorted(wanted.keys() - facts.processed, key=str):
            tp, offset = wanted[value]
            position = committed[tp]
            if position is not None and offset < position.offset:
                raise CorrectnessError(
                    f"The group {PROCESSORS} has passed over the record at {offset} of {tp}: it has committed"
                    f" {position.offset}, and no member has processed the record."
                ) from error
        raise


class _Listener(RebalanceListener):
    """Knows the partitions of its member. Its methods are slow, and they fail, at times."""

    def __init__(self, impatience: Impatience, consumer: AsyncConsumer) -> None:
        self.owned: set[TopicPartition] = set()
        self.processed: dict[TopicPartition, int] = {}
        """The position after the last processed record of each owned partition."""
        self.commits = False
        self._impatience = impatience
        self._consumer = consumer

    async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        await self._dawdle()
        self.owned.update(partitions)

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        await self._dawdle()
        if self.commits:
            with contextlib.suppress(CommitFailedError):
                await self._consumer.commit({tp: self.processed[tp] for tp in partitions if tp in self.processed})
        self._forget(partitions)

    async def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        await self._dawdle()
        self._forget(partitions)

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            self.owned.discard(tp)
            self.processed.pop(tp, None)

    async def _dawdle(self) -> None:
        if self._impatience.is_tried(0.4):
            await asyncio.sleep(self._impatience.some_s())
        if self._impatience.is_tried(0.35):
            raise ListenerFailedError


class _Program:
    """What a member does with its consumer. A record counts as processed at the end of `_process`."""

    def __init__(self, workload: Workload, who: str, consumer: AsyncConsumer, *, commits: bool) -> None:
        self._workload = workload
        self._who = who
        self._consumer = consumer
        self._impatience = Impatience(workload, who)
        self.listener = _Listener(self._impatience, consumer)
        self.listener.commits = self._commits = commits

    async def work(self) -> None:
        """Read some records, and process them."""
        try:
            if self._impatience.is_tried(0.5):
                await self._iterate()
            else:
                records = await self._impatience.poll(self._consumer, _POLL_MS)
                await self._process_all(records)
        except ListenerFailedError:
            self._workload.trace(self._who, "the listener failed")
        if self._commits and self._impatience.some(3) == 1:
            with contextlib.suppress(CommitFailedError):
                await self._impatience.once(self._consumer.commit())

    async def _iterate(self) -> None:
        """Process each record in the body of the loop."""
        left = self._impatience.some(10)
        records = aiter(self._consumer)
        while left:
            left -= 1
            record = await within(_POLL_MS / 1000.0, anext(records))
            if record is None:
                return
            await self._process_all([record])
            if self._commits and self._impatience.is_tried(0.3):
                with contextlib.suppress(CommitFailedError):
                    await self._impatience.once(self._consumer.commit())

    async def _process_all(self, records: list[ConsumerRecord[Any, Any]]) -> None:
        done = 0
        try:
            for record in records:
                await self._process(record)
                done += 1
        except ProgramFailedError:
            if self._impatience.is_tried(0.5):
                raise  # and leave the consumer
            if self._impatience.is_tried(0.2):
                with contextlib.suppress(ListenerFailedError):
                    await self._consumer.close()
                raise
            for record in reversed(records[done:]):
                if record.topic_partition in self._consumer.assignment():
                    self._consumer.seek(record.topic_partition, record.offset)

    async def _process(self, record: ConsumerRecord[Any, Any]) -> None:
        tp = record.topic_partition
        if tp not in self.listener.owned:
            raise CorrectnessError(f"{self._who} got a record of {tp}, and its listener was never told of {tp}.")
        if self._impatience.is_tried(_FAILING_SHARE):
            raise ProgramFailedError
        if self._impatience.is_tried(0.05):
            await asyncio.sleep(self._impatience.some_s())
        self._workload.facts.processed.add(decode(record.value))
        self.listener.processed[tp] = record.offset + 1
