"""Shell: the client of a driver process for exactly-once delivery. It is kept from one micro-batch to the next."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.client.admin import AsyncAdmin
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.config import PRODUCER_CONFIGS, resolve_config
from barnabas.client.options import ClusterConfig
from barnabas.client.values import HandedOverTransaction
from barnabas.spark.connection import BlockingClient, reach_cluster
from barnabas.spark.delivery.driver import DeliveryDriver, MicroBatch
from barnabas.spark.delivery.kafka_ledger import KafkaLedger
from barnabas.spark.delivery.kafka_stable_offsets import KafkaStableOffsets
from barnabas.spark.delivery.kafka_transactions import KafkaTransactions
from barnabas.spark.delivery.names import SinkName, job_of
from barnabas.spark.delivery.visibility import Newest
from barnabas.spark.delivery.visible_commits import Attempts, VisibleCommits

TASKS_END_S: Final = 4.5
"""How long after a stop the Python processes of tasks may still run: Spark looks every 2 s for tasks that are to be
killed, and ends their processes after `spark.python.task.killTimeout`, which is 2 s by default.
"""
PAUSE_S: Final = 0.5
ABORT_TIMEOUT_S: Final = 10.0
"""How long an abort may take in all; a query that is stopped waits for it."""


class DeliveryClient(BlockingClient):
    """The blocking calls of the writers on the driver."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__()
        self._cluster: Cluster = self.run(self._open(settings))
        admin = AsyncAdmin(cluster=self._cluster)
        self._transactions = KafkaTransactions(admin)
        self._visible = VisibleCommits(
            self._transactions, KafkaStableOffsets(self._cluster, admin), lambda: time.time_ns() // 1_000_000
        )
        self._ledgers: dict[str, KafkaLedger] = {}

    async def _open(self, settings: Mapping[str, str]) -> Cluster:
        return Cluster(ClusterConfig.from_settings(resolve_config(PRODUCER_CONFIGS, settings, {})))

    async def disconnect(self) -> None:
        for ledger in self._ledgers.values():
            await ledger.close()
        await self._cluster.close()

    def recover(self, name: SinkName, ledger: str, *, accept_loss: bool, patient: bool = False) -> int:
        """See `DeliveryDriver.recover`. Raises BootstrapError if the cluster does not answer: soon, or, if `patient`,
        after `default.api.timeout.ms`.
        """
        return self.run(self._recover(name, ledger, accept_loss, patient))

    async def _recover(self, name: SinkName, ledger: str, accept_loss: bool, patient: bool) -> int:
        if not patient:
            await reach_cluster(self._cluster)
        return await self._driver(ledger, accept_loss).recover(name)

    def commit(self, name: SinkName, ledger: str, batch: MicroBatch, *, accept_loss: bool) -> None:
        """See `DeliveryDriver.commit`."""
        self.run(self._driver(ledger, accept_loss).commit(name, batch))

    def show(self, attempts: Attempts | None, what: str, newest: Newest, timeout_ms: int) -> None:
        """See `VisibleCommits.show`. Called after `commit`; does not raise KafkaError."""
        self.run(self._visible.show(attempts, what, newest, timeout_ms))

    def abort(self, name: SinkName, ledger: str, transactions: Iterable[HandedOverTransaction]) -> None:
        """See `DeliveryDriver.abort`. Raises TimeoutError if the brokers do not answer."""
        self.run(asyncio.wait_for(self._driver(ledger, False).abort(name, list(transactions)), ABORT_TIMEOUT_S))

    def abort_unfinished(self, name: SinkName, ledger: str, run: str | None) -> None:
        """Abort the transactions that the tasks of a failed micro-batch have open, or open later, until the processes
        of the tasks have ended. `run` is the tasks' run, as in their transactional ids; None if it is not known.

        Does nothing once transactions of another run are open: another driver has taken over the query. Raises
        KafkaError, DeliveryError, and TimeoutError if the brokers do not answer.
        """
        self.run(asyncio.wait_for(self._abort_unfinished(name, ledger, run), ABORT_TIMEOUT_S))

    async def _abort_unfinished(self, name: SinkName, ledger: str, run: str | None) -> None:
        clock = asyncio.get_running_loop().time
        await reach_cluster(self._cluster)
        until = clock() + TASKS_END_S
        while True:
            runs = {name.run_of(i) for i in await self._transactions.open_ids(name)}
            run = next(iter(runs), None) if run is None else run
            if runs - {run}:
                return  # the other driver aborts what is left before its next micro-batch
            if runs:
                await self._driver(ledger, False).recover(name)
            if clock() >= until:
                return
            await asyncio.sleep(PAUSE_S)  # Spark does not say when its tasks have ended

    def abandon(self, name: SinkName, run: str) -> None:
        """Abort all transactions of a batch write that has failed before its commit, those of tasks that still run
        among them. Raises KafkaError, and TimeoutError if the brokers do not answer."""
        self.run(asyncio.wait_for(self._abandon(name, run), ABORT_TIMEOUT_S))

    async def _abandon(self, name: SinkName, run: str) -> None:
        clock = asyncio.get_running_loop().time
        until = clock() + TASKS_END_S
        while True:
            await self._visible.abort_lost(name, run)
            if clock() >= until:
                return
            await asyncio.sleep(PAUSE_S)  # Spark does not say when its tasks have ended

    def forget(self, name: SinkName, ledger: str) -> None:
        """See `DeliveryDriver.forget`."""
        self.run(self._driver(ledger, False).forget(name))

    def recover_jobs(self, prefix: str, ledger: str) -> None:
        """Commit what earlier batch writes have decided and not finished. The open transactions of other batch writes
        are left alone: their jobs may be running."""
        self.run(self._recover_jobs(prefix, ledger))

    async def _recover_jobs(self, prefix: str, ledger: str) -> None:
        open_ids = await self._transactions.open_ids_with(f"{prefix}.job-")
        jobs = sorted({job for job in (job_of(prefix, i) for i in open_ids) if job is not None})
        for job in jobs:
            name = SinkName(prefix, job)
            if not (await self._ledger(ledger).read(name)).done:
                # The record stays: the job's own driver may still run, and reads in it that its write is committed.
                await self._driver(ledger, False).recover(name)

    def _driver(self, ledger: str, accept_loss: bool) -> DeliveryDriver:
        target = f"the topics of the ledger {ledger}"
        return DeliveryDriver(self._ledger(ledger), self._transactions, accept_loss=accept_loss, target=target)

    def _ledger(self, topic: str) -> KafkaLedger:
        ledger = self._ledgers.get(topic)
        if ledger is None:
            ledger = self._ledgers[topic] = KafkaLedger(self._cluster, topic)
        return ledger
