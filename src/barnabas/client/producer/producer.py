"""Shell: the producer. A record passes interceptors, serializers, partitioner, accumulator and sender, in that order.

    async with AsyncProducer(bootstrap_servers="localhost:9092") as producer:
        await producer.send("orders", b"hello", key=b"k")              # queued: fire and forget
        metadata = await producer.send_and_wait("orders", b"hello")    # acknowledged
        future = await producer.send("orders", b"hello", on_delivery=lambda metadata, error: ...)

`send` waits only for metadata and for `buffer.memory`. It returns a `RecordFuture`; awaiting the future waits for the
broker. Records of one partition keep the order of the calls, through retries and changes of leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from barnabas.client.cluster.cluster import Cluster
from barnabas.client.config import PRODUCER_CONFIGS, resolve_config
from barnabas.client.errors import BufferFullError, ClientClosedError
from barnabas.client.interceptors import DeliveryCallback as DeliveryCallback
from barnabas.client.interceptors import ProducerInterceptor as ProducerInterceptor
from barnabas.client.interceptors import ProducerRecord as ProducerRecord
from barnabas.client.interceptors import notify
from barnabas.client.options import ClusterConfig, Settings
from barnabas.client.producer.accumulator import Accumulator, PartitionQueue
from barnabas.client.producer.delivery import ProducerBatch, RecordFuture, RecordPlace
from barnabas.client.producer.partitioner import KeyHasher, Partitioner
from barnabas.client.producer.producing import COLUMNAR_BATCH_BYTES, COLUMNAR_BATCHES_AHEAD, sender_config
from barnabas.client.producer.sender import Sender
from barnabas.client.producer.topics import ProducerTopics
from barnabas.client.producer.transaction_calls import TransactionCalls
from barnabas.client.producer.transactions import Transactions
from barnabas.client.serialization import AnySerializer, NotReadyError, as_encode
from barnabas.client.values import Headers, RecordMetadata
from barnabas.core.buffers import Buffer
from barnabas.core.clock import Clock, SystemClock
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.build import RECORD_OVERHEAD_MAX
from barnabas.protocol.records.compression import producer_codec

if TYPE_CHECKING:
    import pyarrow as pa

    from barnabas.client.columns.formats import ColumnEncoder


class AsyncProducer(TransactionCalls):
    """A producer. Its configs are those of `config.PRODUCER_CONFIGS`, by Kafka's names in a mapping, or as keywords."""

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        key_serializer: AnySerializer | None = None,
        value_serializer: AnySerializer | None = None,
        partitioner: Partitioner | None = None,
        interceptors: Iterable[ProducerInterceptor] = (),
        cluster: Cluster | None = None,
        clock: Clock | None = None,
        **settings: object,
    ) -> None:
        if cluster is not None:
            settings.setdefault("bootstrap_servers", ",".join(f"{h}:{p}" for h, p in cluster.options.bootstrap_servers))
        resolved: Settings = resolve_config(PRODUCER_CONFIGS, config, settings)
        options = sender_config(resolved, config or {}, settings)
        self._owns_cluster = cluster is None
        self.cluster = cluster or Cluster(ClusterConfig.from_settings(resolved))
        self._now_ms = (clock or SystemClock()).now_ms
        self._encode_key = as_encode(key_serializer, "key")
        self._encode_value = as_encode(value_serializer, "value")
        self._plain = key_serializer is None and value_serializer is None
        self._partitioner = partitioner
        self._ignore_keys: bool = resolved["partitioner.ignore.keys"]
        self._interceptors = list(interceptors)
        self._metadata_max_idle_s = resolved["metadata.max.idle.ms"] / 1000.0
        self._max_block_ms: int = resolved["max.block.ms"]
        self._record_bytes_max: int = resolved["max.request.size"]
        codec = producer_codec(resolved["compression.type"])
        self._accumulator = Accumulator(
            batch_size=resolved["batch.size"],
            buffer_memory=resolved["buffer.memory"],
            linger_s=resolved["linger.ms"] / 1000.0,
            delivery_timeout_s=resolved["delivery.timeout.ms"] / 1000.0,
            codec=codec,
            level=resolved.get(f"compression.{codec.config_name}.level"),
        )
        self._sender = Sender(self.cluster, self._accumulator, options)
        self._topics = ProducerTopics(
            self.cluster,
            self._accumulator,
            self._sender.links.unavailable,
            adaptive=resolved["partitioner.adaptive.partitioning.enable"],
        )
        self._sender.on_progress = self._on_progress
        self._sender.on_availability = self._topics.on_availability
        if options.transactional_id is not None:
            self._transactions = Transactions(
                self.cluster,
                options.transactional_id,
                options.transaction_timeout_ms,
                self._sender.wake,
                two_phase=options.two_phase,
            )
            self._sender.transactions = self._transactions
        self._hasher = KeyHasher()
        self._missing: NotReadyError | None = None
        """The data that the last `try_send` lacked; `send` waits for it."""
        self._waiting_for_progress: list[asyncio.Future[None]] = []
        self._runner: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        self._ensure_running()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        name = type(self).__name__
        if self._closed:
            return f"<{name}, closed>"
        role = (
            f" {self._transactions.transactional_id!r}, {self._transactions.state.value}," if self._transactions else ""
        )
        return f"<{name}{role} to {self.cluster}, {self._accumulator.unfinished} batches unacknowledged>"

    # -- sending ---------------------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
        on_delivery: DeliveryCallback | None = None,
    ) -> RecordFuture:
        """Queue a record. `timestamp` is ms since the epoch, now by default; `headers` are (name, bytes) pairs.

        Raises SerializationError, MESSAGE_TOO_LARGE, BufferFullError when `buffer.memory` stays full for
        `max.block.ms`, and KafkaError when the topic's metadata cannot be fetched in that time.
        """
        future = RecordFuture()
        if not self.try_place(future, topic, value, key, partition, timestamp, headers, on_delivery):
            await self.place(future, topic, value, key, partition, timestamp, headers, on_delivery)
        return future

    async def place(self, place: RecordPlace, topic: str, *arguments: Any) -> None:
        """Call `try_place` until it succeeds, and wait in between for what is missing: metadata, a schema or memory."""
        deadline = self.cluster.deadline(self._max_block_ms)
        placed = False
        while not placed:
            missing, self._missing = self._missing, None
            if missing is not None:
                await missing.learn()
            elif not self._topics.knows(topic):
                await self._topics.learn(topic, deadline)
            else:
                await self._wait_for_room(deadline)
            placed = self.try_place(place, topic, *arguments)

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> RecordMetadata:
        """Send one record and wait until it is acknowledged. Raises the record's error."""
        return await (await self.send(topic, value, key=key, partition=partition, timestamp=timestamp, headers=headers))

    def try_send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
        on_delivery: DeliveryCallback | None = None,
    ) -> RecordFuture | None:
        """`send` without waiting. Returns None when metadata, a schema or memory is missing. Call this on the event
        loop only."""
        future = RecordFuture()
        placed = self.try_place(future, topic, value, key, partition, timestamp, headers, on_delivery)
        return future if placed else None

    def try_place(
        self,
        place: RecordPlace,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp: int | None,
        headers: Headers,
        on_delivery: DeliveryCallback | None,
    ) -> bool:
        """Like `try_send`, for a caller that already has the record's place. Returns False when metadata, a schema or
        memory is missing."""
        if self._closed:
            raise ClientClosedError("This producer")
        if self._sender.fatal is not None:
            raise self._sender.fatal
        if self._transactions is not None:
            self._transactions.check_can_send()
        if self._interceptors:
            topic, value, key, partition, timestamp, headers = self._intercept(
                ProducerRecord(topic, value, key, partition, timestamp, headers)
            )
        loop = self._loop or self._ensure_running()
        now = loop.time()
        state = self._topics.states.get(topic)
        if state is not None and now - state.used_at > self._metadata_max_idle_s and state.is_settled:
            state.used_at = now
            self.cluster.metadata.forget(topic)
            return False
        if state is None or state.version != self.cluster.metadata.version:
            state = self._topics.refresh(topic)
            if state is None:
                return False
        plain = self._plain  # bytes need no serializer, which saves calls in the common case
        try:
            key_bytes = key if key is None or (plain and type(key) is bytes) else self._encode_key(topic, headers, key)
            value_bytes = value if plain and type(value) is bytes else self._encode_value(topic, headers, value)
        except NotReadyError as missing:
            self._missing = missing
            return False
        accumulator = self._accumulator
        if headers or value_bytes is None:
            size = accumulator.size_upper_bound(key_bytes, value_bytes, headers)
        else:
            size = RECORD_OVERHEAD_MAX + len(value_bytes) + (len(key_bytes) if key_bytes is not None else 0)
        if size > self._record_bytes_max:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"A record of {size} bytes for {topic!r} is larger than max.request.size ({self._record_bytes_max}).",
            )
        if accumulator.used_bytes + size > accumulator.buffer_memory and accumulator.unfinished:
            self._sender.wake()
            return False
        count = state.count
        sticky = False
        if partition is None:
            if self._partitioner is not None:
                partition = self._partitioner(topic, key_bytes, value_bytes, count)
            elif key_bytes is not None and not self._ignore_keys:
                partition = self._hasher.partition(key_bytes, count)
            else:
                sticky = True
                partition = state.sticky.choose(count)
        if not 0 <= partition < count:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"There is no partition {partition} of {topic!r}; it has {count} partitions.",
            )
        queue = state.queues[partition]
        was_empty = not queue.queue
        when = self._now_ms() if timestamp is None else timestamp
        state.used_at = now
        full = accumulator.append(place, queue, key_bytes, value_bytes, when, headers, now)
        if sticky:
            state.sticky.on_appended(size, count, batch_closed=full)
        if full or was_empty:
            if accumulator.unfinished == 1 and not accumulator.linger_s:
                self._sender.send_now(now)
            if queue.queue:
                self._sender.wake()
        if on_delivery is not None or self._interceptors:
            self._watch(place, on_delivery)
        return True

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

        if self._transactions is not None:
            self._transactions.check_can_send()
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
            batches.append(accumulator.append_encoded(queue, data, count, now))
            self._sender.send_now(now)
            if queue.queue:
                self._sender.wake()
            while transactions is None and len(queue.queue) >= COLUMNAR_BATCHES_AHEAD and queue.in_flight:
                await self._progress()
        return batches

    async def flush(self, timeout_ms: float | None = None) -> None:
        """Send all queued records without lingering, and wait until all are acknowledged or have failed."""
        self._ensure_running()
        async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000.0):
            for state in list(self._topics.states.values()):
                if state.columns_turn.locked():
                    async with state.columns_turn:  # wait until the whole table is queued
                        pass
            await self._flush_queued()

    async def _flush_queued(self) -> None:
        open_batches = [b for q in self._accumulator.queues.values() for b in (*q.in_flight, *q.queue)]
        if not open_batches:
            return
        left = len(open_batches)
        done = asyncio.get_running_loop().create_future()

        def count_down() -> None:
            nonlocal left
            left -= 1
            if not left and not done.done():
                done.set_result(None)

        self._sender.flushing += 1
        self._sender.wake()
        try:
            for batch in open_batches:
                batch.watch(count_down)
            await done
        finally:
            self._sender.flushing -= 1

    async def partitions_for(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic."""
        view = await self.cluster.topic(topic, allow_auto_create=True)
        return [partition.topic_partition for partition in view.partitions]

    async def close(self, timeout_ms: float | None = None) -> None:
        """Flush, then close. Records that are not acknowledged within `timeout_ms` fail."""
        if self._closed:
            return
        try:
            if self._runner is not None and not self._runner.done():
                await self.flush(timeout_ms)
        except TimeoutError:
            pass  # the time of the caller is over; the remaining records fail below
        finally:
            self._closed = True
            self._accumulator.abandon(ClientClosedError("This producer"))
            self._on_progress()
            if self._runner is not None:
                self._sender.stop()
                await self._runner
            if self._owns_cluster:
                await self.cluster.close()

    # -- pieces ----------------------------------------------------------------------------------------------------

    def _ensure_running(self) -> asyncio.AbstractEventLoop:
        if self._runner is None:
            self._loop = asyncio.get_running_loop()
            # the producer owns this task: close() stops the task, awaits it, and raises its error
            self._runner = self._loop.create_task(self._sender.run(), name="barnabas-producer-sender")
        assert self._loop is not None
        return self._loop

    async def _wait_for_room(self, deadline: float) -> None:
        self._ensure_running()
        try:
            async with asyncio.timeout_at(deadline):
                await self._progress()
        except TimeoutError:
            raise BufferFullError(
                f"buffer.memory ({self._accumulator.buffer_memory} bytes) stayed full for max.block.ms"
                f" ({self._max_block_ms}): records are sent faster than the brokers take them. Slow down, raise"
                " buffer.memory, or look at the brokers."
            ) from None

    async def _progress(self) -> None:
        """Wait until more batches have been settled."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting_for_progress.append(waiter)
        await waiter

    def _on_progress(self) -> None:
        self._topics.on_progress()
        waiting, self._waiting_for_progress = self._waiting_for_progress, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    def _intercept(self, record: ProducerRecord) -> tuple[str, Any, Any, int | None, int | None, Headers]:
        for interceptor in self._interceptors:
            record = interceptor.on_send(record)
        return record.topic, record.value, record.key, record.partition, record.timestamp, record.headers

    def _watch(self, place: RecordPlace, on_delivery: DeliveryCallback | None) -> None:
        def settled() -> None:
            error = place.home()[0].error
            metadata = None if error is not None else place.metadata()
            for interceptor in self._interceptors:
                notify(interceptor.on_acknowledgement, metadata, error)
            if on_delivery is not None:
                notify(on_delivery, metadata, error)

        place.batch.watch(settled)
