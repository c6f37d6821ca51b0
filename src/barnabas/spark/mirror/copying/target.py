"""Shell: the target cluster, as the driver uses it: stored positions, partition counts, and commits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from barnabas.client.admin import AsyncAdmin
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.config import PRODUCER_CONFIGS, resolve_config
from barnabas.client.options import ClusterConfig
from barnabas.client.producer.producer import AsyncProducer
from barnabas.core.errors import ErrorCode
from barnabas.core.ids import TopicPartition
from barnabas.spark.connection import BlockingClient, reach_cluster
from barnabas.spark.delivery.decisions import Verdict
from barnabas.spark.delivery.driver import DeliveryDriver, MicroBatch
from barnabas.spark.delivery.kafka_ledger import KafkaLedger
from barnabas.spark.delivery.kafka_transactions import KafkaTransactions
from barnabas.spark.delivery.names import SinkName
from barnabas.spark.delivery.records import DeliveryState, Progress
from barnabas.spark.errors import DeliveryError
from barnabas.spark.mirror.copying.stored import (
    TARGET_IDS,
    Record,
    Stored,
    companions,
    decode_topic_id,
    encode_progress,
    encode_stored,
)
from barnabas.spark.mirror.copying.values import TaskResult
from barnabas.spark.mirror.records import decode_source_offset
from barnabas.spark.mirror.running.topic_reader import TopicReader

OFFSETS_TIMEOUT_MS = 60_000
"""delivery.timeout.ms of the records that store positions without transactions."""


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """`ledger` is the topic of the decisions of exactly-once delivery, in the target cluster."""

    source_alias: str
    offsets_topic: str
    name: SinkName
    ledger: str
    transactional: bool


class TargetClient(BlockingClient):
    """The connections of a copier to its target cluster."""

    def __init__(self, settings: Mapping[str, str], options: TargetOptions) -> None:
        super().__init__()
        self._settings = settings
        self._options = options
        producer = resolve_config(PRODUCER_CONFIGS, settings, {})
        self._cluster: Cluster = self.run(self._open(ClusterConfig.from_settings(producer)))
        self._ledger = KafkaLedger(self._cluster, options.ledger)
        self._driver = DeliveryDriver(
            self._ledger,
            KafkaTransactions(AsyncAdmin(cluster=self._cluster)),
            record_progress=lambda texts: companions(options.offsets_topic, options.source_alias, texts),
        )
        self._producer: AsyncProducer | None = None
        self._state = DeliveryState("")
        self.topic_ids: dict[str, UUID] = {}
        """The ids of the topics of the target cluster, as `partition_counts` has seen them last."""

    async def _open(self, config: ClusterConfig) -> Cluster:
        return Cluster(config)

    async def disconnect(self) -> None:
        if self._producer is not None:
            await self._producer.shut(timeout_ms=0)
        await self._ledger.close()
        await self._cluster.close()

    # -- the start of a copier -------------------------------------------------------------------------------------

    def take_over(self) -> int:
        """Complete what an earlier copier of the pair had decided, abort what it left open, and fence it. Returns the
        number of the next micro-batch. Raises BootstrapError soon if the cluster does not answer, KafkaError, and
        DeliveryError."""
        return self.run(self._take_over())

    async def _take_over(self) -> int:
        await reach_cluster(self._cluster)
        if self._options.transactional:
            self._state = await self._driver.take_over(self._options.name)
        return self._state.batch_id + 1

    def stored(self) -> Stored:
        """What the offsets topic has. Called after `take_over`, so that no decision is outstanding."""
        return self.run(self._stored())

    async def _stored(self) -> Stored:
        options = self._options
        positions: dict[TopicPartition, int] = {}
        topic_ids: dict[str, UUID] = {}
        target_ids: dict[str, UUID] = {}
        epochs: dict[TopicPartition, int] = {}
        counts = await self._counts([options.offsets_topic]) if options.offsets_topic else {}
        count = counts.get(options.offsets_topic, 0)
        if not count:
            return Stored()

        def on_record(key: bytes, value: bytes | None) -> None:
            if (named := decode_topic_id(key, value)) is not None:
                if named[0] == options.source_alias:
                    topic_ids[named[1]] = named[2]
                return
            if (named := decode_topic_id(key, value, TARGET_IDS)) is not None:
                if named[0] == options.source_alias:
                    target_ids[named[1]] = named[2]
                return
            position = decode_source_offset(key, value)
            if position is None or position.source_alias != options.source_alias:
                return
            epochs.pop(position.partition, None)
            if position.offset is None:
                positions.pop(position.partition, None)
                return
            positions[position.partition] = position.offset + 1
            if position.leader_epoch is not None:
                epochs[position.partition] = position.leader_epoch

        await TopicReader(self._cluster, options.offsets_topic, count).read_new(on_record)
        return Stored(positions, topic_ids, target_ids, epochs)

    # -- topics ----------------------------------------------------------------------------------------------------

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """The number of partitions of each topic that exists, from fresh metadata. Raises KafkaError."""
        return self.run(self._counts(sorted(set(topics))))

    async def _counts(self, topics: Sequence[str]) -> dict[str, int]:
        await self._cluster.refresh(topics)
        views = await self._cluster.topics(topics)
        found = {name: view for name, view in views.items() if view.error is ErrorCode.NONE}
        self.topic_ids |= {name: view.topic_id for name, view in found.items()}
        return {name: view.partition_count for name, view in found.items()}

    # -- micro-batches ---------------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Abort the transactions that failed attempts of tasks have left open. Called between two micro-batches."""
        if self._options.transactional:
            generation = self.run(self._driver.recover(self._options.name))
            self._state = replace(self._state, generation=generation)

    def commit(
        self, batch_id: int, results: Iterable[TaskResult], besides: Stored, epochs: Mapping[TopicPartition, int]
    ) -> None:
        """Commit what the tasks have copied, and store their positions, with the leader epochs at which the copying was
        planned, and what is to be stored `besides`. Raises DeliveryError and KafkaError."""
        self.run(self._commit(batch_id, list(results), besides, epochs))

    async def _commit(
        self, batch_id: int, results: Sequence[TaskResult], besides: Stored, epochs: Mapping[TopicPartition, int]
    ) -> None:
        reached = [{part.partition: part.next_upstream for part in result.partitions} for result in results]
        if not self._options.transactional:
            positions = dict(besides.positions)
            for part in reached:
                positions |= part
            stored = replace(besides, positions=positions, epochs={**besides.epochs, **epochs})
            records = encode_stored(self._options.source_alias, stored)
            await self._write(records)
            return
        progress = [Progress("", encode_progress(besides))] if besides else []
        for result, part in zip(results, reached, strict=True):
            if part:
                identity = "" if result.transaction is None else result.transaction.transactional_id
                known = {tp: epochs[tp] for tp in part if tp in epochs}
                progress.append(Progress(identity, encode_progress(Stored(part, epochs=known))))
        transactions = tuple(result.transaction for result in results if result.transaction is not None)
        batch = MicroBatch(batch_id, self._state.generation, transactions, tuple(progress))
        if await self._driver.commit(self._options.name, batch) is not Verdict.DECIDE:
            raise DeliveryError(
                f"micro-batch {batch_id} of {self._options.name.query_id} was decided by another copier of the pair, or"
                " by an attempt whose answer was lost; the copier begins again at the positions in the target cluster"
            )

    def abort(self, results: Iterable[TaskResult]) -> None:
        """Abort the transactions of a micro-batch that cannot be committed, unless they are decided."""
        transactions = [result.transaction for result in results if result.transaction is not None]
        if transactions:
            self.run(self._driver.abort(self._options.name, transactions))

    async def _write(self, records: Sequence[Record]) -> None:
        """Write records into the offsets topic, and wait until they are acknowledged."""
        if not self._options.offsets_topic or not records:
            return
        if self._producer is None:
            settings = {"delivery.timeout.ms": OFFSETS_TIMEOUT_MS, "linger.ms": 0}
            self._producer = AsyncProducer({**self._settings, **settings}, cluster=self._cluster)
        futures = [await self._producer.send(self._options.offsets_topic, value, key=key) for key, value in records]
        for future in futures:
            await future
