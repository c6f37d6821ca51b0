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
import sys
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, Unpack

from barnabas.client.arguments import checks_arguments
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.config import CONSUMER_CONFIGS, is_given, resolve_config
from barnabas.client.consumer.column_polls import ColumnPolls
from barnabas.client.consumer.commit_calls import CommitCalls
from barnabas.client.consumer.commits import REVOKE_TIMEOUT_MS, Commits
from barnabas.client.consumer.coordinator import ConsumerCoordinator, RebalanceListener
from barnabas.client.consumer.coordinator_choice import make_coordinator
from barnabas.client.consumer.fetcher import Fetcher
from barnabas.client.consumer.handout import ColumnDelivery, HandedOut, Handout, HandoutRun, Wanted
from barnabas.client.consumer.jobs import Jobs
from barnabas.client.consumer.position_calls import PositionCalls
from barnabas.client.consumer.positions import Positions
from barnabas.client.consumer.subscription import ResetPolicy, SubscriptionState
from barnabas.client.consumer.topic_check import TopicCheck
from barnabas.client.errors import ClientClosedError, WakeupError
from barnabas.client.fetching import ConsumerFetchConfig
from barnabas.client.options import ClusterConfig, Settings
from barnabas.client.resumed import Closing
from barnabas.client.serialization import AnyDeserializer, NotReadyError, as_decode
from barnabas.client.typed_settings import ConsumerSettings
from barnabas.client.values import ConsumerRecord, IsolationLevel, SubscriptionPattern
from barnabas.core.clock import Clock, SystemClock
from barnabas.core.config import ConfigError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.assign.member import Assignor

log = logging.getLogger("barnabas.client")

CLOSE_TIMEOUT_MS: Final = 30_000
"""The longest time that `close` takes unless the caller passes another one, as in the Java consumer."""
CLOSE_SESSIONS_MS: Final = 500
"""The longest time for which `close` waits for brokers to close their fetch sessions."""
STEP_INTERVAL_S: Final = 0.1
"""How long an iteration returns records that have arrived without looking after the group and the commits."""

Record = ConsumerRecord[Any, Any]


@checks_arguments()
class AsyncConsumer(PositionCalls, CommitCalls, ColumnPolls):
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
        **settings: Unpack[ConsumerSettings],
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
        self._closing = Closing("barnabas-consumer-close")
        self.defers = False
        """Whether a blocking client uses this consumer: then the program runs in another thread, and its next call
        tells which records the program has received (`blocking.BlockingReader`)."""
        self.on_the_way: HandedOut | ColumnDelivery | None = None
        """What was taken for a program in another thread."""
        self._woken = False
        """Whether `wakeup` was called, and no call has raised WakeupError for it yet."""
        self._step_at = 0.0
        """The loop time until which records of an iteration are returned without the work besides fetching."""
        self._now: Callable[[], float] = self.cluster.now
        self._single_reader: asyncio.Task[Any] | None = None
        """The task that has received the last record alone, by an iteration or by `getone`."""
        self._iterator: weakref.ref[_Records] | None = None
        """The iterator by which the program has received the last record; dead when the loop has ended."""
        self._left: list[ConsumerCoordinator] = []
        """The memberships of earlier subscriptions, which are ended in the background."""
        self._closed = False
        self._positions = Positions(
            self.cluster, self._subscription, self._group_id, self._reset_policy, self._isolation, self._clock
        )
        self._fetcher = Fetcher(self.cluster, self._subscription, limits, self._reset_policy, self._clock)
        self._fetch_size_is_default = not is_given("max.partition.fetch.bytes", config, settings)
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
        await self.shut(finished=error is None and self._has_finished())

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
        `subscribe([])` is `unsubscribe`, except that the group is left in the background.

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
            names = [topics] if isinstance(topics, str) else list(topics)
            if not names:
                self._drop_subscription()
                return
            self._subscription.subscribe(names)
        coordinator = self._coordinator or self._make_coordinator(self._group_id)
        coordinator.listener = listener or RebalanceListener()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without a group assignment. Offsets can still be committed to `group.id`.
        `assign([])` is `unsubscribe`, except that the group is left in the background.
        """
        self._check_open()
        wanted = list(partitions)
        if wanted:
            self._subscription.assign(wanted)
        else:
            self._drop_subscription()

    async def unsubscribe(self) -> None:
        """Remove the subscription or assignment, and leave the group."""
        if self._coordinator is not None:
            await self._coordinator.close("the consumer unsubscribed")
            self._coordinator = None
        self._subscription.unsubscribe()

    def _drop_subscription(self) -> None:
        """Remove the subscription or assignment now, and leave the group in the background."""
        coordinator, self._coordinator = self._coordinator, None
        left = self._subscription.detach()
        if coordinator is not None:
            coordinator.detach(left, partial(self._commits.before_leaving, coordinator, left))
            self._left.append(coordinator)
            self._jobs.start("leave", self._leave)

    async def _leave(self) -> None:
        while self._left:
            await self._left.pop().close("the consumer unsubscribed")

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are assigned now."""
        return frozenset(self._subscription.partitions)

    def subscription(self) -> frozenset[str]:
        """The subscribed topics; for a pattern, the topics that match now."""
        return self._subscription.topics

    async def partitions_for(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic."""
        view = await self.cluster.topic(topic, deadline=self._deadline(None))
        return [partition.topic_partition for partition in view.partitions]

    # -- reading ---------------------------------------------------------------------------------------------------

    async def poll(
        self, timeout_ms: float = 0, *, max_records: int | None = None, raise_problems: bool = False
    ) -> list[Record]:
        """Return records as soon as there are any, in order within each partition; none after `timeout_ms`.

        The records of the calls before count as consumed from now on. A call that is cancelled returns no records, and
        the next call returns those that it would have returned.

        What is retried without success (no broker, no such topic, no coordinator) is logged, seldom. With
        `raise_problems` a poll that ends without records raises the error of the problem that has lasted longest.

        Raises NoOffsetError, OffsetOutOfRangeError and TruncationError (these three only with auto.offset.reset=none),
        authorization errors, CorruptBatchError, WakeupError, and the exceptions of deserializers and listeners.
        Retriable errors are retried in the background.
        """
        delivery = HandedOut(self._handout, await self._take(timeout_ms, max_records, raise_problems=raise_problems))
        self._give(delivery)
        return delivery.records

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[Record]]:
        """`poll`, of these partitions only if any are given, with the records by partition."""
        runs = await self._take(timeout_ms, max_records, wanted=frozenset(partitions) or None)
        delivery = HandedOut(self._handout, runs)
        found: dict[TopicPartition, list[Record]] = {}
        for record in delivery.records:
            found.setdefault(record.topic_partition, []).append(record)
        self._give(delivery)
        return found

    async def getone(self, *partitions: TopicPartition) -> Record:
        """The next record (of these partitions if any are given), however long it takes to arrive.

        It counts as consumed when the next one is asked for. A call that is cancelled has no effect.
        """
        if not partitions and (record := self._next_at_once()) is not None:
            self._single_reader, self._iterator = asyncio.current_task(), None
            return record
        return await self._next(frozenset(partitions) or None)

    def __aiter__(self) -> AsyncIterator[Record]:
        return self.records()

    def records(self) -> AsyncIterator[Record]:
        """Iterate over records, without an end. A record counts as consumed when the next one is asked for."""
        return _Records(self)

    def wakeup(self) -> None:
        """Make the call that waits for records raise WakeupError, or the next one. Call this on the event loop; other
        threads use `loop.call_soon_threadsafe(consumer.wakeup)`."""
        self._woken = True
        self._step_at = 0.0
        self._fetcher.arrived.set()

    async def _take(
        self,
        timeout_ms: float,
        max_records: int | None,
        *,
        wanted: Wanted = None,
        raise_problems: bool = False,
    ) -> list[HandoutRun]:
        """Take records for the program; none after `timeout_ms`. Nothing was taken if this raises."""
        limit = self._settings["max.poll.records"] if max_records is None else max_records
        deadline = self.cluster.now() + timeout_ms / 1000.0
        self._begin_read()
        while True:
            await self._step()
            try:
                runs = self._handout.take(limit, wanted)
            except NotReadyError as missing:
                await missing.learn()
                continue
            if any(run.records for run in runs):
                self._start_fetches()
                return runs
            self._handout.receive(runs)
            if not await self._wait(deadline):
                if raise_problems:
                    self.cluster.problems.raise_current()
                return []

    def _next_at_once(self) -> Record | None:
        """The next record of an iteration, if no other work is due; None otherwise."""
        return self._handout.next_at_once() if self._now() < self._step_at else None

    async def _next(self, wanted: Wanted, iterator: weakref.ref[_Records] | None = None) -> Record:
        self._begin_read()
        while True:
            await self._step()
            try:
                record = self._handout.next_record(self._settings["max.poll.records"], wanted)
            except NotReadyError as missing:
                await missing.learn()
                continue
            if record is not None:
                self._start_fetches()
                self._now = asyncio.get_running_loop().time
                self._step_at = self._now() + STEP_INTERVAL_S
                self._single_reader, self._iterator = asyncio.current_task(), iterator
                return record
            await self._wait(self.cluster.now() + 1.0)

    def _give(self, delivery: HandedOut | ColumnDelivery) -> None:
        """The program receives what was taken for it: now, or, if it runs in another thread, when it says so."""
        if self.defers and delivery.records:
            self.on_the_way = delivery
        else:
            delivery.receive(len(delivery.records))

    def _begin_read(self) -> None:
        """The program asks for records: those that it has received are consumed."""
        self._check_open()
        self._handout.ask()
        self._single_reader = self._iterator = None

    async def _step(self) -> None:
        """Do the work besides fetching: the group, positions and automatic commits."""
        self._check_open()
        if self._closing.has_begun:
            raise ClientClosedError("This consumer", "The consumer was closed while a call waited for records.")
        if self._woken:
            self._woken = False
            raise WakeupError
        await self._jobs.finish("leave", self.cluster.deadline(REVOKE_TIMEOUT_MS))
        self._jobs.check()
        if self._coordinator is not None and self._subscription.uses_group:
            await self._coordinator.poll()
        if self._commits.is_due():
            self._commit_in_background(self._subscription.all_consumed())
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

    # -- closing ---------------------------------------------------------------------------------------------------

    async def close(self, timeout_ms: float | None = None, *, leave: bool | None = None) -> None:
        """Commit (with auto-commit), leave the group, close the connections. Calls that wait raise ClientClosedError.

        The records that the program has received count as consumed, unless an exception is being handled (a `finally`,
        an `except`), or the record came from a loop over this consumer that goes on, or from `getone` in another task.
        A static member stays in the group, so that it gets its partitions back after a restart. `leave` overrides this
        (KIP-1092). What is not finished within `timeout_ms` (30 seconds, as in the Java consumer) is given up with a
        warning. A call that is cancelled goes on in the background; another call waits for it.
        """
        await self.shut(timeout_ms, leave=leave, finished=sys.exc_info()[1] is None and self._has_finished())

    def _has_finished(self) -> bool:
        """Whether the program no longer works on the record that it has received from a loop or from `getone`."""
        if self._iterator is not None and self._iterator() is not None:
            return False
        return self._single_reader is None or self._single_reader is asyncio.current_task()

    async def shut(self, timeout_ms: float | None = None, *, leave: bool | None = None, finished: bool = False) -> None:
        """`close`, with the caller's word on whether the records that the program has received are consumed."""
        limit_ms = CLOSE_TIMEOUT_MS if timeout_ms is None else timeout_ms
        deadline = self.cluster.deadline(limit_ms)

        async def stop(is_late: bool) -> None:
            if is_late:
                log.warning("%r was closed without a response of its group within %.0f ms", self, limit_ms)
            await self._stop(deadline)

        if not self._closing.has_begun:
            self._step_at = 0.0
            self._fetcher.arrived.set()
            if finished:
                self._handout.ask()
        await self._closing.run(limit_ms / 1000.0, lambda: self._say_goodbye(leave, deadline), stop)

    async def _say_goodbye(self, leave: bool | None, deadline: float) -> None:
        await self._jobs.finish("leave", deadline)
        if self._coordinator is not None:
            await self._jobs.finish("commit", self.cluster.deadline(REVOKE_TIMEOUT_MS))
            await self._coordinator.close(leave=leave)
        else:
            await self._before_revoke()

    async def _stop(self, deadline: float) -> None:
        """End the tasks and the connections."""
        self._closed = True
        try:
            for coordinator in (*self._left, self._coordinator):
                if coordinator is not None:
                    await coordinator.stop()
            await self._jobs.close()
            left_ms = (deadline - self.cluster.now()) * 1000.0
            await self._fetcher.close(min(max(left_ms, 0.0), CLOSE_SESSIONS_MS))
        finally:
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

    def _deadline(self, timeout_ms: float | None) -> float:
        return self.cluster.deadline(self._timeout_ms if timeout_ms is None else timeout_ms)

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosedError("This consumer")


class _Records:
    """An endless iterator over a consumer's records. A step that is cancelled can be repeated."""

    def __init__(self, consumer: AsyncConsumer) -> None:
        self._consumer = consumer
        self._reference = weakref.ref(self)

    def __aiter__(self) -> AsyncIterator[Record]:
        return self

    async def __anext__(self) -> Record:
        consumer = self._consumer
        if consumer._now() < consumer._step_at:
            record = consumer._handout.next_at_once()
            if record is not None:
                if consumer._iterator is not self._reference:
                    consumer._single_reader, consumer._iterator = asyncio.current_task(), self._reference
                return record
        if consumer._closed:
            raise StopAsyncIteration
        return await consumer._next(None, self._reference)
