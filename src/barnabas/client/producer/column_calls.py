"""Shell: the producer's calls for many records at once: whole columns, and whole batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from barnabas.client.cluster.cluster import Cluster
from barnabas.client.errors import ClientClosedError
from barnabas.client.producer.accumulator import Accumulator, PartitionQueue
from barnabas.client.producer.delivery import ProducerBatch
from barnabas.client.producer.producing import COLUMNAR_BATCH_BYTES, COLUMNAR_BATCHES_AHEAD
from barnabas.client.producer.sender import Sender
from barnabas.client.producer.topics import ProducerTopics
from barnabas.client.producer.transactions import Transactions
from barnabas.client.values import RecordMetadata, WrittenBatch
from barnabas.core.buffers import Buffer

if TYPE_CHECKING:
    import asyncio

    import pyarrow as pa

    from barnabas.client.columns.formats import ColumnEncoder


class ColumnCalls(ABC):
    """The methods of `AsyncProducer` for columns and batches."""

    cluster: Cluster
    _accumulator: Accumulator
    _closed: bool
    _ignore_keys: bool
    _max_block_ms: int
    _now_ms: Callable[[], int]
    _record_bytes_max: int
    _sender: Sender
    _topics: ProducerTopics
    _transactions: Transactions | None = None

    @abstractmethod
    def check_usable(self) -> None: ...

    @abstractmethod
    def _ensure_running(self) -> asyncio.AbstractEventLoop: ...

    @abstractmethod
    async def _wait_for_room(self, deadline: float) -> None: ...

    @abstractmethod
    async def _progress(self) -> None: ...

    async def send_arrow(
        self,
        topic: str,
        table: pa.Table | pa.RecordBatch,
        *,
        value: str | None = "value",
        key: str | None = None,
        partition: str | None = None,
        timestamp: str | None = None,
        headers: str | None = None,
        key_format: ColumnEncoder | None = None,
        value_format: ColumnEncoder | None = None,
        deadline: float | None = None,
    ) -> list[RecordMetadata]:
        """Send whole columns, named by `value`, `key`, and so on. Waits until all records are acknowledged.

        A row's partition is the value of the `partition` column, else the murmur2 hash of the key, else one partition
        for the whole call. Returns the metadata of the first record of each batch. Formats (such as those of
        `barnabas.registry.columns`) serialize typed columns.
        """
        from barnabas.client.columns.arrow import ColumnNames, Placement, encode_columns
        from barnabas.client.columns.formats import encode_formats

        self.check_usable()
        limit = self.cluster.deadline(self._max_block_ms) if deadline is None else deadline
        if key_format is not None or value_format is not None:
            table, key, value = encode_formats(table, topic, (key, key_format), (value, value_format))
        while not self._topics.knows(topic):
            await self._topics.learn(topic, limit)
        state = self._topics.refresh(topic)
        assert state is not None
        encoded = encode_columns(
            table,
            ColumnNames(value, key, partition, timestamp, headers),
            Placement(state.count, state.sticky.choose(state.count), self._ignore_keys),
            now_ms=self._now_ms(),
            batch_bytes=min(self._record_bytes_max, max(self._accumulator.batch_size, COLUMNAR_BATCH_BYTES)),
            codec=self._accumulator.codec,
            level=self._accumulator.level,
        )
        self._ensure_running()
        async with state.columns_turn:
            batches = await self._queue_encoded(state.queues, encoded, limit)
        return [await batch.first_record() for batch in batches]

    async def send_batches(
        self, topic: str, partition: int, batches: Iterable[tuple[Buffer, int]], *, deadline: float | None = None
    ) -> list[WrittenBatch]:
        """Send batches that are already encoded, as (batch in record format v2, record count), to one partition, and
        wait until they are acknowledged. Programs that copy logs use it.

        The offsets of a batch's records must be consecutive from 0 on. The producer writes its own ids and sequence
        into the header, in place if the buffer is writable, and computes the CRC; the records stay as they are,
        compressed or not. The iterable is read as batches can be sent. Calls for one topic keep their order. Returns
        the offsets of all batches in order; a batch that a broker found too large was sent in several parts. Raises
        ValueError for a partition that does not exist.
        """
        self.check_usable()
        limit = self.cluster.deadline(self._max_block_ms) if deadline is None else deadline
        while not self._topics.knows(topic):
            await self._topics.learn(topic, limit)
        state = self._topics.refresh(topic)
        assert state is not None
        if not 0 <= partition < state.count:
            raise ValueError(f"{topic} has no partition {partition}; it has {state.count} partitions")
        self._ensure_running()
        async with state.columns_turn:
            encoded = ((partition, batch, count) for batch, count in batches)
            queued = await self._queue_encoded(state.queues, encoded, limit)
        return [piece for batch in queued for piece in await batch.written()]

    async def _queue_encoded(
        self, queues: list[PartitionQueue], encoded: Iterable[tuple[int, Buffer, int]], deadline: float
    ) -> list[ProducerBatch]:
        """Queue batches that are encoded shortly before they are sent, so that little memory is used.

        In a transaction all batches are queued at once, because no batch may be left when the transaction ends.
        """
        accumulator, transactions, batches = self._accumulator, self._transactions, []
        for index, data, count in encoded:
            while accumulator.unfinished and not accumulator.has_room(len(data)):
                self._sender.wake()
                await self._wait_for_room(deadline)
            if self._closed:
                raise ClientClosedError("This producer")
            if transactions is not None:
                transactions.check_can_send()
            queue, now = queues[index], self.cluster.now()
            batch = accumulator.append_encoded(queue, data, count, now)
            batch.is_awaited = True
            batches.append(batch)
            self._sender.send_now(now)
            if queue.queue:
                self._sender.wake()
            while transactions is None and len(queue.queue) >= COLUMNAR_BATCHES_AHEAD and queue.in_flight:
                await self._progress()
        return batches
