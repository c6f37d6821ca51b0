"""Shell: the workload of share consumers (KIP-932): a record is delivered until one consumer accepts or rejects it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

from barnabas.client.share.session import AcknowledgeType
from barnabas.client.values import ConfigChange, ConfigResource, ConfigResourceType
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.testing.sim.errors import CorrectnessError
from barnabas.testing.sim.workload.impatience import Impatience, ProgramFailedError, within
from barnabas.testing.sim.workload.supervisor import PATIENCE, PLAIN

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.share.consumer import AsyncShareConsumer
    from barnabas.client.values import ConsumerRecord
    from barnabas.testing.sim.workload.supervisor import Workload

SHARERS: Final = "sharers"
"""The group id of the share consumers."""


async def prepare_sharers(admin: AsyncAdmin) -> None:
    """Configures the share group to start at the first record."""
    group = ConfigResource(ConfigResourceType.GROUP, SHARERS)
    change = ConfigChange("share.auto.offset.reset", "earliest")
    for error in (await admin.incremental_alter_configs({group: [change]})).values():
        if error is not None:
            raise error


async def share(workload: Workload, who: str) -> None:
    """Runs one share consumer, which acknowledges most records and releases some."""
    impatience = Impatience(workload, who)
    if impatience.is_tried(0.5):
        await _share_implicitly(workload, who, impatience)
        return
    rng, facts = workload.world.random_stream(who), workload.facts
    accepted: set[str] = set()
    again: dict[str, str] = {}
    """Records that were delivered although another consumer's acknowledgement was confirmed. A partition leader that
    ends forgets which consumer has acquired a record. So a record in a consumer's buffer may meanwhile have been
    delivered to and acknowledged by another consumer; such records do not count."""
    buffer_empty_at = workload.now()
    """A time at which the buffer was empty: later polls return records that were fetched after this time."""

    def on_acknowledged(tp: TopicPartition, offsets: frozenset[int], error: KafkaError | None) -> None:
        if error is None:
            for name in sorted(f"{tp}@{offset}" for offset in offsets):
                if name in again:
                    facts.done_again.append(f"{name} was delivered to {who} after {again.pop(name)} acknowledged it")
                if name in accepted:
                    facts.done[name] = who, workload.now()

    async with workload.world.share_consumer(
        group_id=SHARERS,
        fetch_max_wait_ms=200,
        default_api_timeout_ms=8_000,
        max_poll_records=20,
        share_acknowledgement_mode="explicit",
        on_acknowledged=on_acknowledged,
        **PATIENCE,
    ) as consumer:
        consumer.subscribe([PLAIN])
        while not workload.stopping:
            asked_at = workload.now()
            records = await impatience.once(consumer.poll(300)) or []
            if not records:
                buffer_empty_at = asked_at
            for record in records:
                name = f"{record.topic}-{record.partition}@{record.offset}"
                facts.shared[name] = facts.shared.get(name, 0) + 1
                by, done_at = facts.done.get(name, ("", buffer_empty_at))
                if done_at < buffer_empty_at:
                    again[name] = by
                if rng.random() < 0.9:
                    accepted.add(name)
                    consumer.acknowledge(record)
                else:
                    accepted.discard(name)
                    consumer.acknowledge(record, AcknowledgeType.RELEASE)
            if records:
                await impatience.once(consumer.commit())
            await asyncio.sleep(rng.random() * 0.2)


class _ImplicitSharer:
    """A share consumer's program that processes records, fails while it does so, and never acknowledges by itself."""

    def __init__(self, workload: Workload, who: str, impatience: Impatience) -> None:
        self._workload = workload
        self._who = who
        self._impatience = impatience
        self._processed: set[str] = set()
        self._wrong = ""

    def on_acknowledged(self, tp: TopicPartition, offsets: frozenset[int], error: KafkaError | None) -> None:
        for name in sorted(f"{tp}@{offset}" for offset in offsets if error is None):
            self._workload.facts.done[name] = self._who, self._workload.now()
            if name not in self._processed:
                self._wrong = f"The record {name} was acknowledged for {self._who}, which has not processed it."

    async def work(self, consumer: AsyncShareConsumer) -> None:
        if self._impatience.is_tried(0.5):
            records = aiter(consumer)
            for _ in range(self._impatience.some(10)):
                record = await within(0.3, anext(records))
                if record is None:
                    break
                self._process(record)
        else:
            for record in await self._impatience.once(consumer.poll(300)) or []:
                self._process(record)
        if self._impatience.is_tried(0.3):
            await self._impatience.once(consumer.commit())

    def _process(self, record: ConsumerRecord[Any, Any]) -> None:
        name = f"{record.topic}-{record.partition}@{record.offset}"
        self._workload.facts.shared[name] = self._workload.facts.shared.get(name, 0) + 1
        if self._impatience.is_tried(0.02):
            raise ProgramFailedError
        self._processed.add(name)

    def check(self) -> None:
        if self._wrong:
            raise CorrectnessError(self._wrong)


async def _share_implicitly(workload: Workload, who: str, impatience: Impatience) -> None:
    sharer = _ImplicitSharer(workload, who, impatience)
    with contextlib.suppress(ProgramFailedError):
        async with workload.world.share_consumer(
            group_id=SHARERS,
            fetch_max_wait_ms=200,
            default_api_timeout_ms=8_000,
            max_poll_records=20,
            on_acknowledged=sharer.on_acknowledged,
            **PATIENCE,
        ) as consumer:
            consumer.subscribe([PLAIN])
            lifetime = impatience.some(40)
            while not workload.stopping and lifetime:
                lifetime -= 1
                await sharer.work(consumer)
                sharer.check()
    sharer.check()
