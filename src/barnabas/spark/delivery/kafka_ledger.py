"""Shell: the ledger as a compacted topic. `records.py` has the format of its records.

A state is written in a transaction of the query's ledger id. InitProducerId fences the earlier writers of the id, so
that one of two drivers of a query fails instead of deciding a micro-batch twice. The topic is read with read_committed
up to the high watermark of the moment. That may have to wait for the transactions of other queries, which last
milliseconds, or LEDGER_TIMEOUT_MS after the death of a driver. The position stays in memory, so that a process reads
the topic once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from barnabas.client.admin import AsyncAdmin
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.consumer.record_stream import RecordStream
from barnabas.client.fetching import ConsumerFetchConfig
from barnabas.client.offsets import offsets_at
from barnabas.client.partition_reader import OffsetRange, PartitionReader
from barnabas.client.producer.producer import AsyncProducer
from barnabas.client.values import EARLIEST, LATEST, IsolationLevel, NewTopic
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.hashing import partition_for_key
from barnabas.core.ids import TopicPartition
from barnabas.spark.delivery.names import SinkName
from barnabas.spark.delivery.ports import CompanionRecord, LedgerFencedError
from barnabas.spark.delivery.records import DeliveryState, decode_state, encode_state
from barnabas.spark.errors import DeliveryError

log = logging.getLogger("barnabas.spark")

LEDGER_TIMEOUT_MS: Final = 15_000
"""transaction.timeout.ms of the ledger's writers. Their transactions have one record."""
TOPIC_CONFIGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",  # the active segment is not compacted, and every new process reads all of it
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.1",
}
READ_TIMEOUT_MS: Final = 60_000
WRITERS_MAX: Final = 64
"""The number of queries and batch writes whose writers a process keeps. The one that was acquired first is given up."""
_FETCH: Final = ConsumerFetchConfig(
    partition_max_bytes=8_388_608, max_wait_ms=50, isolation=IsolationLevel.READ_COMMITTED
)
_FENCED: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)


class KafkaLedger:
    """The ledger in the topic `topic` of a cluster, as one process reads and writes it."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._positions: dict[TopicPartition, int] = {}
        self._states: dict[tuple[TopicPartition, str], DeliveryState] = {}
        self._writers: dict[str, AsyncProducer] = {}
        self._held: dict[str, DeliveryState] = {}
        self._turn = asyncio.Lock()

    async def close(self) -> None:
        for query_id in list(self._writers):
            await self._release(query_id)

    # -- the port --------------------------------------------------------------------------------------------------

    async def read(self, name: SinkName) -> DeliveryState:
        async with self._turn:
            await self._catch_up()
        found = [state for (_, query_id), state in self._states.items() if query_id == name.query_id]
        # More than one if the topic was given more partitions; the newest one counts.
        return max(found, key=lambda s: (s.generation, s.batch_id, s.done), default=DeliveryState(name.query_id))

    async def acquire(self, name: SinkName) -> DeliveryState:
        await self._release(name.query_id)
        if len(self._writers) >= WRITERS_MAX:
            await self._release(next(iter(self._writers)))
        writer = AsyncProducer(
            {"transactional.id": name.ledger_id, "transaction.timeout.ms": LEDGER_TIMEOUT_MS, "linger.ms": 0},
            cluster=self._cluster,
        )
        self._writers[name.query_id] = writer
        await writer.init_transactions()
        state = await self.read(name)
        self._held[name.query_id] = state
        return state

    def held(self, name: SinkName) -> DeliveryState | None:
        return self._held.get(name.query_id)

    async def write(
        self, name: SinkName, state: DeliveryState | None, companions: Sequence[CompanionRecord] = ()
    ) -> None:
        writer = self._writers.get(name.query_id)
        assert writer is not None, "acquire the state before writing it"
        key, value = encode_state(state or DeliveryState(name.query_id))
        try:
            partitions = await self._partitions()
            partition = partition_for_key(key, len(partitions))
            writer.begin_transaction()
            for record in companions:
                await writer.send(record.topic, record.value, key=record.key)  # the commit waits for these
            await writer.send_and_wait(self._topic, None if state is None else value, key=key, partition=partition)
            await writer.commit_transaction()
        except BaseException as error:  # cancellation, too: the writer's transaction may be open
            await self._release(name.query_id)
            if isinstance(error, KafkaError) and error.code in _FENCED:
                raise LedgerFencedError(str(error)) from error
            raise
        if state is None:
            await self._release(name.query_id)  # the query will not come again
        else:
            self._held[name.query_id] = state

    async def _release(self, query_id: str) -> None:
        """Give up the writer of a query, if there is one. Its transaction, if one is open, is not ended."""
        self._held.pop(query_id, None)
        writer = self._writers.pop(query_id, None)
        if writer is not None:
            await writer.shut(timeout_ms=0)

    # -- reading ---------------------------------------------------------------------------------------------------

    async def _catch_up(self) -> None:
        """Read the records up to the current high watermarks."""
        partitions = await self._partitions()
        ends = await self._offsets(dict.fromkeys(partitions, LATEST))
        lost = [tp for tp, end in ends.items() if self._positions.get(tp, 0) > end]
        if lost:
            raise DeliveryError(
                f"the ledger {self._topic} ends at offset {ends[lost[0]]} and had records up to"
                f" {self._positions[lost[0]]}: the topic was created anew, or its log was truncated. What was delivered"
                " is not known any more. Stop the query, compare the topic with its source, and start it again"
            )
        unread = [tp for tp in partitions if tp not in self._positions]
        if unread:
            self._positions.update(await self._offsets(dict.fromkeys(unread, EARLIEST)))
        reader = PartitionReader(self._cluster, _FETCH, stall_timeout_ms=READ_TIMEOUT_MS)
        async for batches in reader.batches([OffsetRange(tp, self._positions[tp], end) for tp, end in ends.items()]):
            stream = RecordStream(batches, isolation=IsolationLevel.READ_COMMITTED, check_crcs=True)
            while records := stream.take(1_000):
                for record in records:
                    self._apply(batches.partition, record.key, record.value)
        self._positions.update(ends)

    def _apply(self, partition: TopicPartition, key: bytes | None, value: bytes | None) -> None:
        if value is None:
            self._states.pop((partition, (key or b"").decode(errors="replace")), None)
        else:
            state = decode_state(key or b"", value)
            self._states[partition, state.query_id] = state

    async def _offsets(self, queries: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        return await offsets_at(self._cluster, queries, deadline=self._cluster.deadline(READ_TIMEOUT_MS))

    async def _partitions(self) -> list[TopicPartition]:
        """The partitions of the topic, which is created if it does not exist."""
        topics = await self._cluster.topics([self._topic])
        view = topics[self._topic]
        if view.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            await self._create()
            view = await self._cluster.topic(self._topic, deadline=self._cluster.deadline(READ_TIMEOUT_MS))
        elif view.error is not ErrorCode.NONE:
            view = await self._cluster.topic(self._topic)
        return [partition.topic_partition for partition in view.partitions]

    async def _create(self) -> None:
        admin = AsyncAdmin(cluster=self._cluster)
        topic = NewTopic(self._topic, 1, -1, TOPIC_CONFIGS)
        result = (await admin.create_topics([topic]))[self._topic]
        if not isinstance(result, KafkaError):
            log.info("created the topic %s, the ledger of exactly-once delivery", self._topic)
        elif result.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            configs = ", ".join(f"{config}={value}" for config, value in TOPIC_CONFIGS.items())
            raise DeliveryError(
                f"the ledger {self._topic} does not exist and cannot be created: {result}. Create it with 1 partition"
                f" and {configs}, name another topic with the option deliveryLedger, or set delivery=at-least-once"
            )
        await self._cluster.refresh([self._topic])
