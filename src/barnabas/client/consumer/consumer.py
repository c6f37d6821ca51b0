"""Shell: the consumer: a subscription or assignment, a position in every partition, and `poll`.

    async with AsyncConsumer(bootstrap_servers="localhost:9092", group_id="g") as consumer:
        consumer.subscribe(["orders"])
        async for record in consumer:
            ...

All work except heartbeats is done inside the calls: `poll` finds positions, sends fetches, takes part in rebalances and
commits when `auto.commit.interval.ms` has passed. Use a consumer from one task only.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from barnabas.client.arguments import checks_arguments
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.config import CONSUMER_CONFIGS, is_given, resolve_config
from barnabas.client.consumer.commits import REVOKE_TIMEOUT_MS, Commits
from barnabas.client.consumer.coordinator import ConsumerCoordinator, RebalanceListener
from barnabas.client.consumer.coordinator_choice import make_coordinator
from barnabas.client.consumer.fetcher import Fetcher
from barnabas.client.consumer.handout import Handout
from barnabas.client.consumer.jobs import Jobs
from barnabas.client.consumer.positions import Positions
from barnabas.client.consumer.subscription import ResetPolicy, SubscriptionState
from barnabas.client.consumer.topic_check import TopicCheck
from barnabas.client.errors import ClientClosedError, RequestTimeoutError
from barnabas.client.fetching import ConsumerFetchConfig
from barnabas.client.offsets import fetch_group_offsets, list_offsets, offsets_at
from barnabas.client.options import ClusterConfig, Settings
from barnabas.client.serialization import AnyDeserializer, NotReadyError, as_decode
from barnabas.client.values import (
    EARLIEST,
    LATEST,
    ConsumerRecord,
    GroupMetadata,
    IsolationLevel,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    SubscriptionPattern,
)
from barnabas.core.clock import Clock, SystemClock
from barnabas.core.config import ConfigError
from barnabas.core.errors import BarnabasError, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.assign.member import Assignor

if TYPE_CHECKING:
    import pyarrow as pa

    from barnabas.client.columns.formats import ColumnDecoder

log = logging.getLogger("barnabas.client")

CLOSE_SESSIONS_MS: Final = 500
"""The longest time for which `close` waits for brokers to close their fetch sessions."""

Record = ConsumerRecord[Any, Any]
CLOSE_TIMEOUT_MS: Final = 30_000


@checks_arguments(without=("poll_arrow", "arrow"))
class AsyncConsumer:
    """A consumer. Its configs are those of `config.CONSUMER_CONFIGS`, by Kafka's names in a mapping, or as keywords."""

    _closed = True  # until __init__ has succeeded

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        key_deserializer: AnyDeserializer | None = None,
        value_deserializer: AnyDeserializer | None = None,
        assignors: Sequence[Assignor] | None = None,
        cluster: Cluster | None = None,
        clock: Clock | None = None,
        **settings: object,
    ) -> None:
        if cluster is not None:
            settings.setdefault("bootstrap_servers", ",".join(f"{h}:{p}" for h, p in cluster.options.bootstrap_servers))
        resolved: Settings = resolve_config(CONSUMER_CONFIGS, config, settings)
        self._settings = resolved
        self._owns_cluster = cluster is None
        self.cluster = cluster or Cluster(ClusterConfig.from_settings(resolved))
        self._clock = clock or SystemClock()
        self._assignors = assignors
        self._group_id: str | None = resolved["group.id"] or None
        self._isolation = IsolationLevel.parse(resolved["isolation.level"])
        self._reset_policy = ResetPolicy.parse(resolved["auto.offset.reset"])
        self._timeout_ms: int = resolved["default.api.timeout.ms"]
        self._subscription = SubscriptionState()
        limits = ConsumerFetchConfig(
            max_bytes=resolved["fetch.max.bytes"],
            partition_max_bytes=resolved["max.partition.fetch.bytes"],
            min_bytes=resolved["fetch.min.bytes"],
            max_wait_ms=resolved["fetch.max.wait.ms"],
            isolation=self._isolation,
            rack=resolved["client.rack"],
        )
        self._coordinator: ConsumerCoordinator | None = None
        self._closed = False
        self._positions = Positions(
            self.cluster, self._subscription, self._group_id, self._reset_policy, self._isolation, self._clock
        )
        self._fetcher = Fetcher(self.cluster, self._subscription, limits, self._reset_policy, self._clock)
        self._sizes_are_ours = not is_given("max.partition.fetch.bytes", config, settings)
        self._jobs = Jobs(self._fetcher.arrived.set)
        self._topic_check = TopicCheck(
            self.cluster, self._subscription.named_topics, auto_create=resolved["allow.auto.create.topics"]
        )
        self._commits = Commits(
            self.cluster,
            self._subscription,
            self._group_id,
            interval_ms=resolved["auto.commit.interval.ms"] if resolved["enable.auto.commit"] else None,
            timeout_ms=self._timeout_ms,
            coordinator=lambda: self._coordinator,
        )
        self._handout = Handout(
            self._fetcher,
            self._subscription,
            isolation=self._isolation,
            check_crcs=resolved["check.crcs"],
            key=as_decode(key_deserializer, "key", now=True),
            value=as_decode(value_deserializer, "value", now=True),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        if not self._closed and self._owns_cluster:
            self.cluster.drop(self)

    def __repr__(self) -> str:
        if self._closed:
            return f"<{type(self).__name__}, closed>"
        group = f" of group {self._group_id!r}," if self._group_id else ""
        owned = ", ".join(map(str, sorted(self._subscription.partitions)[:5])) or "nothing"
        more = ", ..." if len(self._subscription.partitions) > 5 else ""
        return f"<{type(self).__name__}{group} at {self.cluster}, reading {owned}{more}>"

    # -- what to read ----------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] | str | re.Pattern[str] | SubscriptionPattern,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Share topics with the other members of the group: names, or one pattern that must match whole names.

        The client matches a `re.Pattern`; the broker matches a `SubscriptionPattern` (`group.protocol=consumer` only).
        """
        self._check_open()
        if self._group_id is None:
            raise ConfigError("subscribe needs group.id; without a group use assign.")
        if isinstance(topics, SubscriptionPattern):
            if self._settings["group.protocol"].lower() != "consumer":
                raise ConfigError(
                    "A SubscriptionPattern is matched by the broker, which needs group.protocol=consumer; with the"
                    " classic protocol subscribe to re.compile(...)."
                )
            self._subscription.subscribe_remote_pattern(topics.pattern)
        elif isinstance(topics, re.Pattern):
            self._subscription.subscribe_pattern(topics)
        else:
            self._subscription.subscribe([topics] if isinstance(topics, str) else topics)
        coordinator = self._coordinator or self._make_coordinator(self._group_id)
        coordinator.listener = listener or RebalanceListener()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without a group assignment. Offsets can still be committed to `group.id`."""
        self._check_open()
        self._subscription.assign(partitions)

    async def unsubscribe(self) -> None:
        """Remove the subscription or assignment, and leave the group."""
        if self._coordinator is not None:
            await self._coordinator.close("the consumer unsubscribed")
            self._coordinator = None
        self._subscription.unsubscribe()

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are assigned now."""
        return frozenset(self._subscription.partitions)

    def subscription(self) -> frozenset[str]:
        """The subscribed topics; for a pattern, the topics that match now."""
        return self._subscription.topics

    # -- reading ---------------------------------------------------------------------------------------------------

    async def poll(
        self, timeout_ms: float = 0, *, max_records: int | None = None, raise_problems: bool = False
    ) -> list[Record]:
        """Return records as soon as there are any, in order within each partition; none after `timeout_ms`.

        What is retried without success (no broker, no such topic, no coordinator) is logged, seldom. With
        `raise_problems` a poll that ends without records raises the error of the problem that has lasted longest.

        Raises NoOffsetError, OffsetOutOfRangeError and TruncationError (these three only with auto.offset.reset=none),
        authorization errors, and the exceptions of deserializers and listeners. Retriable errors are retried in the
        background.
        """
        limit = self._settings["max.poll.records"] if max_records is None else max_records
        deadline = self.cluster.now() + timeout_ms / 1000.0
        while True:
            await self._step()
            try:
                records = self._handout.records(limit)
            except NotReadyError as missing:
                await missing.learn()
                continue
            if records:
                self._start_fetches()
                return records
            if not await self._wait(deadline):
                if raise_problems:
                    self.cluster.problems.raise_current()
                return []

    async def poll_arrow(
        self,
        timeout_ms: float = 0,
        *,
        columns: Sequence[str] | None = None,
        include_headers: bool = False,
        key_format: ColumnDecoder | None = None,
        value_format: ColumnDecoder | None = None,
        raise_problems: bool = False,
    ) -> pa.RecordBatch | None:
        """Return the records of one fetch of one partition as an Arrow RecordBatch; None after `timeout_ms`.

        Unless max.partition.fetch.bytes is set, a fetch returns up to 4 MB of each partition. Formats (such as those of
        `barnabas.registry.columns`) turn keys and values into typed columns. `raise_problems` is that of `poll`.
        """
        from barnabas.client.columns.arrow import FETCH_BYTES, decode_fetch
        from barnabas.client.columns.formats import decode_columns

        if self._sizes_are_ours:
            self._sizes_are_ours = False
            self._fetcher.limits = replace(self._fetcher.limits, partition_max_bytes=FETCH_BYTES)
        deadline = self.cluster.now() + timeout_ms / 1000.0
        while True:
            await self._step()
            batches = self._handout.buffer()
            if batches is not None:
                whole = decode_fetch(
                    batches,
                    isolation=self._isolation,
                    columns=columns,
                    include_headers=include_headers,
                    check_crcs=self._settings["check.crcs"],
                )
                self._handout.finish_buffer(batches)
                self._start_fetches()
                if whole is not None:
                    topic = batches.partition.topic
                    return decode_columns(whole, topic, key_format=key_format, value_format=value_format)
                continue
            if not await self._wait(deadline):
                if raise_problems:
                    self.cluster.problems.raise_current()
                return None

    def __aiter__(self) -> AsyncIterator[Record]:
        return self.records()

    async def records(self) -> AsyncIterator[Record]:
        """Iterate over records, without an end. A record counts as consumed when the next one is requested."""
        while not self._closed:
            for record in await self.poll(1_000, max_records=None):
                yield record

    async def arrow(
        self,
        *,
        columns: Sequence[str] | None = None,
        include_headers: bool = False,
        key_format: ColumnDecoder | None = None,
        value_format: ColumnDecoder | None = None,
    ) -> AsyncIterator[pa.RecordBatch]:
        """Iterate over RecordBatches, without an end. Takes the options of `poll_arrow`."""
        while not self._closed:
            batch = await self.poll_arrow(
                1_000,
                columns=columns,
                include_headers=include_headers,
                key_format=key_format,
                value_format=value_format,
            )
            if batch is not None:
                yield batch

    async def _step(self) -> None:
        """Do the work besides fetching: the group, positions and automatic commits."""
        self._check_open()
        self._jobs.check()
        if self._coordinator is not None and self._subscription.uses_group:
            await self._coordinator.poll()
        if self._commits.is_due():
            self.commit_nowait()
        if self._topic_check.is_due():
            self._jobs.start("topics", self._topic_check.check)
        if self._positions.has_work():
            self._jobs.start("positions", self._positions.update)
        self._start_fetches()

    def _start_fetches(self) -> None:
        if self._fetcher.wanting():
            self._jobs.start("fetch", self._fetcher.send_fetches)

    async def _wait(self, deadline: float) -> bool:
        """Wait for an event or the next retry. Returns False after the deadline."""
        fetcher = self._fetcher
        now = self.cluster.now()
        if now >= deadline and not self._jobs:
            return False
        if now >= deadline:
            await asyncio.sleep(0)  # tasks that were just started run their first steps even with a time-out of 0
            if not fetcher.arrived.is_set():
                return False
        wake_at = min(
            [deadline, *(at for at in (fetcher.next_retry(), self._positions.next_retry()) if at is not None)]
        )
        if self._commits.next_at is not None:
            wake_at = min(wake_at, self._commits.next_at)
        if self._topic_check.next_at > now:
            wake_at = min(wake_at, self._topic_check.next_at)
        timer = asyncio.get_running_loop().call_at(wake_at, fetcher.arrived.set)
        try:
            await fetcher.arrived.wait()
        finally:
            timer.cancel()
            fetcher.arrived.clear()
        return True

    # -- positions -------------------------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Continue from an offset."""
        where = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        if where.offset < 0:
            raise ConfigError(f"An offset cannot be negative: {where.offset}. See seek_to_beginning and seek_to_end.")
        self._subscription.seek(partition, where.offset, where.leader_epoch)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue from the log start of these partitions, or of all assigned ones."""
        for partition in partitions or tuple(self._subscription.partitions):
            self._subscription.request_reset(partition, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue from the end of these partitions, or of all assigned ones."""
        for partition in partitions or tuple(self._subscription.partitions):
            self._subscription.request_reset(partition, LATEST)

    async def seek_to_timestamp(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Continue from the first record at or after a time, or from the end of a partition without such a record."""
        wanted = partitions or tuple(self._subscription.partitions)
        found = await self.offsets_for_times(dict.fromkeys(wanted, timestamp_ms))
        for partition, answer in found.items():
            if answer is None:
                self._subscription.request_reset(partition, LATEST)
            else:
                self._subscription.seek(partition, answer.offset)

    def seek_to_committed(self, *partitions: TopicPartition) -> None:
        """Continue from the committed offsets, to read records again after an aborted transaction."""
        for partition in partitions or tuple(self._subscription.partitions):
            state = self._subscription.state(partition)
            state.position = state.fetch_position = state.reset_to = None
        self._subscription.version += 1

    async def position(self, partition: TopicPartition, *, timeout_ms: float | None = None) -> int:
        """The offset of the next record that `poll` will return."""
        deadline = self._deadline(timeout_ms)
        state = self._subscription.state(partition)
        while state.position is None:
            await self._positions.update()
            if state.position is None:
                if self.cluster.now() >= deadline:
                    raise RequestTimeoutError(
                        f"The position of {partition} was not found within the time of the call (timeout_ms, or"
                        f" default.api.timeout.ms: {self._timeout_ms}).{self.cluster.problems.hint()}"
                    )
                await self.cluster.backoff(0, deadline)
        return state.position

    async def committed(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The committed offsets of the group; None for a partition without one."""
        wanted = list(partitions)
        found = await fetch_group_offsets(
            self.cluster,
            self._commits.require_group(),
            wanted,
            require_stable=True,
            deadline=self._deadline(timeout_ms),
        )
        results: dict[TopicPartition, OffsetAndMetadata | None] = {}
        for partition in wanted:
            answer = found.get(partition)
            if isinstance(answer, KafkaError):
                raise answer
            results[partition] = answer
        return results

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Commit the positions, or these offsets, and wait for the result. Raises CommitFailedError after a
        rebalance.

        Offsets of earlier calls of `commit_nowait` are committed first.
        """
        self._check_open()
        exact, deadline = self._commits.exact(offsets), self._deadline(timeout_ms)
        await self._jobs.finish("commit", deadline)
        await self._commits.commit(exact, deadline)

    def commit_nowait(self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None) -> None:
        """Commit the positions, or these offsets, in the background, and log a failure.

        While an earlier commit in the background is still running, the offsets are kept, and are committed after it;
        `commit` and `close` wait for them.
        """
        self._check_open()
        self._commits.require_group()
        self._commits.queue(self._commits.exact(offsets))
        self._jobs.start("commit", self._commits.commit_queued)

    # -- offsets and topics ----------------------------------------------------------------------------------------

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The offset of the first record at or after each time; None for a partition without such a record."""
        found = await list_offsets(
            self.cluster, timestamps, isolation=self._isolation, deadline=self._deadline(timeout_ms)
        )
        results: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        for partition, answer in found.items():
            if isinstance(answer, KafkaError):
                raise answer
            results[partition] = answer if answer.offset >= 0 else None
        return results

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The log start offsets."""
        return await offsets_at(self.cluster, partitions, EARLIEST, isolation=self._isolation)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The end offsets of the log; with read_committed the last stable offsets."""
        return await offsets_at(self.cluster, partitions, LATEST, isolation=self._isolation)

    async def partitions_for(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic."""
        view = await self.cluster.topic(topic, deadline=self._deadline(None))
        return [partition.topic_partition for partition in view.partitions]

    def lag(self, partition: TopicPartition) -> int | None:
        """The lag in offsets, according to the last fetch; None before the first fetch."""
        state = self._subscription.state(partition)
        end = state.last_stable_offset if self._isolation is IsolationLevel.READ_COMMITTED else state.high_watermark
        return None if state.position is None or end < 0 else max(end - state.position, 0)

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no more records of these partitions until they are resumed."""
        for partition in partitions:
            self._subscription.state(partition).paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        for partition in partitions:
            self._subscription.state(partition).paused = False

    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(p for p, state in self._subscription.partitions.items() if state.paused)

    def group_metadata(self) -> GroupMetadata:
        """The identity of this member, with which a transactional producer commits offsets for the group."""
        if self._coordinator is not None:
            return self._coordinator.metadata
        return GroupMetadata(self._commits.require_group())

    async def close(self, timeout_ms: float | None = None, *, leave: bool | None = None) -> None:
        """Commit (with auto-commit), leave the group, close the connections.

        A static member stays in the group, so that it gets its partitions back after a restart. `leave` overrides this
        (KIP-1092). What is not finished within `timeout_ms` (30 seconds, as in the Java consumer) is given up with a
        warning.
        """
        if self._closed:
            return
        limit_ms = CLOSE_TIMEOUT_MS if timeout_ms is None else timeout_ms
        deadline = self.cluster.deadline(limit_ms)
        try:
            async with asyncio.timeout(limit_ms / 1000.0):
                if self._coordinator is not None:
                    await self._jobs.finish("commit", self.cluster.deadline(REVOKE_TIMEOUT_MS))
                    await self._coordinator.close(leave=leave)
                else:
                    await self._before_revoke()
        except TimeoutError as error:
            if isinstance(error, BarnabasError):
                raise
            log.warning("%r was closed without a response of its group within %.0f ms", self, limit_ms)
        finally:
            self._closed = True
            await self._jobs.close()
            left_ms = (deadline - self.cluster.now()) * 1000.0
            await self._fetcher.close(min(max(left_ms, 0.0), CLOSE_SESSIONS_MS))
            if self._owns_cluster:
                await self.cluster.close()

    # -- pieces ----------------------------------------------------------------------------------------------------

    def _make_coordinator(self, group_id: str) -> ConsumerCoordinator:
        self._coordinator = make_coordinator(
            self.cluster,
            self._subscription,
            group_id,
            self._settings,
            self._assignors,
            wake=self._fetcher.arrived.set,
            before_revoke=self._before_revoke,
        )
        return self._coordinator

    async def _before_revoke(self) -> None:
        """Finish the commits in the background, then commit the positions (with auto-commit)."""
        await self._jobs.finish("commit", self.cluster.deadline(REVOKE_TIMEOUT_MS))
        await self._commits.before_revoke()

    def _deadline(self, timeout_ms: float | None) -> float:
        return self.cluster.deadline(self._timeout_ms if timeout_ms is None else timeout_ms)

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosedError("This consumer")
