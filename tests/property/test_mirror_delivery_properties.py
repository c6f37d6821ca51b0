"""Mirroring with the decisions of the exactly-once sink: whatever crashes, each source offset is copied once.

The production `DeliveryDriver` runs against the model of `delivery_model.py`. Copiers have no checkpoint: each one
begins at the positions that the ledger's companions have stored.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random

import pytest

from barnabas.client.values import HandedOverTransaction
from barnabas.core.ids import TopicPartition
from barnabas.spark.delivery.decisions import Verdict
from barnabas.spark.delivery.driver import DeliveryDriver, MicroBatch
from barnabas.spark.delivery.records import DeliveryState, Progress
from barnabas.spark.errors import DeliveryError
from barnabas.spark.mirror.copying.stored import Stored, companions, encode_progress
from barnabas.spark.mirror.records import decode_source_offset
from tests.property.delivery_model import NAME, Cluster, CrashError, ModelLedger, ModelTransactions

PARTITIONS = [TopicPartition("t", i) for i in range(3)]
END = 20
"""The end of each source partition."""
SEEDS = 60


@dataclass
class Target:
    """The target cluster. Its visible rows are 100 * partition + offset."""

    cluster: Cluster
    rng: Random
    runs: int = 0
    errors: list[DeliveryError] = field(default_factory=list)

    def stored(self) -> dict[TopicPartition, int]:
        """The positions in the offsets topic."""
        positions = {}
        for record in self.cluster.companions:
            position = decode_source_offset(record.key, record.value)
            assert position is not None
            assert position.offset is not None
            positions[position.partition] = position.offset + 1
        return positions

    def driver(self) -> DeliveryDriver:
        return DeliveryDriver(
            ModelLedger(self.cluster),
            ModelTransactions(self.cluster),
            record_progress=lambda texts: companions("mm2-offsets", "A", texts),
        )

    async def copy(self) -> None:
        """One copier, until everything is copied, an error, or a crash."""
        self.runs += 1
        run_id = f"run{self.runs:05}"
        driver = self.driver()
        state = await driver.take_over(NAME)
        stored = self.stored()
        positions = {tp: stored.get(tp, 0) for tp in PARTITIONS}
        batch_id = state.batch_id + 1
        while any(position < END for position in positions.values()):
            transactions, progress, reached = [], [], {}
            for task, tp in enumerate(PARTITIONS):
                if positions[tp] == END:
                    continue
                end = min(END, positions[tp] + self.rng.randrange(1, 6))
                attempt = self.rng.randrange(3)
                for lost in range(attempt):  # attempts that fail leave their transactions open
                    await self.attempt(NAME.transactional_id(run_id, batch_id, task, lost), tp, positions[tp], end)
                transactional_id = NAME.transactional_id(run_id, batch_id, task, attempt)
                transactions.append(await self.attempt(transactional_id, tp, positions[tp], end))
                progress.append(Progress(transactional_id, encode_progress(Stored({tp: end}))))
                reached[tp] = end
            batch = MicroBatch(batch_id, state.generation, tuple(transactions), tuple(progress))
            if await driver.commit(NAME, batch) is not Verdict.DECIDE:
                raise DeliveryError("decided by another copier")
            await self.cluster.step()
            positions |= reached
            batch_id += 1
            if self.rng.random() < 0.5:
                state = DeliveryState("", generation=await driver.recover(NAME))

    async def attempt(self, transactional_id: str, tp: TopicPartition, start: int, end: int) -> HandedOverTransaction:
        await self.cluster.pause()
        slot = self.cluster.init(transactional_id)
        slot.rows = [100 * tp.partition + offset for offset in range(start, end)]
        await self.cluster.pause()
        return HandedOverTransaction(transactional_id, slot.producer_id, slot.epoch)


async def play(seed: int, *, zombies: bool, time_outs: bool) -> Target:
    """Copiers one after the other, or two at a time, through random crashes, until everything is copied."""
    rng = Random(seed)
    target = Target(Cluster(rng, crash_share=rng.choice((0.01, 0.03, 0.1))), rng)

    async def run() -> None:
        try:
            await target.copy()
        except CrashError:
            pass
        except DeliveryError as error:
            target.errors.append(error)

    for number in range(200):
        if number > 100:
            target.cluster.crash_share = 0.0
        await asyncio.gather(*(run() for _ in range(2 if zombies and rng.random() < 0.5 else 1)))
        if time_outs and rng.random() < 0.5:
            target.cluster.time_out()
        if target.stored() == dict.fromkeys(PARTITIONS, END):
            break
    else:
        pytest.fail(f"seed {seed}: copying does not end: {target.errors[-3:]}")
    target.cluster.crash_share = 0.0
    await target.driver().take_over(NAME)
    return target


@pytest.mark.parametrize("time_outs", [False, True])
@pytest.mark.parametrize("zombies", [False, True])
def test_each_record_is_copied_once_in_order_and_no_transaction_stays_open(zombies: bool, time_outs: bool) -> None:
    crashes = 0
    for seed in range(SEEDS):
        target = asyncio.run(play(seed, zombies=zombies, time_outs=time_outs))
        for tp in PARTITIONS:
            rows = [row % 100 for row in target.cluster.visible if row // 100 == tp.partition]
            assert rows == list(range(END)), f"seed {seed}, {tp}: {target.errors}"
        assert [i for i, slot in target.cluster.slots.items() if slot.rows is not None] == [], f"seed {seed}"
        crashes += target.cluster.crashes
    assert crashes > SEEDS
