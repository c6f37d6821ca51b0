"""Shell: the share consumer (KIP-932). Many consumers share the records of a topic, one by one, like a queue.

    async with AsyncShareConsumer(bootstrap_servers="localhost:9092", group_id="workers") as consumer:
        consumer.subscribe(["jobs"])
        while True:
            for record in await consumer.poll(1_000):
                ...                                       # the next poll acknowledges these records

With `share.acknowledgement.mode=explicit` the program acknowledges every record before the next poll:
`consumer.acknowledge(record)`, or with RELEASE (deliver again), REJECT (never deliver again) or RENEW (extend the
lock).

A record that is not acknowledged before its acquisition lock expires (`acquisition_lock_timeout_ms`) is delivered
again, to this or another consumer; `record.delivery_count` is the number of deliveries. Use a consumer from one task
only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self, Unpack

from barnabas.client.arguments import checks_arguments
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.config import CONSUMER_CONFIGS, resolve_config
from barnabas.client.errors import AcknowledgementError, ClientClosedError, WakeupError
from barnabas.client.membership.share_protocol import ShareMember
from barnabas.client.options import ClusterConfig, Settings
from barnabas.client.resumed import Closing, Resumed
from barnabas.client.serialization import AnyDeserializer, as_decode
from barnabas.client.share.fetcher import AcknowledgementResult, ShareDelivery, ShareFetchConfig, ShareFetcher
from barnabas.client.share.heartbeats import ShareHeartbeats
from barnabas.client.share.session import AcknowledgeType
from barnabas.client.typed_settings import ConsumerSettings
from barnabas.client.values import ConsumerRecord
from barnabas.core.config import ConfigError
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicIdPartition, TopicPartition, uuid_to_text
from barnabas.core.rng import random_uuid

Record = ConsumerRecord[Any, Any]
log = logging.getLogger("barnabas.client")

CLOSE_TIMEOUT_MS: Final = 30_000
ACQUIRE_MODES: Final = {"batch_optimized": 0, "record_limit": 1}


@checks_arguments(without=("acknowledge",))
class AsyncShareConsumer:
    """A share consumer. Its configs are those of `config.CONSUMER_CONFIGS`, by Kafka's names in a mapping, or as
    keywords.

    `on_acknowledged` is called when the result of acknowledgements is known, with the partition, the offsets, and None
    or the error with which the acknowledgements failed.
    """

    _closed = True  # until __init__ has succeeded

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        key_deserializer: AnyDeserializer | None = None,
        value_deserializer: AnyDeserializer | None = None,
        on_acknowledged: Callable[[TopicPartition, frozenset[int], KafkaError | None], None] | None = None,
        cluster: Cluster | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        if cluster is not None:
            settings.setdefault("bootstrap_servers", ",".join(f"{h}:{p}" for h, p in cluster.options.bootstrap_servers))
        resolved: Settings = resolve_config(CONSUMER_CONFIGS, config, settings)
        if not resolved["group.id"]:
            raise ConfigError("A share consumer needs group.id: the name of its share group.")
        self._owns_cluster = cluster is None
        self.cluster = cluster or Cluster(ClusterConfig.from_settings(resolved))
        self._explicit = resolved["share.acknowledgement.mode"] == "explicit"
        self._timeout_ms: int = resolved["default.api.timeout.ms"]
        self._on_acknowledged = on_acknowledged
        self._arrived = asyncio.Event()
        member_id = uuid_to_text(random_uuid(self.cluster.rng))
        self._member = ShareMember(resolved["group.id"], member_id, resolved["client.rack"] or None)
        self._heartbeats = ShareHeartbeats(self.cluster, self._member, self._arrived.set)
        self._fetcher = ShareFetcher(
            self.cluster,
            self._member,
            ShareFetchConfig(
                max_records=resolved["max.poll.records"],
                min_bytes=resolved["fetch.min.bytes"],
                max_bytes=resolved["fetch.max.bytes"],
                max_wait_ms=resolved["fetch.max.wait.ms"],
                acquire_mode=ACQUIRE_MODES[resolved["share.acquire.mode"].lower()],
                check_crcs=resolved["check.crcs"],
            ),
            key=as_decode(key_deserializer, "key"),
            value=as_decode(value_deserializer, "value"),
            implicit=not self._explicit,
            wake=self._arrived.set,
            note=self._note,
        )
        self._outcomes: dict[TopicPartition, KafkaError | None] = {}
        self._committing: Resumed[dict[TopicPartition, KafkaError | None]] = Resumed("barnabas-share-commit")
        self._woken = False
        self._closing = Closing("barnabas-share-close")
        self.defers = False
        """Whether a blocking client uses this consumer: then the program runs in another thread, and its next call
        tells which records the program has received (`blocking.BlockingReader`)."""
        self.on_the_way: ShareDelivery | None = None
        """What was taken for a program in another thread."""
        self._closed = False

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
        mode = "explicit" if self._explicit else "implicit"
        return f"<AsyncShareConsumer of group {self._member.group_id!r}, {mode}, topics {list(self._member.topics)}>"

    # -- reading ---------------------------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str] | str) -> None:
        """Subscribe to these topics. (The protocol has no patterns yet.)"""
        self._check_open()
        names = tuple([topics] if isinstance(topics, str) else topics)
        for name in names:
            if not isinstance(name, str) or not name:
                raise ConfigError(f"A topic is a text that is not empty, not {name!r:.100}.")
        self._member.subscribe(names)

    def subscription(self) -> frozenset[str]:
        return frozenset(self._member.topics)

    async def unsubscribe(self) -> None:
        """Send the acknowledgements, release all other records, and leave the group."""
        await self._let_go()

    async def poll(self, timeout_ms: float = 0, *, raise_problems: bool = False) -> list[Record]:
        """Return acquired records, which this consumer may process until their locks expire; none after `timeout_ms`.

        In implicit mode this acknowledges the records of the last poll. In explicit mode it raises AcknowledgementError
        if a record of the last poll was not acknowledged. Renewed records are returned again.

        What is retried without success (no broker, no such topic, no coordinator) is logged, seldom. With
        `raise_problems` a poll that ends without records raises the error of the problem that has lasted longest.
        """
        return self._give(await self._take(timeout_ms, None, raise_problems=raise_problems))

    async def getone(self) -> Record:
        """The next record, however long it takes to arrive. The next call acknowledges it (implicit mode). A call that
        is cancelled has no effect."""
        while True:
            if records := self._give(await self._take(1_000, 1)):
                return records[0]

    def _give(self, delivery: ShareDelivery) -> list[Record]:
        """The program receives what was taken for it: now, or, if it runs in another thread, when it says so."""
        if self.defers and delivery.records:
            self.on_the_way = delivery
        else:
            delivery.receive(len(delivery.records))
        return delivery.records

    async def _take(self, timeout_ms: float, limit: int | None, *, raise_problems: bool = False) -> ShareDelivery:
        """Take records for the program; none after `timeout_ms`. Nothing was taken if this raises."""
        self._check_open()
        unacknowledged = self._fetcher.unacknowledged()
        if unacknowledged and self._explicit:
            raise AcknowledgementError(
                f"{unacknowledged} records of the last poll were not acknowledged; in explicit mode every record needs"
                " acknowledge(record, ACCEPT | RELEASE | REJECT | RENEW) before the next poll."
            )
        self._fetcher.collect()
        deadline = self.cluster.now() + timeout_ms / 1000.0
        while True:
            if self._closing.has_begun:
                raise ClientClosedError("This share consumer", "The share consumer was closed while a call waited.")
            if self._woken:
                self._woken = False
                raise WakeupError
            self._heartbeats.check()
            self._heartbeats.keep_going()
            delivery = self._fetcher.take(limit)
            if delivery.records:
                return delivery
            await self._fetcher.send_fetches()
            if not await self._wait(deadline):
                if raise_problems:
                    self.cluster.problems.raise_current()
                return delivery

    def wakeup(self) -> None:
        """Make the call that waits for records raise WakeupError, or the next one. Call this on the event loop; other
        threads use `loop.call_soon_threadsafe(consumer.wakeup)`."""
        self._woken = True
        self._arrived.set()

    def __aiter__(self) -> AsyncIterator[Record]:
        return self.records()

    def records(self) -> AsyncIterator[Record]:
        """Iterate over records, without an end. Asking for the next record acknowledges the one before (implicit mode
        only)."""
        if self._explicit:
            raise AcknowledgementError(
                "Iterating acknowledges implicitly; with share.acknowledgement.mode=explicit use poll()."
            )
        return _ShareRecords(self)

    async def _wait(self, deadline: float) -> bool:
        now = self.cluster.now()
        if now >= deadline:
            await asyncio.sleep(0)
            if not self._arrived.is_set():
                return False
        at = min([deadline, *(retry for retry in (self._fetcher.next_retry(),) if retry is not None)])
        timer = asyncio.get_running_loop().call_at(at, self._arrived.set)
        try:
            await self._arrived.wait()
        finally:
            timer.cancel()
            self._arrived.clear()
        return True

    # -- acknowledging ---------------------------------------------------------------------------------------------

    def acknowledge(self, record: Record, kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Acknowledge a record of the last poll. The next poll or commit sends the acknowledgement.

        Raises AcknowledgementError for a record that this consumer does not hold, and in implicit mode.
        """
        if not self._explicit:
            raise AcknowledgementError(
                "This consumer acknowledges implicitly; set share.acknowledgement.mode=explicit to acknowledge single "
                "records."
            )
        self._fetcher.acknowledge(record, kind)

    async def commit(self, *, timeout_ms: float | None = None) -> dict[TopicPartition, KafkaError | None]:
        """Send the acknowledgements (in implicit mode of all records that the program has received) and wait for the
        responses. A call that is cancelled goes on in the background; the next one returns its results, too.

        Returns None or an error for each partition. After an error the records may be delivered again; a usual reason
        is that their locks had expired.
        """
        self._check_open()
        earlier: dict[TopicPartition, KafkaError | None] = {}
        if self._committing.is_under_way:  # of a call that was cancelled
            earlier = await self._committing.run(self._commit_nothing)
        self._fetcher.collect()
        deadline = self.cluster.deadline(self._timeout_ms if timeout_ms is None else timeout_ms)
        return earlier | await self._committing.run(lambda: self._commit(deadline))

    async def _commit(self, deadline: float) -> dict[TopicPartition, KafkaError | None]:
        self._outcomes = {}
        await self._fetcher.acknowledge_all(deadline)
        return self._outcomes

    async def _commit_nothing(self) -> dict[TopicPartition, KafkaError | None]:
        return {}

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """The duration of the acquisition lock of a record; None before the first fetch."""
        return self._fetcher.lock_timeout_ms

    async def close(self, timeout_ms: float | None = None) -> None:
        """Send the acknowledgements, release all other records, leave the group and close the connections. Calls that
        wait raise ClientClosedError.

        In implicit mode the records of the last poll are released, as in the Java consumer: call `commit` before, if
        they are processed. What is not finished within `timeout_ms` (30 seconds) is given up with a warning; the
        brokers release the records when their locks expire. A call that is cancelled goes on in the background; another
        call waits for it.
        """
        self._closed = True
        self._arrived.set()
        limit_ms = CLOSE_TIMEOUT_MS if timeout_ms is None else timeout_ms

        async def stop(is_late: bool) -> None:
            if is_late:
                log.warning("%r left its group without a response within %.0f ms", self, limit_ms)
            await self._stop()

        await self._closing.run(limit_ms / 1000.0, self._let_go, stop)

    async def _stop(self) -> None:
        """End the tasks and the connections."""
        try:
            await self._committing.stop()
            await self._heartbeats.stop()
        finally:
            if self._owns_cluster:
                await self.cluster.close()

    async def _let_go(self) -> None:
        self._fetcher.collect(accept=False)
        await self._fetcher.close(self.cluster.deadline())
        await self._heartbeats.close()

    def _note(self, outcome: AcknowledgementResult) -> None:
        error = outcome.error
        self._outcomes[outcome.partition] = self._outcomes.get(outcome.partition) or error
        if self._on_acknowledged is not None:
            self._on_acknowledged(outcome.partition, outcome.offsets, error)

    def assignment(self) -> frozenset[TopicIdPartition]:
        """The assigned partitions; they may also be assigned to other members."""
        return self._member.assigned

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosedError("This share consumer")


class _ShareRecords:
    """An endless iterator over a share consumer's records. A step that is cancelled can be repeated."""

    def __init__(self, consumer: AsyncShareConsumer) -> None:
        self._consumer = consumer

    def __aiter__(self) -> AsyncIterator[Record]:
        return self

    async def __anext__(self) -> Record:
        if self._consumer._closed:
            raise StopAsyncIteration
        return await self._consumer.getone()
