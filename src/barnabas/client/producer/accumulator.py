"""Machine: the batches of each partition that wait for the sender or are in flight, in order and within
`buffer.memory`.

Each partition has a queue of batches. Records are appended to the last batch. The sender takes the first batches when
they are full, have lingered, or the producer flushes. With idempotence a batch gets its sequence number when it is
first taken, and keeps the number.

When a batch fails and is retried, the partition *recovers*: no batch is taken until all batches in flight have been
answered. Then the failed batches are sent again in their old order, one at a time, until all of them have succeeded.
So retries keep the order. A broker recognises the last five batches of a producer, and no other batch is ever sent
again.

    queued ──take──▶ in flight ──ack──▶ done
       ▲                │
       └──── retry ─────┘      rejected or expired: failed; sequence numbers are reused, or the epoch is bumped
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from barnabas.client.producer.delivery import ProducerBatch, RecordPlace
from barnabas.client.producer.failures import DeliveryFailures
from barnabas.core.buffers import Buffer
from barnabas.core.errors import BarnabasError
from barnabas.core.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TopicPartition
from barnabas.protocol.records.build import RECORD_OVERHEAD_MAX, BatchBuilder, Headers
from barnabas.protocol.records.compression import CompressionType

IN_FLIGHT_PER_PARTITION_MAX: Final = 5
"""A broker remembers the last five batches of an idempotent producer, so no more may be in flight."""


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """The producer id and epoch of an idempotent producer."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH

    @property
    def valid(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID


NO_IDENTITY: Final = ProducerIdentity()


class PartitionQueue:
    """The batches of one partition, and the partition's next sequence number."""

    __slots__ = (
        "gap_is_known",
        "identity",
        "in_flight",
        "last_acked_sequence",
        "needs_new_epoch",
        "next_sequence",
        "partition",
        "queue",
        "recovering",
        "retry_at",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.queue: deque[ProducerBatch] = deque()
        self.in_flight: list[ProducerBatch] = []
        self.recovering = False
        self.retry_at = 0.0
        self.identity = NO_IDENTITY
        self.next_sequence = 0
        self.last_acked_sequence = -1
        self.needs_new_epoch = False
        self.gap_is_known = False

    def is_ready(self, now: float, *, flushing: bool) -> bool:
        """Whether the first batch may be sent now."""
        if not self.queue or self.retry_at > now:
            return False
        if self.recovering:
            return not self.in_flight
        if len(self.in_flight) >= IN_FLIGHT_PER_PARTITION_MAX:
            return False
        first = self.queue[0]
        return flushing or len(self.queue) > 1 or first.is_closed or first.send_at <= now

    def take(self, identity: ProducerIdentity, *, transactional: bool = False) -> ProducerBatch:
        """Take the first batch: close it, give it its sequence number, and count it as in flight."""
        batch = self.queue.popleft()
        batch.seal_count()
        if identity.valid:
            if self.identity != identity and not self.in_flight:
                self.adopt(identity)
            if self.gap_is_known and not self.in_flight:
                self._renumber(batch)
            if batch.base_sequence == NO_SEQUENCE:
                batch.base_sequence = self.next_sequence
                batch.identity = (self.identity.producer_id, self.identity.epoch)
                self.next_sequence = (self.next_sequence + batch.record_count) & 0x7FFFFFFF
        batch.close(transactional=transactional)
        batch.attempts += 1
        self.in_flight.append(batch)
        return batch

    def adopt(self, identity: ProducerIdentity) -> None:
        """Adopt a new producer id or epoch. Sequence numbers start at 0 again, also for queued batches that already had
        numbers of the old epoch."""
        self.identity = identity
        self.next_sequence = 0
        self.last_acked_sequence = -1
        self.needs_new_epoch = False
        self.gap_is_known = False
        for batch in self.queue:
            batch.forget_sequence()

    def _renumber(self, first: ProducerBatch) -> None:
        """Give the unused sequence numbers of a rejected batch to `first` and the queued batches, because the broker
        expects these numbers next."""
        self.gap_is_known = False
        self.next_sequence = (self.last_acked_sequence + 1) & 0x7FFFFFFF
        first.forget_sequence()
        for batch in self.queue:
            batch.forget_sequence()

    def on_acked(self, batch: ProducerBatch) -> None:
        self.in_flight.remove(batch)
        if batch.base_sequence != NO_SEQUENCE:
            self.last_acked_sequence = batch.last_sequence
        # A later batch may succeed while earlier ones are still to be retried (their responses were errors,
        # whether written or not). So the recovery ends when no batch is left that was sent before.
        self.recovering = bool(self.queue) and self.queue[0].attempts > 0

    def on_retry(self, batch: ProducerBatch, retry_at: float) -> None:
        """Put the batch back at the front of the queue, in the order of the first sends."""
        self.in_flight.remove(batch)
        self.recovering = True
        self.retry_at = max(self.retry_at, retry_at)
        self._put_back(batch)

    def _put_back(self, batch: ProducerBatch) -> None:
        place = 0
        while place < len(self.queue) and self.queue[place].ordinal < batch.ordinal:
            place += 1
        self.queue.insert(place, batch)

    def is_first(self, batch: ProducerBatch) -> bool:
        """Whether all batches before `batch`, a batch in flight, have been settled."""
        return self.in_flight[0] is batch and (not self.queue or self.queue[0].ordinal > batch.ordinal)

    def on_failed(self, batch: ProducerBatch, *, in_doubt: bool) -> None:
        """Remove a batch that has failed. With `in_doubt` the broker may have written the batch, so that its sequence
        numbers cannot be reused."""
        if batch in self.in_flight:
            self.in_flight.remove(batch)
        elif batch in self.queue:
            self.queue.remove(batch)
        if batch.base_sequence != NO_SEQUENCE:
            if in_doubt:
                self.needs_new_epoch = True
            else:
                self.gap_is_known = True
            self.recovering = bool(self.queue or self.in_flight)

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Replace a batch that was too large by its parts, which use the same sequence numbers."""
        self.in_flight.remove(batch)
        self.recovering = True
        for part in parts:
            self._put_back(part)


class Accumulator:
    """The queues of all partitions, and their memory."""

    def __init__(
        self,
        *,
        batch_size: int,
        buffer_memory: int,
        linger_s: float,
        delivery_timeout_s: float,
        codec: CompressionType,
        level: int | None = None,
        keep_failures: bool = True,
    ) -> None:
        self.failures = DeliveryFailures() if keep_failures else None
        self.batch_size = batch_size
        self.buffer_memory = buffer_memory
        self.linger_s = linger_s
        self.delivery_timeout_s = delivery_timeout_s
        self.codec = codec
        self.level = level
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.used_bytes = 0
        self.unfinished = 0
        """The number of batches that are queued or in flight."""
        self._ordinal = 0
        self._ratios: dict[str, float] = {}

    def has_room(self, size: int) -> bool:
        return self.used_bytes + size <= self.buffer_memory or not self.unfinished

    @staticmethod
    def size_upper_bound(key: Buffer | None, value: Buffer | None, headers: Headers) -> int:
        """An upper bound of the size of a record."""
        size = RECORD_OVERHEAD_MAX + (len(key) if key is not None else 0) + (len(value) if value is not None else 0)
        for name, data in headers:
            size += 10 + 3 * len(name) + (len(data) if data is not None else 0)
        return size

    def append(
        self,
        place: RecordPlace,
        queue: PartitionQueue,
        key: Buffer | None,
        value: Buffer | None,
        timestamp: int,
        headers: Headers,
        now: float,
    ) -> bool:
        """Add a record to the partition's last batch, or to a new one, and set `place`. Returns whether a batch is
        full."""
        pending = queue.queue
        batch = pending[-1] if pending and not pending[-1].is_closed else None
        builder = None if batch is None else batch.builder
        index = None if builder is None else builder.try_append(key, value, timestamp, headers)
        closed = False
        if batch is None or builder is None or index is None:
            if batch is not None:
                batch.is_closed = closed = True
            builder = BatchBuilder(
                self.batch_size,
                codec=self.codec,
                level=self.level,
                compression_ratio=self._ratios.get(queue.partition.topic, 1.0),
            )
            index = builder.try_append(key, value, timestamp, headers)
            assert index == 0
            batch = self._new_batch(queue, now, builder)
        self.used_bytes += builder.bytes - batch.charged
        batch.charged = builder.bytes
        place.batch = batch
        place.index = index
        place.timestamp = timestamp
        place.key_size = -1 if key is None else len(key)
        place.value_size = -1 if value is None else len(value)
        return closed or builder.is_full

    def append_encoded(self, queue: PartitionQueue, encoded: Buffer, count: int, now: float) -> ProducerBatch:
        """Add a whole batch that is already encoded (columns)."""
        if queue.queue:
            queue.queue[-1].is_closed = True
        batch = self._new_batch(queue, now, None)
        batch.adopt_encoded(encoded, count)
        batch.charged = len(encoded)
        self.used_bytes += len(encoded)
        return batch

    def _new_batch(self, queue: PartitionQueue, now: float, builder: BatchBuilder | None) -> ProducerBatch:
        self._ordinal += 1
        batch = ProducerBatch(
            queue.partition, builder, (self._ordinal,), now + self.linger_s, now + self.delivery_timeout_s
        )
        queue.queue.append(batch)
        self.unfinished += 1
        return batch

    def queue(self, partition: TopicPartition) -> PartitionQueue:
        found = self.queues.get(partition)
        if found is None:
            found = self.queues[partition] = PartitionQueue(partition)
        return found

    def split(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """Split a batch that the broker found too large. The two parts take over its futures and its memory."""
        parts = batch.split()
        self.unfinished += len(parts) - 1
        return parts

    def release(self, batch: ProducerBatch) -> None:
        """Release the memory of a batch that is acknowledged or has failed."""
        self.used_bytes -= batch.charged
        self.unfinished -= 1
        batch.charged = 0

    def fail(self, batch: ProducerBatch, error: BarnabasError) -> None:
        """Fail a batch that is in no queue any more, and keep it for `flush` and `close` to raise its error."""
        self.release(batch)
        batch.fail(error)
        if self.failures is not None:
            self.failures.add(batch)

    def note_ratio(self, topic: str, ratio: float) -> None:
        """Record the compression ratio of a batch, to estimate the next ones (CompressionRatioEstimator)."""
        known = self._ratios.get(topic, 1.0)
        self._ratios[topic] = max(known - 0.005, ratio) if ratio < known else min(known + 0.05, max(ratio, 0.05))

    def expired(self, now: float) -> Iterator[tuple[PartitionQueue, ProducerBatch]]:
        """The queued batches whose delivery time-out has passed. (Batches in flight wait for their responses.)"""
        for queue in self.queues.values():
            for batch in list(queue.queue):
                if batch.deadline <= now:
                    yield queue, batch
                else:
                    break

    def count_records(self) -> int:
        """The number of records in all batches."""
        batches = (b for q in list(self.queues.values()) for b in (*q.in_flight, *q.queue))
        return sum(b.record_count if b.builder is None else b.builder.record_count for b in batches)

    def abandon(self, error: BarnabasError) -> None:
        """Fail all batches that are not acknowledged."""
        for queue in self.queues.values():
            for batch in [*queue.in_flight, *queue.queue]:
                self.fail(batch, error)
            queue.in_flight.clear()
            queue.queue.clear()
