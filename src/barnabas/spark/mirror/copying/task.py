"""Shell: runs in a Spark worker: copies the ranges of one task from the source cluster to the target cluster.

The task fetches from the leaders of the source partitions and writes to those of the target partitions itself, so that
no record passes through Spark's JVM. In exactly-once mode all records of an attempt are in one transaction, which stays
open for the driver (docs/adr/0016-exactly-once-sink.md).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import aclosing
from itertools import chain
from struct import Struct
from typing import Any, Final

from pyspark import TaskContext

from barnabas.client.cluster.cluster import Cluster
from barnabas.client.config import CONSUMER_CONFIGS, PRODUCER_CONFIGS, resolve_config
from barnabas.client.errors import OffsetOutOfRangeError
from barnabas.client.fetch_sizes import FetchSizes
from barnabas.client.fetching import ConsumerFetchConfig
from barnabas.client.options import ClusterConfig
from barnabas.client.partition_reader import OffsetRange, PartitionReader
from barnabas.client.producer.producer import AsyncProducer
from barnabas.client.values import FetchedBatches, HandedOverTransaction, IsolationLevel, WrittenBatch
from barnabas.core.buffers import Buffer
from barnabas.core.errors import BarnabasError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.batch import HEADER_SIZE
from barnabas.spark.connection import TASK_FETCH_BYTES, BlockingClient, discard, shared
from barnabas.spark.heap import freeze_heap
from barnabas.spark.mirror.copying.batches import CopiedBatch, FetchedPart, copy_batches
from barnabas.spark.mirror.copying.runs import RunCollector, Upstream
from barnabas.spark.mirror.copying.values import CopyTask, PartitionCopied, RangeToCopy, TaskResult
from barnabas.spark.reporting import readable_errors

SENDS_MAX: Final = 8
"""The fetches of a task whose records are written at the same time."""
TRANSACTION_TIMEOUT_MS: Final = 120_000
"""transaction.timeout.ms, unless the settings of the target cluster have it. The records of a transaction that timed
out are copied again, so a time-out loses nothing, and it must not hold back the readers of the target for long."""
ABORT_TIMEOUT_S: Final = 10.0

_MAX_TIMESTAMP: Final = Struct(">q")
_MAX_TIMESTAMP_AT: Final = 35
_SOURCE, _TARGET = "source.", "target."


@readable_errors
def copy_tasks(tasks: Iterable[CopyTask]) -> Iterator[TaskResult]:
    """Run each task; Spark calls this in a worker. Raises BarnabasError."""
    freeze_heap()
    context = TaskContext.get()
    attempt = 0 if context is None else context.attemptNumber()
    for task in tasks:
        yield run_task(task, attempt)


def run_task(task: CopyTask, attempt: int) -> TaskResult:
    """Copy the ranges of the task with this process's connections."""
    job = task.job
    settings = {_SOURCE + name: text for name, text in job.source_settings.items()}
    settings |= {_TARGET + name: text for name, text in job.target_settings.items()}
    client = shared(CopyClient, settings)
    try:
        return client.run(client.copy(task, attempt))
    except BarnabasError:
        discard(CopyClient, settings)
        raise


class CopyClient(BlockingClient):
    """The connections of a worker process to both clusters, kept from task to task."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__()
        self._target_settings = _with_prefix(settings, _TARGET)
        given = _with_prefix(settings, _SOURCE)
        consumer: Mapping[str, Any] = resolve_config(CONSUMER_CONFIGS, given, {})
        self.isolation = IsolationLevel.parse(str(consumer["isolation.level"]))
        self.check_crcs = bool(consumer["check.crcs"])
        self.limits = ConsumerFetchConfig(
            max_bytes=consumer["fetch.max.bytes"],
            partition_max_bytes=consumer["max.partition.fetch.bytes"]
            if "max.partition.fetch.bytes" in given
            else TASK_FETCH_BYTES,
            min_bytes=consumer["fetch.min.bytes"],
            max_wait_ms=consumer["fetch.max.wait.ms"],
            isolation=self.isolation,
            rack=consumer["client.rack"],
        )
        self.sizes = FetchSizes(self.limits.partition_max_bytes)
        producer = resolve_config(PRODUCER_CONFIGS, self._target_settings, {})
        self.source, self.target = self.run(
            self._open(ClusterConfig.from_settings(consumer), ClusterConfig.from_settings(producer))
        )
        self._producer: AsyncProducer | None = None
        """The producer without transactions."""

    async def _open(self, source: ClusterConfig, target: ClusterConfig) -> tuple[Cluster, Cluster]:
        return Cluster(source), Cluster(target)

    async def disconnect(self) -> None:
        if self._producer is not None:
            await self._producer.shut(timeout_ms=0)
        await self.source.close()
        await self.target.close()

    async def copy(self, task: CopyTask, attempt: int) -> TaskResult:
        """One attempt of a task. Raises KafkaError."""
        copy = _TaskCopy(self, task, attempt)
        try:
            return await copy.run()
        except BaseException as error:  # cancellation, too: an open transaction holds back readers of the target
            await copy.abort()
            if isinstance(error, BaseExceptionGroup):
                raise _first(error) from None
            raise

    async def learn(self, target: TopicPartition) -> None:
        """Fetch the metadata of a target topic, again if it has grown since. Raises KafkaError."""
        view = await self.target.topic(target.topic)
        if target.partition >= view.partition_count:
            await self.target.refresh([target.topic])

    async def producer(self) -> AsyncProducer:
        """The producer without transactions."""
        if self._producer is None:
            self._producer = AsyncProducer(self._target_settings, cluster=self.target)
        return self._producer

    async def begin(self, transactional_id: str) -> AsyncProducer:
        """A producer of its own with an open transaction."""
        settings: dict[str, object] = {
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            **self._target_settings,
            "transactional.id": transactional_id,
            "enable.idempotence": True,
            "acks": "all",
        }
        producer = AsyncProducer(settings, cluster=self.target)
        try:
            await producer.init_transactions()
        except BaseException:  # cancellation, too: the producer's task must end
            await producer.shut(timeout_ms=0)
            raise
        producer.begin_transaction()
        return producer


class _RangeCopy:
    """What was copied of one range."""

    def __init__(self, wanted: RangeToCopy) -> None:
        self.wanted = wanted
        self.position = wanted.start
        self.records = 0
        self.bytes = 0
        self.newest_timestamp_ms = -1
        self.out_of_range = False
        self.collector = RunCollector()

    def note(self, batch: CopiedBatch) -> None:
        self.records += batch.records
        self.bytes += len(batch.data) - HEADER_SIZE
        (newest,) = _MAX_TIMESTAMP.unpack_from(batch.data, _MAX_TIMESTAMP_AT)
        self.newest_timestamp_ms = max(self.newest_timestamp_ms, newest)

    def result(self) -> PartitionCopied:
        return PartitionCopied(
            self.wanted.partition,
            self.position,
            self.collector.runs(),
            self.records,
            self.bytes,
            self.newest_timestamp_ms,
            self.out_of_range,
        )


class _Sent:
    """The batches of one fetch on their way to the target."""

    def __init__(self, copying: _RangeCopy, batches: Iterable[CopiedBatch]) -> None:
        self.copying = copying
        self.upstream: list[Upstream] = []
        self.task: asyncio.Task[list[WrittenBatch]]
        self._batches = batches

    def encoded(self) -> Iterator[tuple[Buffer, int]]:
        for batch in self._batches:
            self.copying.note(batch)
            self.upstream += batch.upstream
            yield batch.data, batch.records


class _TaskCopy:
    """One attempt of one task."""

    def __init__(self, client: CopyClient, task: CopyTask, attempt: int) -> None:
        self._client = client
        self._task = task
        self._job = task.job
        self._attempt = attempt
        self._ranges = {wanted.partition: _RangeCopy(wanted) for wanted in task.ranges}
        self._producer: AsyncProducer | None = None
        self._sent: list[_Sent] = []

    async def run(self) -> TaskResult:
        async with asyncio.TaskGroup() as sends:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._job.duration_max_ms / 1000):
                    await self._fetch(sends)
        for sent in self._sent:
            sent.copying.collector.add(sent.upstream, sent.task.result())
        transaction = await self._hand_over()
        parts = tuple(copying.result() for copying in self._ranges.values())
        return TaskResult(self._task.index, self._attempt, parts, transaction)

    async def _fetch(self, sends: asyncio.TaskGroup) -> None:
        """Fetch, and start to write what was fetched, until all ranges are read or a limit is reached."""
        client = self._client
        reader = PartitionReader(
            client.source, client.limits, stall_timeout_ms=self._job.stall_timeout_ms, sizes=client.sizes
        )
        ranges = [OffsetRange(r.partition, r.start, r.end, r.topic_id) for r in self._task.ranges]
        fetched_bytes = 0
        async with aclosing(reader.batches(ranges)) as fetches:
            try:
                async for fetched in fetches:
                    fetched_bytes += len(fetched.buffer)
                    await self._write(fetched, sends)
                    if fetched_bytes >= self._job.bytes_max:
                        return
            except OffsetOutOfRangeError as error:
                self._ranges[error.partition].out_of_range = True  # the driver decides what that means
                return
        for copying in self._ranges.values():  # the end of a range may have been compacted away
            copying.position = max(copying.position, copying.wanted.end)

    async def _write(self, fetched: FetchedBatches, sends: asyncio.TaskGroup) -> None:
        """Start to write the records of a fetch. The position moves at once: an error fails the whole attempt."""
        copying = self._ranges[fetched.partition]
        committed = self._client.isolation is IsolationLevel.READ_COMMITTED
        part = FetchedPart(
            fetched.buffer, copying.position, fetched.aborted if committed else (), self._client.check_crcs
        )
        batches = copy_batches(part, self._job.codec, self._job.provenance)
        first = next(batches, None)
        if first is not None:
            producer = self._producer or await self._open()
            sent = _Sent(copying, chain((first,), batches))
            target = copying.wanted.target
            await self._client.learn(target)  # the producer knows the topic, so that its calls keep their order
            sent.task = sends.create_task(producer.send_batches(target.topic, target.partition, sent.encoded()))
            self._sent.append(sent)
        copying.position = fetched.end
        while (
            len(open_sends := [sent.task for sent in self._sent[-2 * SENDS_MAX :] if not sent.task.done()]) >= SENDS_MAX
        ):
            await asyncio.wait(open_sends, return_when=asyncio.FIRST_COMPLETED)

    async def _open(self) -> AsyncProducer:
        """The producer of this attempt, opened for its first records."""
        job = self._job
        if job.transactional:
            identity = job.name.transactional_id(job.run_id, self._task.batch_id, self._task.index, self._attempt)
            self._producer = await self._client.begin(identity)
        else:
            self._producer = await self._client.producer()
        return self._producer

    async def _hand_over(self) -> HandedOverTransaction | None:
        producer = self._producer
        if producer is None or not self._job.transactional:
            return None
        transaction = await producer.hand_over_transaction()
        self._producer = None
        await producer.shut(timeout_ms=0)
        return transaction

    async def abort(self) -> None:
        """Abort the transaction of a failed attempt; if that is not possible now, the driver does it later."""
        producer, self._producer = self._producer, None
        if producer is None or not self._job.transactional:
            return
        with contextlib.suppress(BarnabasError, TimeoutError):
            async with asyncio.timeout(ABORT_TIMEOUT_S):
                await producer.abort_transaction()
        await producer.shut(timeout_ms=0)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of a group that is no group."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _with_prefix(settings: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): text for name, text in settings.items() if name.startswith(prefix)}
