"""Shell: the workload of idempotent producers and of transactional producers."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from barnabas.core.errors import BarnabasError
from barnabas.testing.histories import OperationKind, SendAction
from barnabas.testing.sim.workload.impatience import Impatience
from barnabas.testing.sim.workload.supervisor import ATOMIC, PATIENCE, PLAIN, encode

if TYPE_CHECKING:
    from barnabas.client.producer.producer import AsyncProducer
    from barnabas.testing.sim.workload.supervisor import Workload


async def produce(workload: Workload, who: str) -> None:
    """Sends bursts of records to one partition. The next burst begins after every record of the last one has an
    acknowledgement or an error."""
    rng = workload.world.random_stream(who)
    settings: dict[str, Any] = {**PATIENCE, "delivery_timeout_ms": 12_000, "max_block_ms": 10_000}
    settings["linger_ms"] = rng.choice([0, 5])
    settings["compression_type"] = rng.choice(["none", "none", "lz4", "zstd"])
    async with workload.world.producer(**settings) as producer:
        while not workload.stopping:
            await _burst(workload, who, producer, rng)
            await asyncio.sleep(rng.random() * 0.5)


async def _burst(workload: Workload, who: str, producer: AsyncProducer, rng: random.Random) -> None:
    recorder = workload.facts.recorder
    partition = rng.randrange(workload.partitions)
    key = f"{PLAIN}-{partition}"
    wanted = [SendAction(key, workload.value()) for _ in range(rng.choice([1, 1, 2, 5, 20]))]
    operation = recorder.invoke(who, OperationKind.SEND, wanted, workload.now())
    known = list(wanted)
    failed: BaseException | None = None
    futures = []
    try:
        for send in wanted:
            futures.append(await producer.send(PLAIN, encode(send.value, rng), partition=partition))  # noqa: PERF401
    except BarnabasError as error:
        failed = error
    for i, future in enumerate(futures):
        try:
            metadata = await future
        except BarnabasError as error:
            failed = failed or error
        else:
            known[i] = SendAction(key, wanted[i].value, metadata.offset)
            workload.facts.acknowledged += 1
            workload.facts.plain[wanted[i].value] = metadata.topic_partition, metadata.offset
            workload.on_acknowledged(metadata.topic_partition, metadata.offset)
    if failed is None:
        recorder.ok(operation, known, workload.now())
        return
    recorder.info(operation, known, workload.now())
    workload.trace(who, f"a burst failed: {type(failed).__name__}: {str(failed)[:100]}")
    raise failed


async def transact(workload: Workload, who: str) -> None:
    """Runs transactions over several partitions, and aborts three of ten on purpose."""
    rng, impatience = workload.world.random_stream(who), Impatience(workload, who)
    settings: dict[str, Any] = {**PATIENCE, "delivery_timeout_ms": 6_000, "max_block_ms": 8_000}
    async with workload.world.producer(
        transactional_id=who.partition(".")[0], transaction_timeout_ms=8_000, **settings
    ) as producer:
        await producer.init_transactions()
        while not workload.stopping:
            await _transaction(workload, who, producer, rng, impatience)
            await asyncio.sleep(rng.random() * 0.5)


async def _transaction(
    workload: Workload, who: str, producer: AsyncProducer, rng: random.Random, impatience: Impatience
) -> None:
    recorder = workload.facts.recorder
    targets = [rng.randrange(workload.partitions) for _ in range(rng.randint(1, 5))]
    wanted = [SendAction(f"{ATOMIC}-{target}", workload.value()) for target in targets]
    known = list(wanted)
    commit = rng.random() < 0.7
    operation = recorder.invoke(who, OperationKind.TRANSACTION, wanted, workload.now())
    ending = False
    try:
        producer.begin_transaction()
        futures = []
        for target, send in zip(targets, wanted, strict=True):
            futures.append(await producer.send(ATOMIC, encode(send.value, rng), partition=target))
        for i, future in enumerate(futures):
            known[i] = SendAction(wanted[i].key, wanted[i].value, (await future).offset)
        ending = commit
        await impatience.until_done(producer.commit_transaction if commit else producer.abort_transaction)
    except BarnabasError as error:
        # If the transaction is certainly aborted, no consumer may ever see its records.
        certain = not ending and await try_abort(producer)
        (recorder.fail if certain else recorder.info)(operation, known, workload.now())
        workload.trace(who, f"a transaction failed: {type(error).__name__}: {str(error)[:100]}")
        if not certain:
            raise
        return
    (recorder.ok if commit else recorder.fail)(operation, known, workload.now())
    workload.facts.transactions += 1


async def try_abort(producer: AsyncProducer) -> bool:
    """Aborts the open transaction. Returns whether it is certainly aborted."""
    try:
        if not producer.in_transaction:
            return False
        await producer.abort_transaction()
    except BarnabasError:
        return False
    return True
