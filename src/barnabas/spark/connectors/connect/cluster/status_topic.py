"""Shell: the status topic of a Connect cluster. Every worker writes to it, and reads all of its partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from barnabas.client.admin import AsyncAdmin
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.consumer.record_stream import RecordStream
from barnabas.client.fetching import ConsumerFetchConfig
from barnabas.client.offsets import offsets_at
from barnabas.client.partition_reader import OffsetRange, PartitionReader
from barnabas.client.producer.producer import AsyncProducer
from barnabas.client.values import EARLIEST, LATEST, IsolationLevel
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.hashing import partition_for_key
from barnabas.core.ids import TopicPartition
from barnabas.core.telemetry import get_logger
from barnabas.spark.connectors.connect.cluster.records import StatusRecord, decode_status, encode_status
from barnabas.spark.connectors.connect.worker_config import ConnectWorkerConfig

log = get_logger("barnabas.connect")

_PRODUCER: Final = {"linger.ms": 0, "delivery.timeout.ms": 15_000, "request.timeout.ms": 10_000, "max.block.ms": 15_000}
_CLOSE_TIMEOUT_MS: Final = 2_000
_FETCH: Final = ConsumerFetchConfig(partition_max_bytes=8_388_608, max_wait_ms=50)


class KafkaStatusLog:
    """The `StatusLog` on a Kafka topic. Closing the log does not close the cluster."""

    def __init__(self, cluster: Cluster, config: ConnectWorkerConfig) -> None:
        self._cluster = cluster
        self._topic = config.status_storage_topic
        self._partitions_wanted = config.status_storage_partitions
        self._replicas = config.status_storage_replication_factor
        self._partitions: list[TopicPartition] = []
        self._positions: dict[TopicPartition, int] = {}
        self._producer: AsyncProducer | None = None
        self._reading = asyncio.Lock()

    async def open(self) -> None:
        """Create the topic if it does not exist."""
        admin = AsyncAdmin(cluster=self._cluster)
        try:
            replicas = max(1, min(self._replicas, len((await admin.describe_cluster()).brokers)))
            await admin.create_topic(self._topic, self._partitions_wanted, replicas, {"cleanup.policy": "compact"})
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        self._partitions = [found.topic_partition for found in (await self._cluster.topic(self._topic)).partitions]
        self._producer = AsyncProducer(_PRODUCER, cluster=self._cluster)

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close(_CLOSE_TIMEOUT_MS)

    async def catch_up(self, apply: Callable[[StatusRecord], None]) -> None:
        async with self._reading:
            unread = [partition for partition in self._partitions if partition not in self._positions]
            if unread:
                self._positions.update(await offsets_at(self._cluster, dict.fromkeys(unread, EARLIEST)))
            ends = await offsets_at(self._cluster, dict.fromkeys(self._partitions, LATEST))
            ranges = [OffsetRange(partition, self._positions[partition], end) for partition, end in ends.items()]
            async for batches in PartitionReader(self._cluster, _FETCH).batches(ranges):
                stream = RecordStream(batches, isolation=IsolationLevel.READ_UNCOMMITTED, check_crcs=True)
                for record in stream.take(1 << 30):
                    if self._positions[batches.partition] <= record.offset < ends[batches.partition]:
                        self._apply(batches.partition, record.offset, record.key, record.value, apply)
            self._positions.update(ends)

    def _apply(
        self,
        partition: TopicPartition,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        apply: Callable[[StatusRecord], None],
    ) -> None:
        self._positions[partition] = offset + 1
        try:
            decoded = None if key is None else decode_status(key, value)
        except ValueError as error:
            log.warning("a record was skipped", partition=str(partition), offset=offset, reason=str(error))
            return
        if decoded is not None:
            apply(decoded)

    async def append(self, records: Sequence[StatusRecord]) -> None:
        producer = self._producer
        assert producer is not None, "open must be called first"
        futures = []
        for record in records:
            key, value = encode_status(record)
            partition = partition_for_key(key, len(self._partitions))
            futures.append(await producer.send(self._topic, value, key=key, partition=partition))
        for future in futures:
            await future
