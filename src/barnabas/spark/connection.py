"""Shell: one process's connection to one cluster, blocking on the outside, asyncio within.

Spark calls readers and writers from plain synchronous code, in several processes: a long-lived one on the driver for
each streaming query, and forked workers that are used again for later tasks. `connect` gives each process one client
per cluster, on an event loop in a thread of its own; so connections and metadata survive across micro-batches, and
fetches go on while Spark works on what has arrived.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar, cast

from barnabas.client.admin import AsyncAdmin
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.config import CONSUMER_CONFIGS, resolve_config
from barnabas.client.fetching import FetchLimits
from barnabas.client.offsets import commit_group_offsets, list_offsets
from barnabas.client.options import ClusterOptions
from barnabas.client.partition_reader import OffsetRange, PartitionReader
from barnabas.client.values import EARLIEST, LATEST, FetchedBatches, IsolationLevel, OffsetAndMetadata
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.spark.errors import SparkSourceError
from barnabas.spark.planner import LogOffsets
from barnabas.spark.positions import Boundary, Position, SourceSubscription, boundary_queries, resolve_boundary

T = TypeVar("T")

TASK_FETCH_BYTES = 8 * 1024 * 1024
"""Bytes of one partition that a task asks for at a time, unless `kafka.max.partition.fetch.bytes` says otherwise."""

CLIENTS_MAX = 16
"""Clusters a process stays connected to; beyond that the one not used for longest is closed."""


_NO_SUCH_TOPIC = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class BlockingClient:
    """An event loop in a thread of its own, and a blocking way in."""

    def __init__(self) -> None:
        self._loop = _new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="barnabas-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for `work` on the client's loop; an interrupt while waiting cancels it."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begins `work` on the client's loop, and does not wait."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def disconnect(self) -> None:
        """Closes what the client has opened on its loop."""
        raise NotImplementedError

    def close(self) -> None:
        """Closes the connections and ends the thread."""
        self.run(self.disconnect())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class LogClient(BlockingClient):
    """A cluster as the readers see it."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = resolve_config(CONSUMER_CONFIGS, settings, {})
        self.isolation = IsolationLevel.parse(str(self.settings["isolation.level"]))
        self._fetch_limits = _fetch_limits(settings, self.settings, self.isolation)
        super().__init__()
        self.cluster: Cluster = self.run(self._open())

    async def _open(self) -> Cluster:
        return Cluster(ClusterOptions.from_settings(self.settings))

    async def disconnect(self) -> None:
        await self.cluster.close()

    # -- planning ----------------------------------------------------------------------------------------------------

    def partitions(self, subscription: SourceSubscription) -> list[TopicPartition]:
        """The partitions that the subscription has now, by fresh metadata. Topics that do not exist have none."""
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
        """Answers of ListOffsets (-1: nothing that young). Raises the first partition's error."""
        return self.run(self._list_offsets(queries))

    async def _list_offsets(self, queries: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        answers = await list_offsets(self.cluster, queries, isolation=self.isolation)
        offsets: dict[TopicPartition, int] = {}
        for tp, answer in answers.items():
            if isinstance(answer, KafkaError):
                raise answer
            offsets[tp] = answer.offset
        return offsets

    def log_view(self, partitions: Iterable[TopicPartition]) -> LogOffsets:
        """Earliest and latest offsets; the latest as the isolation level lets it be seen."""
        return self.run(self._log_view(list(partitions)))

    async def _log_view(self, partitions: list[TopicPartition]) -> LogOffsets:
        earliest, latest = await asyncio.gather(
            self._list_offsets(dict.fromkeys(partitions, EARLIEST)),
            self._list_offsets(dict.fromkeys(partitions, LATEST)),
        )
        return LogOffsets(earliest, latest)

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The log start of each partition; partitions that are gone are left out."""
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
        """A starting or ending position as offsets."""
        queries = boundary_queries(boundary, partitions)
        known = {LATEST: log.latest, EARLIEST: log.earliest}
        open_queries = {tp: at for tp, at in queries.items() if at not in known}
        answers = self.list_offsets(open_queries) if open_queries else {}
        answers |= {tp: known[at][tp] for tp, at in queries.items() if at in known}
        return resolve_boundary(boundary, answers, partitions, log.latest, starting=starting)

    def bytes_per_offset(self, log: LogOffsets) -> dict[TopicPartition, float]:
        """How long an offset is on average in each partition's log, as the brokers tell their directories' sizes.

        Empty when this client may not ask: then limits in bytes are taken as limits in offsets, which are stricter.
        """
        try:
            brokers = self.run(AsyncAdmin(cluster=self.cluster).describe_log_dirs())
        except KafkaError:
            return {}
        sizes: dict[TopicPartition, int] = {}
        for directories in brokers.values():
            for directory in directories.values():
                if isinstance(directory, KafkaError):
                    continue
                for tp, replica in directory.replicas.items():
                    if tp in log.latest and not replica.is_future:
                        sizes[tp] = max(sizes.get(tp, 0), replica.size_bytes)
        return {tp: size / max(1, log.latest[tp] - log.earliest[tp]) for tp, size in sizes.items()}

    # -- reading -----------------------------------------------------------------------------------------------------

    def fetch(self, wanted: OffsetRange, *, stall_timeout_ms: float) -> Iterator[FetchedBatches]:
        """The record batches of a range, as they lie in the log. The next fetch is under way while one is worked on."""
        reader = PartitionReader(self.cluster, self._fetch_limits, stall_timeout_ms=stall_timeout_ms)
        ahead = _OneAhead(reader.batches([wanted]))
        try:
            while (arrived := self.run(ahead.next())) is not None:
                yield arrived
        finally:
            # Spark stops in the middle when it needs no more (a limit), or when the query is stopped.
            self.run(ahead.close())

    # -- progress ----------------------------------------------------------------------------------------------------

    def commit(self, group: str, position: Position) -> None:
        """Makes a position visible as the committed offsets of a consumer group. Raises KafkaError."""
        offsets = {
            tp: OffsetAndMetadata(offset, f"lost={position.lost[tp]}" if tp in position.lost else "")
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
    """This process's client for these settings; opened on first use, and kept."""
    return shared(LogClient, settings)


def shared(kind: Callable[[Mapping[str, str]], C], settings: Mapping[str, str]) -> C:
    """The process's one client of a kind for these settings."""
    global _owner
    key = (kind, *sorted(settings.items()))
    with _lock:
        if _owner != os.getpid():  # forked: the parent's thread and sockets are not ours
            _clients.clear()
            _owner = os.getpid()
        client = _clients.pop(key, None)
        if client is None:
            if len(_clients) >= CLIENTS_MAX:
                _clients.pop(next(iter(_clients))).close()
            client = kind(settings)
        _clients[key] = client  # the end of the dict: most recently used
        return cast("C", client)


def discard(kind: Callable[[Mapping[str, str]], C], settings: Mapping[str, str]) -> None:
    """Forgets a client that has failed for good, so that the next task opens another."""
    with _lock:
        client = _clients.pop((kind, *sorted(settings.items())), None)
    if client is not None:
        client.close()


def require_partitions(client: LogClient, subscription: SourceSubscription) -> list[TopicPartition]:
    """The partitions to begin with. Raises SparkSourceError when a topic or partition that was named does not exist."""
    found = client.partitions(subscription)
    missing = sorted(set(subscription.topics) - {tp.topic for tp in found})
    unknown = [str(tp) for tp in subscription.assigned if tp not in set(found)]
    if missing or unknown:
        what = f"topics {', '.join(missing)}" if missing else f"partitions {', '.join(unknown)}"
        raise SparkSourceError(f"cannot read the {what}: they do not exist. Create them, or correct the option")
    return found


def _fetch_limits(given: Mapping[str, str], settings: Mapping[str, Any], isolation: IsolationLevel) -> FetchLimits:
    """The user's own limits; but a task reads megabytes, and asks for more at a time than a consumer by default."""
    asked = settings["max.partition.fetch.bytes"]
    return FetchLimits(
        max_bytes=settings["fetch.max.bytes"],
        partition_max_bytes=asked if "max.partition.fetch.bytes" in given else TASK_FETCH_BYTES,
        min_bytes=settings["fetch.min.bytes"],
        max_wait_ms=settings["fetch.max.wait.ms"],
        isolation=isolation,
        rack=settings["client.rack"],
    )


class _OneAhead:
    """Steps through an async generator, with the next step always under way."""

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
