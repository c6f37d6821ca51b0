"""A model of Spark's driver and of a cluster's transactions, in which everything may crash, for the exactly-once sink.

The production `DeliveryDriver` runs against it. Concurrent drivers and late tasks interleave at every request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import cast

from barnabas.client.values import HandedOverTransaction
from barnabas.spark.delivery.decisions import Ended
from barnabas.spark.delivery.driver import DeliveryDriver, MicroBatch
from barnabas.spark.delivery.names import SinkName
from barnabas.spark.delivery.ports import CompanionRecord, LedgerFencedError, StableOffsets
from barnabas.spark.delivery.records import DeliveryState
from barnabas.spark.delivery.visible_commits import VisibleCommits
from barnabas.spark.errors import DeliveryError

NAME = SinkName("p", "query")
ROWS = 6
"""The rows of each micro-batch."""


class CrashError(Exception):
    """The process that made the request is killed, before or after the request took effect."""


@dataclass
class Slot:
    """A transactional id at its coordinator."""

    producer_id: int
    epoch: int = 0
    rows: list[int] | None = None
    last: tuple[int, bool] | None = None
    """The epoch and the outcome of the transaction that ended last."""


@dataclass
class Cluster:
    """The coordinators, the ledger, and the rows that a read_committed consumer sees."""

    rng: Random
    crash_share: float = 0.0
    slots: dict[str, Slot] = field(default_factory=dict)
    visible: list[int] = field(default_factory=list)
    ledger: DeliveryState | None = None
    companions: list[CompanionRecord] = field(default_factory=list)
    """The records that were written together with states."""
    ledger_epoch: int = 0
    crashes: int = 0

    async def pause(self) -> None:
        for _ in range(self.rng.randrange(4)):
            await asyncio.sleep(0)

    async def step(self) -> None:
        """Pause, and perhaps crash. Each request calls it before and after its effect."""
        await self.pause()
        if self.rng.random() < self.crash_share:
            self.crashes += 1
            raise CrashError

    def init(self, transactional_id: str) -> Slot:
        slot = self.slots.setdefault(transactional_id, Slot(len(self.slots) + 1, -1))
        if slot.rows is not None:
            self.end(slot, commit=False)
        slot.epoch += 1
        slot.last = None
        return slot

    def end(self, slot: Slot, *, commit: bool) -> None:
        assert slot.rows is not None
        if commit:
            self.visible += slot.rows
        slot.rows = None
        slot.last = (slot.epoch, commit)
        slot.epoch += 1

    def time_out(self) -> None:
        """Abort one open transaction, as transaction.timeout.ms would."""
        still_open = [slot for slot in self.slots.values() if slot.rows is not None]
        if still_open:
            self.end(self.rng.choice(still_open), commit=False)


class ModelLedger:
    """The ledger, as one driver process sees it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._epoch = -1
        self._state: DeliveryState | None = None

    async def read(self, name: SinkName) -> DeliveryState:
        await self._cluster.step()
        return self._cluster.ledger or DeliveryState(name.query_id)

    async def acquire(self, name: SinkName) -> DeliveryState:
        self._state = None
        await self._cluster.step()
        self._cluster.ledger_epoch += 1
        self._epoch = self._cluster.ledger_epoch
        await self._cluster.step()
        self._state = self._cluster.ledger or DeliveryState(name.query_id)
        return self._state

    def held(self, name: SinkName) -> DeliveryState | None:
        return self._state

    async def write(
        self, name: SinkName, state: DeliveryState | None, companions: Sequence[CompanionRecord] = ()
    ) -> None:
        try:
            await self._cluster.step()
            if self._epoch != self._cluster.ledger_epoch:
                raise LedgerFencedError
            self._cluster.ledger = self._state = state or DeliveryState(name.query_id)
            self._cluster.companions += companions
            await self._cluster.step()
            if self._epoch != self._cluster.ledger_epoch and self._cluster.rng.random() < 0.5:
                raise LedgerFencedError  # it was written, but the answer was lost and the repetition is fenced
        except BaseException:
            self._state = None
            raise


class ModelTransactions:
    """The transactions of task attempts, as one driver process sees them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def open_ids(self, name: SinkName) -> list[str]:
        await self._cluster.step()
        return [i for i, slot in self._cluster.slots.items() if slot.rows is not None and name.is_attempt(i)]

    async def standing(self, transactional_ids: Iterable[str]) -> dict[str, HandedOverTransaction]:
        await self._cluster.step()
        slots = self._cluster.slots
        return {
            i: HandedOverTransaction(i, slots[i].producer_id, slots[i].epoch)
            for i in transactional_ids
            if slots[i].rows is not None
        }

    async def commit(self, transaction: HandedOverTransaction) -> Ended:
        ended = await self._end(transaction, commit=True)
        return Ended.COMMITTED if ended else Ended.ABORTED

    async def abort(self, transaction: HandedOverTransaction) -> None:
        await self._end(transaction, commit=False)

    async def _end(self, transaction: HandedOverTransaction, *, commit: bool) -> bool:
        await self._cluster.step()
        slot = self._cluster.slots[transaction.transactional_id]
        if slot.rows is not None and slot.epoch == transaction.epoch:
            self._cluster.end(slot, commit=commit)
            await self._cluster.step()
            return True
        return slot.last == (transaction.epoch, commit)


@dataclass
class Spark:
    """A query: its checkpoint, and the drivers that run it one after the other, or at the same time."""

    cluster: Cluster
    rng: Random
    batches: int
    committed: int = -1
    """The newest micro-batch in the checkpoint's commit log."""
    runs: int = 0
    fault_share: float = 0.0
    stop_share: float = 0.0
    """The share of the micro-batches in which the query is stopped."""
    stops: int = 0
    late: list[asyncio.Task[None]] = field(default_factory=list)
    errors: list[DeliveryError] = field(default_factory=list)

    def driver(self) -> DeliveryDriver:
        return DeliveryDriver(ModelLedger(self.cluster), ModelTransactions(self.cluster))

    def visible_commits(self) -> VisibleCommits:
        return VisibleCommits(ModelTransactions(self.cluster), cast("StableOffsets", None), lambda: 0)

    async def run(self) -> None:
        """One start of the query, until all micro-batches are committed, an error, or a crash."""
        self.runs += 1
        run_id = f"run{self.runs:05}"
        planner, committer = self.driver(), self.driver()  # two processes, as in Spark
        while self.committed + 1 < self.batches:
            batch_id = self.committed + 1
            generation = await planner.recover(NAME)
            if self.rng.random() < self.stop_share:
                await self.stop(run_id, batch_id)
                return
            messages = await self.tasks(run_id, batch_id)
            try:
                await committer.commit(NAME, MicroBatch(batch_id, generation, messages))
            except DeliveryError:
                await committer.abort(NAME, messages)
                raise
            await self.visible_commits().abort_lost(NAME, run_id)
            await self.cluster.step()  # killed after commit() has returned, before the commit log is written
            self.committed = max(self.committed, batch_id)

    async def stop(self, run_id: str, batch_id: int) -> None:
        """The end of a query that is stopped: its tasks go on for a while, and another process recovers meanwhile."""
        self.stops += 1
        self.late.append(asyncio.ensure_future(self._unheard(run_id, batch_id)))
        stopping = self.driver()
        for _ in range(self.rng.randrange(1, 5)):
            await self.cluster.pause()
            await stopping.recover(NAME)

    async def _unheard(self, run_id: str, batch_id: int) -> None:
        await self.tasks(run_id, batch_id)

    async def tasks(self, run_id: str, batch_id: int) -> tuple[HandedOverTransaction, ...]:
        """The rows of the micro-batch over tasks at random, as after `repartition(rand())`; the winners' messages."""
        parts: list[list[int]] = [[] for _ in range(3)]
        for row in range(batch_id * ROWS, (batch_id + 1) * ROWS):
            self.rng.choice(parts).append(row)
        messages = []
        for partition, rows in enumerate(parts):
            attempt = 0
            while self.rng.random() < self.fault_share:
                # An attempt whose worker exits, or a copy that loses: it may begin even after the micro-batch.
                lost = self.attempt(NAME.transactional_id(run_id, batch_id, partition, attempt), rows)
                if self.rng.random() < 0.5:
                    self.late.append(asyncio.ensure_future(self._late(lost)))
                else:
                    await lost
                attempt += 1
            message = await self.attempt(NAME.transactional_id(run_id, batch_id, partition, attempt), rows)
            if message is not None:
                messages.append(message)
        return tuple(messages)

    async def _late(self, attempt: object) -> None:
        for _ in range(self.rng.randrange(30)):
            await asyncio.sleep(0)
        await attempt  # type: ignore[misc]

    async def attempt(self, transactional_id: str, rows: list[int]) -> HandedOverTransaction | None:
        if not rows:
            return None
        await self.cluster.pause()
        slot = self.cluster.init(transactional_id)
        transaction = HandedOverTransaction(transactional_id, slot.producer_id, slot.epoch)
        slot.rows = list(rows)
        await self.cluster.pause()
        return transaction
