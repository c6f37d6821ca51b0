"""Machine: what happens to a record before it is placed: interceptors, serializers, and checks that need no broker.

The asyncio producer does this on its loop, and the blocking producer in the thread of the caller, so that the caller
gets each error that can be known at once. `encode` is the only method that waits, for a serializer that lacks data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsIndex

from barnabas.client.cluster.cluster import Cluster
from barnabas.client.errors import ClientClosedError, SerializationError, TransactionStateError
from barnabas.client.interceptors import ProducerInterceptor, ProducerRecord
from barnabas.client.producer.accumulator import Accumulator
from barnabas.client.producer.checks import check_headers, check_timestamp, no_such_partition, too_large
from barnabas.client.producer.delivery import RecordPlace, unplaced
from barnabas.client.producer.transactions import Transactions
from barnabas.client.serialization import Encode, NotReadyError
from barnabas.client.values import Headers
from barnabas.core.buffers import Buffer
from barnabas.core.errors import BarnabasError, KafkaError


class RecordIntake:
    """The checks and conversions of one producer. Its methods may be called from any thread."""

    def __init__(
        self,
        cluster: Cluster,
        accumulator: Accumulator,
        transactions: Transactions | None,
        *,
        key: Encode,
        value: Encode,
        interceptors: Sequence[ProducerInterceptor],
        record_bytes_max: int,
        max_block_ms: int,
    ) -> None:
        self._cluster = cluster
        self._accumulator = accumulator
        self._transactions = transactions
        self._encode_key = key
        self._encode_value = value
        self._interceptors = interceptors
        self.record_bytes_max = record_bytes_max
        self.max_block_ms = max_block_ms

    @property
    def intercepts(self) -> bool:
        """Whether the producer has interceptors."""
        return bool(self._interceptors)

    def intercept(
        self, topic: str, value: Any, key: Any, partition: int | None, timestamp: int | None, headers: Headers
    ) -> tuple[str, Any, Any, int | None, int | None, Headers]:
        """The record as the interceptors change it."""
        record = ProducerRecord(topic, value, key, partition, timestamp, headers)
        for interceptor in self._interceptors:
            record = interceptor.on_send(record)
        return record.topic, record.value, record.key, record.partition, record.timestamp, record.headers

    async def encode(self, topic: str, headers: Headers, key: Any, value: Any) -> tuple[Buffer | None, Buffer | None]:
        """Serialize a key and a value. Waits when a serializer lacks data. Raises SerializationError."""
        deadline = self._cluster.deadline(self.max_block_ms)
        while True:
            try:
                return self.encode_now(topic, headers, key, value)
            except NotReadyError as missing:
                if self._cluster.now() >= deadline:
                    raise
                await missing.learn()

    def encode_now(self, topic: str, headers: Headers, key: Any, value: Any) -> tuple[Buffer | None, Buffer | None]:
        """Serialize a key and a value. Raises NotReadyError when a serializer lacks data, and SerializationError."""
        return (
            None if key is None else self._encode_key(topic, headers, key),
            self._encode_value(topic, headers, value),
        )

    def check_parts(
        self, topic: str, key: Buffer | None, value: Buffer | None, timestamp: int | None, headers: Headers
    ) -> int:
        """Check the headers and the timestamp, and return an upper bound of the record's size. Raises
        SerializationError."""
        if timestamp is not None:
            check_timestamp(topic, timestamp)
        check_headers(topic, headers)
        return self._accumulator.size_upper_bound(key, value, headers)

    def check_record(
        self,
        topic: str,
        key: Buffer | None,
        value: Buffer | None,
        partition: int | None,
        timestamp: int | None,
        headers: Headers,
    ) -> None:
        """Raise every error of a record that can be known before it is placed. The topic's metadata must be known."""
        size = self.check_parts(topic, key, value, timestamp, headers)
        if size > self.record_bytes_max:
            raise too_large(topic, size, self.record_bytes_max)
        if partition is not None:
            view = self._cluster.metadata.topics.get(topic)
            count = 0 if view is None else len(view.partitions)
            if not isinstance(partition, SupportsIndex) or not 0 <= int(partition) < count:
                raise no_such_partition(topic, partition, count)

    def note_refused(self, error: BarnabasError) -> None:
        """Note that a record was not placed. An open transaction cannot be committed without it, as in the Java
        producer (KafkaProducer.doSend); errors of serializers and of the call's state do not count there."""
        ours = (SerializationError, ClientClosedError, TransactionStateError)
        if self._transactions is not None and isinstance(error, KafkaError) and not isinstance(error, ours):
            self._transactions.on_failure(error)

    def refuse(self, place: RecordPlace, topic: str, partition: int | None, error: BarnabasError) -> None:
        """Fail a record that was taken over from its caller and cannot be placed."""
        place.batch, place.index = unplaced(topic, partition, error), 0
        self.note_refused(error)

    def keep_failure(self, place: RecordPlace) -> None:
        """Keep the error of a refused record for `flush` and `close`, unless it was retrieved already."""
        if self._accumulator.failures is not None:
            self._accumulator.failures.add(place.batch)
