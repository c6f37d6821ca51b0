"""Machine: records on their way to the brokers: batches per partition, within `buffer.memory`, in order.

Each partition has a queue of batches. Appends go to the last one; the sender takes the first ones when they are full,
have lingered, or somebody flushes. With idempotence a batch gets its sequence number when it is first taken, and keeps
it.

When a batch fails and is to be tried again, the partition *recovers*: nothing more is taken until every batch in flight
has been answered, then what must be sent again goes out in the old order, one at a time, until all of it has succeeded.
That is what keeps the order through retries, whatever the brokers do in between; and the last five batches, which a
broker knows again, stay those that may come again.

    queued ──take──▶ in flight ──ack──▶ done
       ▲                │
       └──── retry ─────┘      refused or expired: failed; the sequence closes the gap, or the epoch is bumped
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from barnabas.client.producer.delivery import ProducerBatch, RecordPlace
from barnabas.core.buffers import Buffer
from barnabas.core.errors import BarnabasError
from barnabas.core.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TopicPartition
from barnabas.protocol.records.build import RECORD_OVERHEAD_MAX, BatchBuilder, Headers
from barnabas.protocol.records.compression import Codec

IN_FLIGHT_PER_PARTITION_MAX: Final = 5
"""A broker remembers the last five batches of an idempotent producer, so more may not be under way."""


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """What the broker knows an idempotent producer by."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH

    @property
    def valid(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID


NOBODY: Final = ProducerIdentity()


class PartitionQueue:
    """The batches of one partition, and its place in the sequence."""

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
        self.identity = NOBODY
        self.next_sequence = 0
        self.last_acked_sequence = -1
        self.needs_new_epoch = False
        self.gap_is_known = False

    def is_ready(self, now: float, *, flushing: bool) -> bool:
        """May the first batch be sent now?"""
        if not self.queue or self.retry_at > now:
            return False
        if self.recovering:
            return not self.in_flight
        if len(self.in_flight) >= IN_FLIGHT_PER_PARTITION_MAX:
            return False
        first = self.queue[0]
        return flushing or len(self.queue) > 1 or first.is_closed or first.send_at <= now

    def take(self, identity: ProducerIdentity, *, transactional: bool = False) -> ProducerBatch:
        """The first batch, closed, with its sequence, and from now on in flight."""
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
        """A new id or epoch: sequences start at 0, also for batches that were sent under the old one and refused."""
        self.identity = identity
        self.next_sequence = 0
        self.last_acked_sequence = -1
        self.needs_new_epoch = False
        self.gap_is_known = False
        for batch in self.queue:
            batch.forget_sequence()

    def _renumber(self, first: ProducerBatch) -> None:
        """A batch was refused for good: those behind it move up, because the broker has never seen its sequence."""
        self.gap_is_known = False
        self.next_sequence = (self.last_acked_sequence + 1) & 0x7FFFFFFF
        first.forget_sequence()
        for batch in self.queue:
            batch.forget_sequence()

    def on_acked(self, batch: ProducerBatch) -> None:
        self.in_flight.remove(batch)
        if batch.base_sequence != NO_SEQUENCE:
            self.last_acked_sequence = batch.last_sequence
        # One of those behind may succeed while those before it are still to be sent again (their answers were errors,
        # written or not). So not the first success ends it, but having nothing left that was sent before.
        self.recovering = bool(self.queue) and self.queue[0].attempts > 0

    def on_retry(self, batch: ProducerBatch, retry_at: float) -> None:
        """Back to the front of the queue, in the order of first sending."""
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
        """True when everything before this batch (which is in flight) has been settled."""
        return self.in_flight[0] is batch and (not self.queue or self.queue[0].ordinal > batch.ordinal)

    def on_failed(self, batch: ProducerBatch, *, in_doubt: bool) -> None:
        """Given up. `in_doubt`: it may have been written, so its sequence cannot be used again."""
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
        """A batch that was too large comes back in parts, which take up its sequences."""
        self.in_flight.remove(batch)
        self.recovering = True
        for part in parts:
            self._put_back(part)


class Accumulator:
    """All partitions' queues, and the bytes they hold."""

    def __init__(
        self,
        *,
        batch_size: int,
        buffer_memory: int,
        linger_s: float,
        delivery_timeout_s: float,
        codec: Codec,
        level: int | None = None,
    ) -> None:
        self.batch_size = batch_size
        self.buffer_memory = buffer_memory
        self.linger_s = linger_s
        self.delivery_timeout_s = delivery_timeout_s
        self.codec = codec
        self.level = level
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.used_bytes = 0
        self.unfinished = 0
        """Batches that are queued or in flight."""
        self._ordinal = 0
        self._ratios: dict[str, float] = {}

    def has_room(self, size: int) -> bool:
        return self.used_bytes + size <= self.buffer_memory or not self.unfinished

    @staticmethod
    def size_upper_bound(key: Buffer | None, value: Buffer | None, headers: Headers) -> int:
        """More than the bytes a record will take."""
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
        """Add a record to the partition's last batch, or to a new one: `place` says which. True: a batch is full."""
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
        """Add a whole batch that is encoded already (columns)."""
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
        """Two batches instead of one that a broker found too large; they take over its waiters and its memory."""
        parts = batch.split()
        self.unfinished += len(parts) - 1
        return parts

    def release(self, batch: ProducerBatch) -> None:
        """The batch is done or has failed: its memory is free."""
        self.used_bytes -= batch.charged
        self.unfinished -= 1
        batch.charged = 0

    def note_ratio(self, topic: str, ratio: float) -> None:
        """How well a batch was compressed, for the estimate of the next ones (CompressionRatioEstimator)."""
        known = self._ratios.get(topic, 1.0)
        self._ratios[topic] = max(known - 0.005, ratio) if ratio < known else min(known + 0.05, max(ratio, 0.05))

    def expired(self, now: float) -> Iterator[tuple[PartitionQueue, ProducerBatch]]:
        """Queued batches whose delivery time is over. (Those in flight are let finish their request.)"""
        for queue in self.queues.values():
            for batch in list(queue.queue):
                if batch.deadline <= now:
                    yield queue, batch
                else:
                    break

    def abandon(self, error: BarnabasError) -> None:
        """Fail everything that has not been acknowledged."""
        for queue in self.queues.values():
            for batch in [*queue.in_flight, *queue.queue]:
                self.release(batch)
                batch.fail(error)
            queue.in_flight.clear()
            queue.queue.clear()
