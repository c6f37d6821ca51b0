"""Value: one batch of a producer and the futures of its records.

There is one `RecordPlace` for each record, so a place is small: it has the record's batch, index, timestamp and sizes,
and computes all other values on demand. Only a record that is awaited has an asyncio future.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator
from struct import Struct
from typing import Any, Final

from crc32c import crc32c

from barnabas.client.values import RecordMetadata, WrittenBatch
from barnabas.core.buffers import Buffer
from barnabas.core.errors import BarnabasError
from barnabas.core.ids import NO_SEQUENCE, TopicPartition
from barnabas.protocol.records.batch import CRC_START, TRANSACTIONAL_FLAG, iter_batches, iter_records
from barnabas.protocol.records.build import BatchBuilder, SimpleRecord, build_batch

_CRC: Final = Struct(">I")
_ATTRIBUTES: Final = Struct(">h")
_PRODUCER: Final = Struct(">qhi")
_ATTRIBUTES_AT: Final = 21
_PRODUCER_AT: Final = 43

Watcher = Callable[[], None]


class ProducerBatch:
    """The records of one partition in one batch."""

    __slots__ = (
        "_log_append_time",
        "_seen",
        "_watchers",
        "attempts",
        "base_offset",
        "base_sequence",
        "builder",
        "charged",
        "deadline",
        "done",
        "encoded",
        "error",
        "identity",
        "is_awaited",
        "is_closed",
        "ordinal",
        "partition",
        "parts",
        "record_count",
        "send_at",
    )

    def __init__(
        self,
        partition: TopicPartition,
        builder: BatchBuilder | None,
        ordinal: tuple[int, ...],
        send_at: float,
        deadline: float,
    ) -> None:
        """`ordinal` orders all batches; the parts of a split batch extend its ordinal."""
        self.partition = partition
        self.builder = builder
        self.ordinal = ordinal
        self.send_at = send_at
        self.deadline = deadline
        self.attempts = 0
        self.charged = 0
        self.is_closed = False
        self.encoded: Buffer = b""
        self.record_count = 0
        self.base_sequence = NO_SEQUENCE
        self.identity = (-1, -1)
        self.done = False
        self.error: BarnabasError | None = None
        self.base_offset = -1
        self._log_append_time = -1
        self._watchers: list[Watcher] = []
        self.parts: list[tuple[int, ProducerBatch]] = []
        self.is_awaited = False
        """Whether a call (`send_arrow`) waits for the whole batch, and raises its error."""
        self._seen: set[int] | None = None

    # -- bytes -----------------------------------------------------------------------------------------------------

    @property
    def last_sequence(self) -> int:
        return (self.base_sequence + self.record_count - 1) & 0x7FFFFFFF

    def adopt_encoded(self, encoded: Buffer, count: int) -> None:
        """Use a batch that is already encoded. Its producer id, epoch and sequence are written when it is sent."""
        self.encoded = encoded if _is_writable(encoded) else bytearray(encoded)
        self.record_count = count
        self.is_closed = True

    def seal_count(self) -> None:
        """Close the batch for new records: their number is final."""
        if self.builder is not None:
            self.record_count = self.builder.record_count
        self.is_closed = True

    def close(self, *, transactional: bool = False) -> None:
        """Build the final bytes, with the producer's id, epoch and sequence."""
        self.is_closed = True
        producer_id, epoch = self.identity
        if len(self.encoded):
            _stamp(self.encoded, producer_id, epoch, self.base_sequence, transactional)
        elif self.builder is not None:
            self.encoded = self.builder.build(
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=self.base_sequence,
                transactional=transactional,
            )

    def forget_sequence(self) -> None:
        """Make the next `take` give the batch a new sequence number."""
        self.base_sequence = NO_SEQUENCE
        self.identity = (-1, -1)

    def split(self) -> list[ProducerBatch]:
        """The same records in two batches."""
        pos, header = next(iter_batches(self.encoded))
        records = [
            SimpleRecord(r.key, r.value, r.timestamp, r.headers) for r in iter_records(self.encoded, pos, header)
        ]
        middle = len(records) // 2
        for index, part in ((0, records[:middle]), (middle, records[middle:])):
            child = ProducerBatch(self.partition, None, (*self.ordinal, index), self.send_at, self.deadline)
            child.adopt_encoded(build_batch(part, codec=header.codec), len(part))
            child.charged = self.charged * len(part) // len(records)
            child.attempts = self.attempts
            child.is_awaited = self.is_awaited
            self.parts.append((index, child))
        (_, first), (_, second) = self.parts
        second.charged = self.charged - first.charged
        if self.base_sequence != NO_SEQUENCE:
            first.identity = second.identity = self.identity
            first.base_sequence = self.base_sequence
            second.base_sequence = (self.base_sequence + middle) & 0x7FFFFFFF
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            first.watch(lambda watcher=watcher: second.watch(watcher))  # type: ignore[misc]  # mypy infers no lambda with a default
        self.encoded = b""
        return [first, second]

    # -- outcome ---------------------------------------------------------------------------------------------------

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` when the batch is settled, or now if it already is."""
        if self.parts:
            self.parts[0][1].watch(lambda: self.parts[1][1].watch(watcher))
        elif self.done:
            watcher()
        else:
            self._watchers.append(watcher)

    def succeed(self, base_offset: int, log_append_time: int) -> None:
        self.base_offset = base_offset
        self._log_append_time = log_append_time
        self._settle()

    def fail(self, error: BarnabasError) -> None:
        if self.builder is not None:
            self.seal_count()
        self.error = error
        self._settle()

    async def written(self) -> list[WrittenBatch]:
        """Wait until the whole batch is acknowledged, and return its offsets: one item, or one for each part if the
        batch was split. Raises the batch's error."""
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.watch(lambda: None if settled.done() else settled.set_result(None))
        await settled
        found = []
        for part in self._undivided():
            if part.error is not None:
                raise part.error
            found.append(WrittenBatch(part.base_offset, part.record_count))
        return found

    def _undivided(self) -> Iterator[ProducerBatch]:
        """This batch, or the parts into which it was split."""
        if not self.parts:
            yield self
        for _, part in self.parts:
            yield from part._undivided()

    def note_seen(self, index: int) -> None:
        """Note that the error of the record at `index` was retrieved."""
        if self._seen is None:
            self._seen = set()
        self._seen.add(index)

    @property
    def unseen(self) -> int:
        """The number of failed records whose errors were not retrieved."""
        if self.error is None or self.is_awaited:
            return 0
        return self.record_count - len(self._seen or ())

    def _settle(self) -> None:
        self.done = True
        self.encoded = b""
        self.builder = None
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            watcher()

    def first_record(self) -> RecordFuture:
        """A future for the first record of a batch that was added encoded; it is done when the batch is settled."""
        future = RecordFuture()
        future.batch, future.index = self, 0
        future.timestamp = future.key_size = future.value_size = -1
        return future

    def metadata(self, index: int, timestamp: int, key_size: int, value_size: int) -> RecordMetadata:
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        when = self._log_append_time if self._log_append_time >= 0 else timestamp
        return RecordMetadata(self.partition.topic, self.partition.partition, offset, when, key_size, value_size)


def _is_writable(buffer: Buffer) -> bool:
    return isinstance(buffer, bytearray) or (isinstance(buffer, memoryview) and not buffer.readonly)


def _stamp(batch: Any, producer_id: int, epoch: int, sequence: int, transactional: bool) -> None:
    """Write the producer's fields into an encoded batch, and compute the CRC again."""
    _PRODUCER.pack_into(batch, _PRODUCER_AT, producer_id, epoch, sequence)
    (attributes,) = _ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_AT)
    attributes = attributes | TRANSACTIONAL_FLAG if transactional else attributes & ~TRANSACTIONAL_FLAG
    _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_AT, attributes)
    _CRC.pack_into(batch, CRC_START - 4, crc32c(memoryview(batch)[CRC_START:]))


class RecordPlace:
    """The position of one record: its batch and its index in the batch. `Accumulator.append` sets both.

    There is no `__init__`, because a Python call for each record would be slow.
    """

    __slots__ = ("batch", "index", "key_size", "timestamp", "value_size")

    batch: ProducerBatch
    index: int
    timestamp: int
    key_size: int
    value_size: int

    def home(self) -> tuple[ProducerBatch, int]:
        """The record's present batch and its index in it: the original batch may have been split."""
        batch, index = self.batch, self.index
        while batch.parts:
            first, part = next((first, part) for first, part in reversed(batch.parts) if index >= first)
            batch, index = part, index - first
        self.batch, self.index = batch, index
        return batch, index

    def __repr__(self) -> str:
        batch = self.home()[0]
        if not batch.done and not batch.partition.topic:
            return "<record, not acknowledged yet>"
        if not batch.done:
            return f"<record for {batch.partition}, not acknowledged yet>"
        return f"<record for {batch.partition}, {'failed: ' + str(batch.error) if batch.error else 'written'}>"

    def done(self) -> bool:
        return self.home()[0].done

    def metadata(self) -> RecordMetadata:
        """The metadata of an acknowledged record. Raises the record's error."""
        batch, index = self.home()
        if batch.error is not None:
            batch.note_seen(index)
            raise batch.error
        return batch.metadata(index, self.timestamp, self.key_size, self.value_size)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self.home()[0].done:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.batch.watch(lambda: self._wake(waiter))
            yield from waiter
        return self.metadata()

    def _wake(self, waiter: asyncio.Future[None]) -> None:
        if not waiter.done():
            self.error()  # a task waits for the record, and gets the error when it runs next
            waiter.set_result(None)

    def error(self) -> BarnabasError | None:
        """The error of a settled record, which counts as retrieved; None if the record was acknowledged."""
        batch, index = self.home()
        if batch.error is not None:
            batch.note_seen(index)
        return batch.error


class RecordFuture(RecordPlace):
    """The result of one record: `await` it, poll `done()`, or add a callback."""

    __slots__ = ()

    def exception(self) -> BarnabasError | None:
        """The record's error; None if it was acknowledged. Valid only when `done()` is true."""
        return self.error()

    def result(self) -> RecordMetadata:
        """The record's metadata. Raises the record's error, or asyncio.InvalidStateError while it is not done."""
        if not self.done():
            raise asyncio.InvalidStateError("The record has not been acknowledged yet; await it.")
        return self.metadata()

    def add_done_callback(self, callback: Callable[[RecordFuture], None]) -> None:
        """Call `callback(future)` on the event loop when the record is acknowledged or has failed."""
        self.batch.watch(lambda: callback(self))


def unplaced(topic: str = "", partition: int | None = None, error: BarnabasError | None = None) -> ProducerBatch:
    """The batch of one record that is not in a real batch yet, or never will be because of `error`."""
    batch = ProducerBatch(TopicPartition(topic, -1 if partition is None else partition), None, (), 0.0, 0.0)
    batch.record_count = 1
    if error is not None:
        batch.fail(error)
    return batch
