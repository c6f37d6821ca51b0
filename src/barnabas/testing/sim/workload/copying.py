"""Shell: the read-process-write workload (KIP-447): transactions copy every record of one topic to another exactly
once."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, Final

from barnabas.core.errors import BarnabasError
from barnabas.core.ids import TopicPartition
from barnabas.testing.histories import Action, OperationKind, SendAction
from barnabas.testing.sim.workload.impatience import Impatience, membership_of
from barnabas.testing.sim.workload.producing import try_abort
from barnabas.testing.sim.workload.supervisor import COPIED, PATIENCE, PLAIN, encode, polls_of

if TYPE_CHECKING:
    from barnabas.client.consumer.consumer import AsyncConsumer
    from barnabas.client.producer.producer import AsyncProducer
    from barnabas.testing.sim.workload.supervisor import Workload

COPIERS: Final = "copiers"
"""The group id of the copiers."""


async def copy(workload: Workload, who: str) -> None:
    """Runs one member of the copiers' group. A transaction commits the output records and the input offsets
    together."""
    rng, world = workload.world.random_stream(who), workload.world
    impatience = Impatience(workload, who)
    settings: dict[str, Any] = {**PATIENCE, "delivery_timeout_ms": 6_000, "max_block_ms": 8_000}
    async with (
        world.producer(transactional_id=who.partition(".")[0], transaction_timeout_ms=8_000, **settings) as producer,
        world.consumer(
            group_id=COPIERS,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            session_timeout_ms=6_000,
            heartbeat_interval_ms=1_000,
            fetch_max_wait_ms=200,
            default_api_timeout_ms=8_000,
            max_poll_records=20,
            group_protocol="classic" if world.seed % 2 else "consumer",
            **PATIENCE,
        ) as consumer,
    ):
        await producer.init_transactions()
        consumer.subscribe([PLAIN])
        workload.facts.recorder.note(who, OperationKind.SUBSCRIBE, (), workload.now())
        while not workload.stopping:
            await _copy_some(workload, who, producer, consumer, rng, impatience)
            await asyncio.sleep(rng.random() * 0.2)


async def _copy_some(
    workload: Workload,
    who: str,
    producer: AsyncProducer,
    consumer: AsyncConsumer,
    rng: random.Random,
    impatience: Impatience,
) -> None:
    recorder = workload.facts.recorder
    before = membership_of(consumer)
    operation = recorder.invoke(who, OperationKind.TRANSACTION, (), workload.now(), group=COPIERS)
    known: list[Action] = []
    ending = began = False
    try:
        records = await impatience.poll(consumer, 300)
        known += polls_of(records)
        if not records:
            recorder.ok(operation, (), workload.now(), rebalanced=membership_of(consumer) != before)
            return
        positions: dict[TopicPartition, int] = {}
        for record in records:
            tp = TopicPartition(record.topic, record.partition)
            positions[tp] = max(positions.get(tp, 0), record.offset + 1)
        producer.begin_transaction()
        began = True
        wanted = [SendAction(f"{COPIED}-{r.partition}", f"c{workload.value()}") for r in records]
        known += wanted
        recorder.goes_on(operation, known)
        futures = [
            await producer.send(COPIED, encode(send.value, rng), partition=record.partition)
            for send, record in zip(wanted, records, strict=True)
        ]
        for i, future in enumerate(futures):
            known[len(records) + i] = SendAction(wanted[i].key, wanted[i].value, (await future).offset)
        group = consumer.group_metadata()
        await impatience.until_done(lambda: producer.send_offsets_to_transaction(positions, group))
        ending = True
        await impatience.until_done(producer.commit_transaction)
    except BarnabasError as error:
        rebalanced = membership_of(consumer) != before
        certain = not began or (not ending and await try_abort(producer))
        (recorder.fail if certain else recorder.info)(operation, known, workload.now(), rebalanced=rebalanced)
        workload.trace(who, f"a copy failed: {type(error).__name__}: {str(error)[:100]}")
        raise  # the restarted program begins at the last commit
    recorder.ok(operation, known, workload.now(), rebalanced=membership_of(consumer) != before)
    workload.facts.copied += len(records)
    workload.facts.transactions += 1
