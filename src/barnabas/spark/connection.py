"""Shell: the blocking interface of one process to one cluster, on top of the asyncio client.

Spark calls readers and writers from synchronous code, in several processes: a long-lived one on the driver for each
streaming query, and forked workers that are reused for later tasks. `connect` keeps one client per process and cluster,
with an event loop in a thread of its own. Connections and metadata therefore survive from one micro-batch to the next,
and the client fetches while Spark processes earlier batches.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import threading
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, TypeVar, cast

from barnabas.client.admin import AsyncAdmin
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.config import CLUSTER_CONFIGS, CONSUMER_CONFIGS, resolve_config
from barnabas.client.fetch_sizes import ASSUMED_BYTES_PER_OFFSET, FetchSizes
from barnabas.client.fetching import ConsumerFetchConfig
from barnabas.client.offsets import commit_group_offsets, list_offsets, offsets_at
from barnabas.client.options import ClusterConfig
from barnabas.client.partition_reader import OffsetRange, PartitionReader
from barnabas.client.values import EARLIEST, LATEST, FetchedBatches, IsolationLevel, OffsetAndMetadata
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import NO_TOPIC_ID, TopicPartition, uuid_from_text, uuid_to_text
from barnabas.spark.errors import SparkSourceError
from barnabas.spark.options import DEFAULT_ISOLATION
from barnabas.spark.source.leader_epochs import epoch_ends
from barnabas.spark.source.planner import LogOffsets, asked_epochs, diverged_at
from barnabas.spark.source.positions import (
    Boundary,
    Offsets,
    Position,
    SourceSubscription,
    boundary_queries,
    resolve_boundary,
)

logger = logging.getLogger("barnabas.spark")

T = TypeVar("T")

TASK_FETCH_BYTES = 8 * 1024 * 1024
"""The maximum number of bytes of one partition in one fetch of a task, unless `kafka.max.partition.fetch.bytes`
is set.
"""

SAMPLES_AT_ONCE_MAX = 100
"""The largest number of partitions of which samples are fetched for one micro-batch."""
SAMPLE_TIMEOUT_MS = 10_000
SAMPLE_OFFSETS = 1_000
"""The number of offsets of a sample."""

REACH_TIMEOUT_MS = 5_000
"""How long the driver tries to connect to a cluster that has not answered this process yet. A client whose cluster has
answered before retries for `default.api.timeout.ms` (a minute), because its broker may only be restarting.
"""

CLIENTS_MAX = 16
"""The maximum number of clients in a process; the least recently used client is closed first."""


_NO_SUCH_TOPIC = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class BlockingClient:
    """An event loop in a thread of its own, and methods that run coroutines on the loop."""

    def __init__(self) -> None:
        self._loop = _new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="barnabas-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the client's loop and wait for its result. An interrupt while waiting cancels `work`."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:  # KeyboardInterrupt, too: the work must not go on; does nothing if it has ended
            future.cancel()
            raise

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start `work` on the client's loop, and return without waiting."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def disconnect(self) -> None:
        """Close what the client has opened; called on its loop."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the connections and end the thread."""
        self.run(self.disconnect())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class LogClient(BlockingClient):
    """The client that source readers use."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = resolve_config(CONSUMER_CONFIGS, {"isolation.level": DEFAULT_ISOLATION, **settings}, {})
        self.isolation = IsolationLevel.parse(str(self.settings["isolation.level"]))
        self._fetch_limits = _fetch_config(settings, self.settings, self.isolation)
        self._sizes = FetchSizes(self._fetch_limits.partition_max_bytes)
        self._samples: dict[TopicPartition, float] = {}
        super().__init__()
        self.cluster: Cluster = self.run(self._open())

    async def _open(self) -> Cluster:
        return Cluster(ClusterConfig.from_settings(self.settings))

    async def disconnect(self) -> None:
        await self.cluster.close()

    # -- planning ----------------------------------------------------------------------------------------------------

    def reach(self) -> None:
        """See `reach_cluster`."""
        self.run(reach_cluster(self.cluster))

    def partitions(self, subscription: SourceSubscription) -> list[TopicPartition]:
        """The partitions of the subscription, from fresh metadata. Topics that do not exist have no partitions."""
        return self.run(self._partitions(subscription))

    async def _partitions(self, subscription: SourceSubscription) -> list[TopicPartition]:
        if subscription.pattern is not None:
            pattern = re.compile(subscription.pattern)
            topics = await self.cluster.all_topics()
            views = [view for name, view in topics.items() if pattern.fullmatch(name) and not view.is_internal]
        else:
            names = sorted(set(subscription.topics) | {tp.topic for tp in subscription.assigned})
            await self.cluster.refresh(names)
            views = list((await self.cluster.topics(names)).values())
        found = {partition.topic_partition for view in views for partition in view.partitions}
        wrong = [view for view in views if view.error not in _NO_SUCH_TOPIC]
        if wrong:
            raise KafkaError(wrong[0].error, f"cannot read the topic {wrong[0].name}: {wrong[0].error.message}")
        return sorted(found.intersection(subscription.assigned) if subscription.assigned else found)

    def list_offsets(self, queries: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Send ListOffsets with the timestamp (or -1 or -2) that `queries` has for each partition, and return the
        offsets. An offset of -1 means that all records of the partition are older than the timestamp. Raises KafkaError
        if the request fails for a partition.
        """
        return self.run(offsets_at(self.cluster, queries, isolation=self.isolation))

    def log_view(self, partitions: Iterable[TopicPartition]) -> LogOffsets:
        """The earliest and the latest offset of each partition; the latest depends on the isolation level."""
        return self.run(self._log_view(list(partitions)))

    async def _log_view(self, partitions: list[TopicPartition]) -> LogOffsets:
        ids = await self._topic_ids({tp.topic for tp in partitions})  # before the offsets: a task notices another one
        earliest, latest = await asyncio.gather(
            offsets_at(self.cluster, dict.fromkeys(partitions, EARLIEST), isolation=self.isolation),
            list_offsets(self.cluster, dict.fromkeys(partitions, LATEST), isolation=self.isolation),
        )
        found = {tp: answer for tp, answer in latest.items() if not isinstance(answer, KafkaError)}
        if wrong := [answer for answer in latest.values() if isinstance(answer, KafkaError)]:
            raise wrong[0]
        epochs = {tp: answer.leader_epoch for tp, answer in found.items() if answer.leader_epoch >= 0}
        return LogOffsets(earliest, {tp: answer.offset for tp, answer in found.items()}, ids, epochs)

    def diverged(self, position: Position, epochs: Offsets, ids: Mapping[str, str]) -> dict[TopicPartition, int]:
        """The partitions that have other records than those up to the position, and from which offset on. Leaders are
        asked only where `epochs` shows that there were elections since the position was planned. Raises KafkaError; but
        a partition whose leader does not tell (Kafka before 2.1, or a missing privilege) is left out."""
        asked = asked_epochs(position, epochs, ids)
        if not asked:
            return {}
        ends = {}
        for tp, end in self.run(epoch_ends(self.cluster, asked)).items():
            if not isinstance(end, KafkaError):
                ends[tp] = end[1]
            elif end.retriable:
                raise end
        return diverged_at(position, ends)

    def topic_ids(self, topics: Iterable[str], *, fresh: bool = False) -> dict[str, str]:
        """The ids of topics, as text, from the metadata that the client has, or, if `fresh`, that it requests now.
        Topics that do not exist, and those of brokers without topic ids, are left out."""
        return self.run(self._topic_ids(set(topics), fresh=fresh))

    async def _topic_ids(self, topics: Collection[str], *, fresh: bool = False) -> dict[str, str]:
        names = sorted(topics)
        if fresh:
            await self.cluster.refresh(names)
        views = await self.cluster.topics(names)
        return {name: uuid_to_text(view.topic_id) for name, view in views.items() if view.topic_id != NO_TOPIC_ID}

    def with_open_transactions(self, log: LogOffsets, positions: Offsets) -> LogOffsets:
        """`log`, in which the latest offset of a partition is raised to its position, at most to the high watermark.

        A position is above the last stable offset if a user has given it, or if a query with read_uncommitted has
        reached it, while a transaction is open. Without this, it would look like the position in a truncated log.
        """
        ahead = [tp for tp, latest in log.latest.items() if positions.get(tp, 0) > latest]
        ends = self._high_watermarks(log, ahead)
        latest = {**log.latest, **{tp: min(positions[tp], end) for tp, end in ends.items()}}
        return replace(log, latest=latest)

    def _high_watermarks(self, log: LogOffsets, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The ends of partitions' logs, including transactions that are open. `log` has them without a request, unless
        the client reads with read_committed.
        """
        if not partitions or self.isolation is IsolationLevel.READ_UNCOMMITTED:
            return {tp: log.latest[tp] for tp in partitions}
        return self.run(offsets_at(self.cluster, dict.fromkeys(partitions, LATEST)))

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The log start offset of each partition; deleted partitions are left out."""
        answers = self.run(list_offsets(self.cluster, dict.fromkeys(partitions, EARLIEST), isolation=self.isolation))
        found: dict[TopicPartition, int] = {}
        for tp, answer in answers.items():
            if not isinstance(answer, KafkaError):
                found[tp] = answer.offset
            elif answer.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise answer
        return found

    def resolve(
        self, boundary: Boundary, partitions: list[TopicPartition], log: LogOffsets, *, starting: bool
    ) -> dict[TopicPartition, int]:
        """The offset of each partition at `boundary`, which is a starting position with `starting`, else an ending
        position. `log` has the earliest and latest offsets, so that only timestamps need a request.
        """
        queries = boundary_queries(boundary, partitions)
        known = {LATEST: log.latest, EARLIEST: log.earliest}
        open_queries = {tp: at for tp, at in queries.items() if at not in known}
        answers = self.list_offsets(open_queries) if open_queries else {}
        if starting and self.isolation is IsolationLevel.READ_COMMITTED:
            answers |= self._in_open_transactions({tp: open_queries[tp] for tp, at in answers.items() if at < 0}, log)
        answers |= {tp: known[at][tp] for tp, at in queries.items() if at in known}
        return resolve_boundary(boundary, answers, partitions, log.latest, starting=starting)

    def _in_open_transactions(
        self, queries: Mapping[TopicPartition, int], log: LogOffsets
    ) -> dict[TopicPartition, int]:
        """The last stable offset of each partition whose first record for its timestamp is not before that offset."""
        if not queries:
            return {}
        answers = self.run(offsets_at(self.cluster, queries))
        return {tp: log.latest[tp] for tp, offset in answers.items() if offset >= 0}

    def bytes_per_offset(self, log: LogOffsets) -> dict[TopicPartition, float]:
        """The average number of bytes per offset in each partition's log, from the sizes that DescribeLogDirs returns.

        Partitions whose sizes are not known, for example because the client may not describe the cluster, are measured
        by a sample: one fetch of the first records. A partition without a sample counts ASSUMED_BYTES_PER_OFFSET.
        """
        problem: object = "the response has no size"
        try:
            brokers = self.run(AsyncAdmin(cluster=self.cluster).describe_log_dirs())
        except KafkaError as error:
            brokers, problem = {}, error
        sizes: dict[TopicPartition, int] = {}
        for directories in brokers.values():
            for directory in directories.values():
                if isinstance(directory, KafkaError):
                    problem = directory
                    continue
                for tp, replica in directory.replicas.items():
                    if tp in log.latest and not replica.is_future:
                        sizes[tp] = max(sizes.get(tp, 0), replica.size_bytes)
        ends = self._high_watermarks(log, sizes)  # the size of a log includes open transactions
        known = {tp: size / max(1, ends[tp] - log.earliest[tp]) for tp, size in sizes.items()}
        unknown = [tp for tp in log.latest if tp not in known and log.latest[tp] > log.earliest[tp]]
        return known | self._sampled(unknown, log, problem) if unknown else known

    def _sampled(
        self, partitions: list[TopicPartition], log: LogOffsets, problem: object
    ) -> dict[TopicPartition, float]:
        """The bytes per offset of a sample of each partition, taken once and kept. Warns once why it is needed."""
        if not self._samples:
            logger.warning(
                "the sizes of partitions cannot be read with DescribeLogDirs (%s), so that maxBytesPerTrigger and"
                " maxBytesPerPartition are estimated from samples; allow DESCRIBE on the cluster for exact sizes",
                problem,
            )
        fresh = [tp for tp in partitions if tp not in self._samples][:SAMPLES_AT_ONCE_MAX]
        for tp in fresh:
            self._samples[tp] = self._sample(tp, log.earliest[tp], log.latest[tp])
        return {tp: self._samples.get(tp, ASSUMED_BYTES_PER_OFFSET) for tp in partitions}

    def _sample(self, tp: TopicPartition, start: int, end: int) -> float:
        """The bytes per offset of the first fetch of a range."""
        try:
            sampled = OffsetRange(tp, start, min(end, start + SAMPLE_OFFSETS))
            batches = self.fetch(sampled, stall_timeout_ms=SAMPLE_TIMEOUT_MS)
            first = next(batches, None)
            batches.close()  # type: ignore[attr-defined]  # a generator
        except KafkaError as error:
            logger.info("no sample of %s could be fetched: %s", tp, error)
            return ASSUMED_BYTES_PER_OFFSET
        if first is None or first.end <= first.position:
            return ASSUMED_BYTES_PER_OFFSET
        return max(1.0, len(first.buffer) / (first.end - first.position))

    # -- reading -----------------------------------------------------------------------------------------------------

    def fetch(self, wanted: OffsetRange, *, stall_timeout_ms: float) -> Iterator[FetchedBatches]:
        """The record batches of a range, as stored in the log. The next fetch runs while the caller processes a
        batch.
        """
        reader = PartitionReader(self.cluster, self._fetch_limits, stall_timeout_ms=stall_timeout_ms, sizes=self._sizes)
        ahead = _ReadAhead(reader.batches([wanted]))
        try:
            while (arrived := self.run(ahead.next())) is not None:
                yield arrived
        finally:
            # Spark closes the iterator early if it needs no more records (a limit), or if the query is stopped.
            self.run(ahead.close())

    # -- progress ----------------------------------------------------------------------------------------------------

    def commit(self, group: str, position: Position) -> None:
        """Commit a position as offsets of a consumer group, so that tools can show it. Raises KafkaError."""
        ids = {topic: uuid_from_text(text) for topic, text in position.ids.items()}
        offsets = {
            tp: OffsetAndMetadata(
                offset,
                f"lost={position.lost[tp]}" if tp in position.lost else "",
                topic_id=ids.get(tp.topic, NO_TOPIC_ID),
            )
            for tp, offset in position.offsets.items()
        }
        refused = self.run(commit_group_offsets(self.cluster, group, offsets))
        for error in refused.values():
            if error is not None:
                raise error


C = TypeVar("C", bound=BlockingClient)

_clients: dict[tuple[object, ...], BlockingClient] = {}
_owner = os.getpid()
_lock = threading.Lock()


def connect(settings: Mapping[str, str]) -> LogClient:
    """This process's client for these settings; created at the first call, and kept."""
    return shared(LogClient, settings)


def shared(kind: Callable[[Mapping[str, str]], C], settings: Mapping[str, str]) -> C:
    """This process's client of class `kind` for these settings."""
    global _owner
    key = (kind, *sorted(settings.items()))
    with _lock:
        if _owner != os.getpid():  # this process was forked: the parent's thread and sockets cannot be used
            _clients.clear()
            _owner = os.getpid()
        client = _clients.pop(key, None)
        if client is None:
            if len(_clients) >= CLIENTS_MAX:
                _clients.pop(next(iter(_clients))).close()
            client = kind(settings)
        _clients[key] = client  # moves the key to the end of the dict, the most recently used position
        return cast("C", client)


def discard(kind: Callable[[Mapping[str, str]], C], settings: Mapping[str, str]) -> None:
    """Remove a client after a fatal error, so that the next task creates a new one."""
    with _lock:
        client = _clients.pop((kind, *sorted(settings.items())), None)
    if client is not None:
        client.close()


async def reach_cluster(cluster: Cluster) -> None:
    """Raise BootstrapError if the cluster does not answer within REACH_TIMEOUT_MS, and has not answered before."""
    if not cluster.metadata.brokers:
        await cluster.refresh(deadline=cluster.deadline(REACH_TIMEOUT_MS), quiet=True)


def require_cluster(settings: Mapping[str, str]) -> None:
    """Raise BootstrapError soon if the cluster of a producer with these settings does not answer."""
    connect({name: value for name, value in settings.items() if name in CLUSTER_CONFIGS.keys}).reach()


def require_partitions(
    client: LogClient, subscription: SourceSubscription, *, waits: bool = False
) -> list[TopicPartition]:
    """The partitions of the subscription. Raises SparkSourceError if a named topic or partition does not exist, unless
    the query `waits` for it, and BootstrapError soon if the cluster does not answer.
    """
    client.reach()
    found = client.partitions(subscription)
    missing = sorted(set(subscription.topics) - {tp.topic for tp in found})
    unknown = [str(tp) for tp in subscription.assigned if tp not in set(found)]
    if (missing or unknown) and not waits:
        what = f"topics {', '.join(missing)}" if missing else f"partitions {', '.join(unknown)}"
        raise SparkSourceError(
            f"cannot read the {what}: they do not exist. Create them, correct the option, or set"
            " missingTopics=wait to read them once they exist"
        )
    return found


def _fetch_config(
    given: Mapping[str, str], settings: Mapping[str, Any], isolation: IsolationLevel
) -> ConsumerFetchConfig:
    """The fetch limits in `settings`, the client settings including defaults. If `given`, the settings of the user,
    does not have `max.partition.fetch.bytes`, the limit for one partition is TASK_FETCH_BYTES, which is higher than a
    consumer's default, because a task reads megabytes.
    """
    asked = settings["max.partition.fetch.bytes"]
    return ConsumerFetchConfig(
        max_bytes=settings["fetch.max.bytes"],
        partition_max_bytes=asked if "max.partition.fetch.bytes" in given else TASK_FETCH_BYTES,
        min_bytes=settings["fetch.min.bytes"],
        max_wait_ms=settings["fetch.max.wait.ms"],
        isolation=isolation,
        rack=settings["client.rack"],
    )


class _ReadAhead:
    """Iterates over an async generator. While the caller processes an item, the generator already produces the next
    one.
    """

    def __init__(self, batches: AsyncGenerator[FetchedBatches, None]) -> None:
        self._batches = batches
        self._step: asyncio.Future[FetchedBatches | None] | None = None

    async def next(self) -> FetchedBatches | None:
        arrived = await (self._step or self._begin())
        self._step = self._begin() if arrived is not None else None
        return arrived

    def _begin(self) -> asyncio.Future[FetchedBatches | None]:
        return asyncio.ensure_future(anext(self._batches, None))

    async def close(self) -> None:
        if self._step is not None:
            self._step.cancel()
            await asyncio.gather(self._step, return_exceptions=True)
        await self._batches.aclose()


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
