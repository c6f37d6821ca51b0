"""Shell: reads and writes the `_schemas` topic of any Kafka cluster through the Kafka client.

The topic has one partition and is compacted. Each change is a transaction: its records are committed together, and a
registry that has been replaced as the writer is fenced and cannot write any more (see `service.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from barnabas.client.admin import AsyncAdmin
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.consumer.record_stream import RecordStream
from barnabas.client.errors import TransactionAbortedError
from barnabas.client.fetching import ConsumerFetchConfig
from barnabas.client.offsets import offsets_at
from barnabas.client.options import ClusterConfig
from barnabas.client.partition_reader import OffsetRange, PartitionReader
from barnabas.client.producer.producer import AsyncProducer
from barnabas.client.values import EARLIEST, LATEST, ConfigEntry, ConfigResource, IsolationLevel
from barnabas.core.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.core.telemetry import get_logger
from barnabas.registry.errors import Code, RegistryError
from barnabas.registry.records import Record, SchemaRecordError, decode_record, encode_record
from barnabas.registry.service import WriterFencedError

log = get_logger("barnabas.registry")

DEFAULT_TOPIC: Final = "_schemas"
_REPLICAS: Final = 3
_TRANSACTION_TIMEOUT_MS: Final = 10_000
_CHANGE_TIMEOUT_MS: Final = 15_000
_MARKER_WAIT_S: Final = 0.002
_LIMITS: Final = ConsumerFetchConfig(
    max_bytes=52_428_800, partition_max_bytes=8_388_608, isolation=IsolationLevel.READ_COMMITTED
)
_LOST: Final = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING)


class KafkaSchemaLog:
    """The `SchemaLog` on a Kafka topic. `settings` are client settings (bootstrap.servers, security settings, ...)."""

    def __init__(self, settings: Mapping[str, object], *, topic: str = DEFAULT_TOPIC) -> None:
        self.topic = topic
        self._cluster = Cluster(ClusterConfig.of(settings))
        self._partition = TopicPartition(topic, 0)
        self._reader = PartitionReader(self._cluster, _LIMITS)
        self._position = -1
        self._producer: AsyncProducer | None = None

    async def open(self) -> None:
        """Create the topic if it does not exist. Raises RegistryError if the topic's settings do not allow its use."""
        async with AsyncAdmin(cluster=self._cluster) as admin:
            try:
                brokers = len((await admin.describe_cluster()).brokers)
                replicas = max(1, min(_REPLICAS, brokers))
                await admin.create_topic(self.topic, 1, replicas, {"cleanup.policy": "compact"})
            except KafkaError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
            await self._check_topic(admin)

    async def close(self) -> None:
        await self._close_producer()
        await self._cluster.close()

    async def _check_topic(self, admin: AsyncAdmin) -> None:
        view = (await admin.describe_topics([self.topic])).get(self.topic)
        if isinstance(view, KafkaError):
            if not view.retriable:
                raise view
        elif view is not None and len(view.partitions) > 1:
            message = (
                f"The topic {self.topic} has {len(view.partitions)} partitions; it must have one, "
                f"so that schemas have one order."
            )
            raise RegistryError(Code.STORE_ERROR, message)
        resource = ConfigResource.topic(self.topic)
        configs = (await admin.describe_configs([resource], names=["cleanup.policy"])).get(resource)
        entry = configs.get("cleanup.policy") if isinstance(configs, dict) else None
        if isinstance(entry, ConfigEntry) and entry.value is not None and "delete" in entry.value:
            raise RegistryError(
                Code.STORE_ERROR,
                f"The topic {self.topic} has cleanup.policy={entry.value}: old schemas would be deleted."
                " Set it to compact.",
            )

    # -- reading

    async def catch_up(self, apply: Callable[[Record], None]) -> None:
        end = await self._offset(LATEST)
        if self._position < 0:
            self._position = await self._offset(EARLIEST)
        await self._read_to(end, apply)

    async def _read_to(self, end: int, apply: Callable[[Record], None]) -> None:
        """Apply the records from the current position up to, but not including, `end`."""
        if self._position >= end:
            return
        ranges = [OffsetRange(self._partition, self._position, end)]
        async for batches in self._reader.batches(ranges):
            stream = RecordStream(batches, isolation=IsolationLevel.READ_COMMITTED, check_crcs=True)
            for record in stream.take(1 << 30):
                if not self._position <= record.offset < end:
                    continue
                self._position = record.offset + 1
                try:
                    decoded = None if record.key is None else decode_record(record.key, record.value)
                except SchemaRecordError as error:
                    log.warning("a record was skipped", topic=self.topic, offset=record.offset, reason=str(error))
                    continue
                if decoded is not None:
                    apply(decoded)
        self._position = end

    async def _offset(self, which: int) -> int:
        """The log start offset (EARLIEST) or the last stable offset (LATEST)."""
        found = await offsets_at(self._cluster, {self._partition: which}, isolation=IsolationLevel.READ_COMMITTED)
        return found[self._partition]

    # -- writing

    async def become_writer(self) -> bool:
        if self._producer is not None:
            return False
        producer = AsyncProducer(
            {
                "transactional.id": f"schema-registry-{self.topic}",
                "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
                "delivery.timeout.ms": _CHANGE_TIMEOUT_MS,
                "request.timeout.ms": _TRANSACTION_TIMEOUT_MS,
                "max.block.ms": _CHANGE_TIMEOUT_MS,
                "linger.ms": 0,
            },
            cluster=self._cluster,
        )
        try:
            await producer.init_transactions()
        except BaseException:  # cancellation, too: the producer must be closed
            await producer.close(0)
            raise
        self._producer = producer
        return True

    async def append(self, records: Sequence[Record], apply: Callable[[Record], None]) -> None:
        producer = self._producer
        assert producer is not None, "become_writer must be called first"
        try:
            producer.begin_transaction()
            futures = []
            for record in records:
                key, value = encode_record(record)
                futures.append(await producer.send(self.topic, value, key=key, partition=0))
            await producer.commit_transaction()
            end = 1 + max([(await future).offset for future in futures])
        except BarnabasError as error:
            await self._close_producer()
            if isinstance(error, TransactionAbortedError) or (isinstance(error, KafkaError) and error.code in _LOST):
                raise WriterFencedError from error
            code = Code.OPERATION_TIMEOUT if _timed_out(error) else Code.STORE_ERROR
            message = f"The change could not be written to {self.topic}, or it is not known whether it was: {error}"
            raise RegistryError(code, message) from error
        except BaseException:  # cancellation, too: no transaction may stay open
            await self._close_producer()
            raise
        await self._read_back(end, apply)

    async def _read_back(self, end: int, apply: Callable[[Record], None]) -> None:
        """Wait until the last stable offset reaches `end`, and apply the records. The transaction is already committed
        then, but its marker, which makes the records readable, is written later. Raises RegistryError after
        `_CHANGE_TIMEOUT_MS`.
        """
        stable = -1
        try:
            async with asyncio.timeout(_CHANGE_TIMEOUT_MS / 1000):
                wait_s = _MARKER_WAIT_S
                while (stable := await self._offset(LATEST)) < end:
                    await asyncio.sleep(wait_s)
                    wait_s = min(2 * wait_s, 0.1)
        except TimeoutError as error:
            if isinstance(error, BarnabasError):
                raise
            seen = f"its last stable offset is {stable}" if stable >= 0 else "no broker has answered for its end"
            message = (
                f"The change is written to {self.topic}, but could not be read back within {_CHANGE_TIMEOUT_MS} ms:"
                f" it ends at offset {end}, and {seen}. Another transaction may be open there (see"
                f" `barnabas transactions list`), or its leader may be down. The registry will read the change later."
            )
            raise RegistryError(Code.OPERATION_TIMEOUT, message) from error
        await self._read_to(stable, apply)

    async def _close_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(BarnabasError, TimeoutError):
                await producer.close(0)


def _timed_out(error: BarnabasError) -> bool:
    return isinstance(error, KafkaError) and error.code is ErrorCode.REQUEST_TIMED_OUT
