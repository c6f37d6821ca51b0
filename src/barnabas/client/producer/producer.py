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
import logging
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self, Unpack

from barnabas.client.arguments import checks_arguments
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.config import PRODUCER_CONFIGS, resolve_config
from barnabas.client.errors import (
    BufferFullError,
    ClientClosedError,
    DeliveryFailedError,
)
from barnabas.client.interceptors import DeliveryCallback as DeliveryCallback
from barnabas.client.interceptors import ProducerInterceptor as ProducerInterceptor
from barnabas.client.interceptors import ProducerRecord as ProducerRecord
from barnabas.client.interceptors import notify
from barnabas.client.options import ClusterConfig, Settings
from barnabas.client.producer.accumulator import Accumulator
from barnabas.client.producer.checks import check_topic, no_such_partition, too_large
from barnabas.client.producer.column_calls import ColumnCalls
from barnabas.client.producer.delivery import RecordFuture, RecordPlace
from barnabas.client.producer.finish_calls import FinishCalls
from barnabas.client.producer.intake import RecordIntake
from barnabas.client.producer.partitioner import KeyHasher, Partitioner
from barnabas.client.producer.producing import sender_config
from barnabas.client.producer.sender import Sender
from barnabas.client.producer.topics import ProducerTopics
from barnabas.client.producer.transactions import Transactions
from barnabas.client.resumed import Closing
from barnabas.client.serialization import AnySerializer, NotReadyError, as_encode
from barnabas.client.typed_settings import ProducerSettings
from barnabas.client.values import Headers, RecordMetadata
from barnabas.core.buffers import Buffer
from barnabas.core.clock import Clock, SystemClock
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.build import RECORD_OVERHEAD_MAX
from barnabas.protocol.records.compression import producer_codec

log = logging.getLogger("barnabas.client")


@checks_arguments(without=("send", "send_and_wait", "try_send", "try_place", "place", "learn"))
class AsyncProducer(FinishCalls, ColumnCalls):
    """A producer. Its configs are those of `config.PRODUCER_CONFIGS`, by Kafka's names in a mapping, or as keywords."""

    _closed = True  # until __init__ has succeeded

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
        **settings: Unpack[ProducerSettings],
    ) -> None:
        if cluster is not None:
            settings.setdefault("bootstrap_servers", ",".join(f"{h}:{p}" for h, p in cluster.options.bootstrap_servers))
        resolved: Settings = resolve_config(PRODUCER_CONFIGS, config, settings)
        options = sender_config(resolved, config or {}, settings)
        self._owns_cluster = cluster is None
        self.cluster = cluster or Cluster(ClusterConfig.from_settings(resolved))
        self._now_ms = (clock or SystemClock()).now_ms
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
            keep_failures=options.transactional_id is None,
        )
        self._sender = Sender(self.cluster, self._accumulator, options)
        self._topics = ProducerTopics(
            self.cluster,
            self._accumulator,
            self._sender.links.unavailable,
            adaptive=resolved["partitioner.adaptive.partitioning.enable"],
        )
        self._sender.on_progress = self._on_progress
        self._sender.on_fatal = self._on_fatal
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
        self.intake = RecordIntake(
            self.cluster,
            self._accumulator,
            self._transactions,
            key=as_encode(key_serializer, "key"),
            value=as_encode(value_serializer, "value"),
            interceptors=self._interceptors,
            record_bytes_max=self._record_bytes_max,
            max_block_ms=self._max_block_ms,
        )
        self._hasher = KeyHasher()
        self._waiting_for_progress: list[asyncio.Future[None]] = []
        self._runner: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self.needs_check = self._transactions is not None
        """Whether `check_usable` may raise. False for a producer that is open and has not failed."""
        self._closing = Closing("barnabas-producer-close")

    async def __aenter__(self) -> Self:
        self._ensure_running()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except DeliveryFailedError as lost:
            if error is None:
                raise
            log.error("closing a producer after %r: %s", error, lost)

    def __del__(self) -> None:
        if not self._closed and self._owns_cluster:
            lost = self.unacknowledged
            if (failures := self._accumulator.failures) is not None and (failed := failures.take()) is not None:
                lost += failed.count
            self.cluster.drop(self, f" {lost} records were not acknowledged." if lost else "")

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
        if self._interceptors:
            topic, value, key, partition, timestamp, headers = self.intake.intercept(
                topic, value, key, partition, timestamp, headers
            )
        future = RecordFuture()
        try:
            if not (self._plain and type(value) is bytes and (key is None or type(key) is bytes)):
                key, value = await self.intake.encode(topic, headers, key, value)
            if not self.try_place(future, topic, value, key, partition, timestamp, headers, on_delivery):
                await self.place(future, topic, value, key, partition, timestamp, headers, on_delivery)
        except KafkaError as error:
            self.intake.note_refused(error)
            raise
        return future

    async def place(self, place: RecordPlace, topic: str, *arguments: Any, deadline: float | None = None) -> None:
        """Call `try_place` until it succeeds, and wait in between for what is missing: metadata or memory."""
        limit = self.cluster.deadline(self._max_block_ms) if deadline is None else deadline
        placed = False
        while not placed:
            check_topic(topic)
            if not self._topics.knows(topic):
                await self._topics.learn(topic, limit)
            else:
                await self._wait_for_room(limit)
            placed = self.try_place(place, topic, *arguments)

    async def learn(self, topic: str) -> None:
        """Fetch the metadata of a topic. Raises KafkaError when that fails for `max.block.ms`."""
        check_topic(topic)
        deadline = self.cluster.deadline(self._max_block_ms)
        while not self._topics.knows(topic):
            if self._closed:
                raise ClientClosedError("This producer")
            await self._topics.learn(topic, deadline)

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
        if self._interceptors:
            topic, value, key, partition, timestamp, headers = self.intake.intercept(
                topic, value, key, partition, timestamp, headers
            )
        try:
            key, value = self.intake.encode_now(topic, headers, key, value)
        except NotReadyError:
            return None
        future = RecordFuture()
        placed = self.try_place(future, topic, value, key, partition, timestamp, headers, on_delivery)
        return future if placed else None

    def try_place(
        self,
        place: RecordPlace,
        topic: str,
        value: Buffer | None,
        key: Buffer | None,
        partition: int | None,
        timestamp: int | None,
        headers: Headers,
        on_delivery: DeliveryCallback | None,
    ) -> bool:
        """Like `try_send`, for a serialized record whose place the caller has. Returns False when metadata or memory is
        missing."""
        if self.needs_check:
            self.check_usable()
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
        accumulator = self._accumulator
        if headers or value is None or timestamp is not None:
            size = self.intake.check_parts(topic, key, value, timestamp, headers)
        else:
            size = RECORD_OVERHEAD_MAX + len(value) + (len(key) if key is not None else 0)
        if size > self._record_bytes_max:
            raise too_large(topic, size, self._record_bytes_max)
        if accumulator.used_bytes + size > accumulator.buffer_memory and accumulator.unfinished:
            self._sender.wake()
            return False
        count = state.count
        sticky = False
        if partition is None:
            if self._partitioner is not None:
                partition = self._partitioner(topic, key, value, count)
            elif key is not None and not self._ignore_keys:
                partition = self._hasher.partition(key, count)
            else:
                sticky = True
                partition = state.sticky.choose(count)
        try:
            queue = state.queues[partition] if partition >= 0 else None
        except (TypeError, IndexError):
            queue = None
        if queue is None:
            raise no_such_partition(topic, partition, count)
        was_empty = not queue.queue
        when = self._now_ms() if timestamp is None else timestamp
        state.used_at = now
        full = accumulator.append(place, queue, key, value, when, headers, now)
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

    def check_usable(self) -> None:
        """Raise the error with which `send` fails whatever the record is."""
        if self._closed:
            raise ClientClosedError("This producer")
        if self._sender.fatal is not None:
            raise self._sender.fatal
        if self._transactions is not None:
            self._transactions.check_can_send()

    async def partitions_for(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic."""
        view = await self.cluster.topic(topic, allow_auto_create=True)
        return [partition.topic_partition for partition in view.partitions]

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosedError("This producer")

    # -- pieces ----------------------------------------------------------------------------------------------------

    def _ensure_running(self) -> asyncio.AbstractEventLoop:
        if self._runner is None:
            self._loop = asyncio.get_running_loop()
            # the producer owns this task: close() stops the task, awaits it, and raises its error
            self._runner = self._loop.create_task(self._sender.run(), name="barnabas-producer-sender")
            self._runner.add_done_callback(self._on_sender_done)
        assert self._loop is not None
        return self._loop

    def _on_fatal(self) -> None:
        self.needs_check = True

    def _on_sender_done(self, runner: asyncio.Task[None]) -> None:
        """Fail all records if the sender has ended by itself, so that no caller waits for them for ever."""
        if self._closed and (runner.cancelled() or runner.exception() is None):
            return
        cause = "it was cancelled" if runner.cancelled() else repr(runner.exception())
        error = KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"The task that sends this producer's records has ended: {cause}"
        )
        self._sender.fatal = self._sender.fatal or error
        self.needs_check = True
        self._accumulator.abandon(error)
        self._on_progress()

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

    def _watch(self, place: RecordPlace, on_delivery: DeliveryCallback | None) -> None:
        def settled() -> None:
            error = place.home()[0].error if on_delivery is None else place.error()
            metadata = None if error is not None else place.metadata()
            for interceptor in self._interceptors:
                notify(interceptor.on_acknowledgement, metadata, error)
            if on_delivery is not None:
                notify(on_delivery, metadata, error)

        place.batch.watch(settled)
