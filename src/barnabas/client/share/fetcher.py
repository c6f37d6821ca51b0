"""Shell: acquires records from the leaders of share partitions, and sends acknowledgements to them.

The requests of a share session are numbered, so that each broker has one in flight at a time. Records are fetched only
when none are waiting for the user, because their acquisition locks begin when they are acquired.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from uuid import UUID

from barnabas.client.cluster.cluster import Cluster
from barnabas.client.consumer.record_stream import RecordStream
from barnabas.client.errors import AcknowledgementError, SerializationError
from barnabas.client.fetching import note_leader_hints
from barnabas.client.membership.share_protocol import ShareMember
from barnabas.client.serialization import Decode
from barnabas.client.share.session import CLOSING_EPOCH, GAP, Acknowledgements, AcknowledgeType, ShareSession
from barnabas.client.values import ConsumerRecord, FetchedBatches, IsolationLevel
from barnabas.core.errors import BarnabasError, ErrorCode, KafkaError, error_code
from barnabas.core.ids import TopicIdPartition, TopicPartition
from barnabas.protocol.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from barnabas.protocol.wire.messages.share_fetch import PartitionData, ShareFetchRequest, ShareFetchResponse

log = logging.getLogger("barnabas.client")

METADATA_TIMEOUT_MS: Final = 1_000
"""The time for which a poll may fetch metadata beyond its own time-out."""

Record = ConsumerRecord[Any, Any]
Due = dict[TopicIdPartition, Acknowledgements]

_SESSION_LOST = frozenset(
    {
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)


@dataclass(frozen=True, slots=True)
class ShareFetchConfig:
    """The limits of one fetch, and the time for which the broker may wait for records."""

    max_records: int = 500
    min_bytes: int = 1
    max_bytes: int = 52_428_800
    max_wait_ms: int = 500
    acquire_mode: int = 0
    check_crcs: bool = True


@dataclass(frozen=True, slots=True)
class AcknowledgementResult:
    """The broker's result for the acknowledgements of a partition."""

    partition: TopicPartition
    offsets: frozenset[int]
    error: KafkaError | None


@dataclass(slots=True)
class _Broker:
    """One broker: its session, its acquired records, and the time of its next retry."""

    session: ShareSession = field(default_factory=ShareSession)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    ready: deque[tuple[TopicIdPartition, Record]] = field(default_factory=deque)
    fetching: asyncio.Task[None] | None = None
    retry_at: float = 0.0
    losses: int = 0
    """How often the session was lost, with the locks of its records."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """A record that was taken for the program."""

    broker: _Broker
    losses: int
    partition: TopicIdPartition
    record: Record

    @property
    def is_current(self) -> bool:
        """Whether the record may still be acknowledged."""
        return self.losses == self.broker.losses


class ShareDelivery:
    """The records that one call returns. With a blocking client, the program's next call tells how many of these
    records the program has received."""

    def __init__(self, fetcher: ShareFetcher, taken: list[_Taken]) -> None:
        self.ended = False
        """Whether the records that the program has not received were put back."""
        self.one_by_one = False
        """Whether the program asks for each record by itself, so that all but the last one are processed."""
        self.records = [each.record for each in taken]
        self._fetcher = fetcher
        self._taken = taken
        self._received = 0

    def receive(self, count: int) -> None:
        """The program has received the first `count` records: it holds them until they are acknowledged."""
        for index in range(self._received, count):
            if self.one_by_one and index:
                self._fetcher.ask_beyond(self._taken[index - 1])
            self._fetcher.hold(self._taken[index])
        self._received = count

    def put_back(self) -> None:
        """The program will not receive the other records: the next call takes them."""
        self.ended = True
        for each in reversed(self._taken[self._received :]):
            if each.is_current:
                each.broker.ready.appendleft((each.partition, each.record))


class ShareFetcher:
    """All share sessions of one share consumer."""

    def __init__(
        self,
        cluster: Cluster,
        member: ShareMember,
        limits: ShareFetchConfig,
        *,
        key: Decode | None,
        value: Decode | None,
        implicit: bool,
        wake: Callable[[], None],
        note: Callable[[AcknowledgementResult], None],
    ) -> None:
        self.lock_timeout_ms: int | None = None
        self._cluster = cluster
        self._member = member
        self._limits = limits
        self._key = key
        self._value = value
        self._implicit = implicit
        self._wake = wake
        self._note = note
        self._brokers: dict[int, _Broker] = {}
        self._held: dict[tuple[TopicPartition, int], tuple[_Broker, TopicIdPartition, Record]] = {}
        """The broker and partition of each record that the user holds."""
        self._names: dict[UUID, str] = {}
        """The names of all topics from which records were fetched, also of those that were deleted since."""
        self._error: BarnabasError | None = None
        self._look_at = 0.0

    # -- giving out ------------------------------------------------------------------------------------------------

    def take(self, limit: int | None = None) -> ShareDelivery:
        """Up to `limit` (by default max.poll.records) of the waiting records. Raises a pending error, once, if there
        are none."""
        most = self._limits.max_records if limit is None else limit
        taken: list[_Taken] = []
        for broker in self._brokers.values():
            while broker.ready and len(taken) < most:
                taken.append(_Taken(broker, broker.losses, *broker.ready.popleft()))
        if not taken and self._error is not None:
            error, self._error = self._error, None
            try:
                raise error
            finally:
                del error  # the traceback refers to this frame: a cycle would keep the buffers of the frames above
        return ShareDelivery(self, taken)

    def hold(self, taken: _Taken) -> None:
        """The program has received a record."""
        if taken.is_current:
            record = taken.record
            taken.broker.session.in_hand.setdefault(taken.partition, {})[record.offset] = None
            self._held[(record.topic_partition, record.offset)] = (taken.broker, taken.partition, record)

    def ask_beyond(self, taken: _Taken) -> None:
        """The program has asked for the record after this one, which accepts this one in implicit mode."""
        if not self._implicit:
            return
        offsets = taken.broker.session.in_hand.get(taken.partition)
        if taken.is_current and offsets is not None and offsets.get(taken.record.offset, 0) is None:
            offsets[taken.record.offset] = AcknowledgeType.ACCEPT

    def unacknowledged(self) -> int:
        return sum(broker.session.unacknowledged() for broker in self._brokers.values())

    def acknowledge(self, record: Record, kind: AcknowledgeType) -> None:
        held = self._held.get((record.topic_partition, record.offset))
        if held is not None and held[2].timestamp != record.timestamp:
            held = None  # the topic was created again, and another record has this offset
        offsets = None if held is None else held[0].session.in_hand.get(held[1])
        if offsets is None or record.offset not in offsets:
            raise AcknowledgementError(
                f"The record at offset {record.offset} of {record.topic_partition} is not held by this consumer: it"
                " was acknowledged and sent already, its share session ended, its topic was deleted, or another"
                " consumer has it."
            )
        offsets[record.offset] = AcknowledgeType(kind)

    def collect(self, *, accept: bool = True) -> None:
        """Move all acknowledgements to the next requests. In implicit mode all held records are accepted before, unless
        `accept` is False."""
        for broker in self._brokers.values():
            if accept and self._implicit:
                broker.session.accept_everything()
            broker.session.collect()

    # -- fetching --------------------------------------------------------------------------------------------------

    async def send_fetches(self) -> None:
        """Send a ShareFetch, with due acknowledgements, to every idle leader of assigned partitions."""
        now = self._cluster.now()
        if self._look_at > now:
            return
        try:
            leaders = await self._by_leader()
        except KafkaError as error:
            if not error.retriable:
                raise
            log.info("cannot fetch the leaders of share partitions now, retrying: %s", error)
            self._look_at = self._cluster.now() + self._pause_s()
            return
        for leader, wanted in leaders.items():
            broker = self._brokers.setdefault(leader, _Broker())
            if broker.fetching is None and broker.retry_at <= now:
                task = asyncio.get_running_loop().create_task(
                    self._fetch(leader, broker, wanted), name=f"barnabas-share-fetch-{leader}"
                )
                broker.fetching = task
                task.add_done_callback(partial(self._on_fetched, broker))

    def _on_fetched(self, broker: _Broker, task: asyncio.Task[None]) -> None:
        broker.fetching = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._error = (
                error if isinstance(error, BarnabasError) else KafkaError(-1, f"A share fetch failed: {error!r}")
            )
        self._wake()

    async def _by_leader(self) -> dict[int, list[TopicIdPartition]]:
        metadata = self._cluster.metadata
        names = {p.topic_id: metadata.topic_name(p.topic_id) for p in self._member.assigned}
        self._names.update({topic_id: name for topic_id, name in names.items() if name is not None})
        known = sorted(name for name in names.values() if name is not None)
        deadline = self._cluster.deadline(METADATA_TIMEOUT_MS)
        views = await self._cluster.topics(known, deadline=deadline) if known else {}
        leaders: dict[int, list[TopicIdPartition]] = {}
        for partition in sorted(self._member.assigned):
            name = names[partition.topic_id]
            view = None if name is None else views.get(name)
            if view is None or partition.partition >= len(view.partitions):
                continue
            leader = view.partitions[partition.partition].leader
            if leader in metadata.brokers:
                leaders.setdefault(leader, []).append(partition)
            else:
                metadata.mark_stale([view.name])
                self._look_at = self._cluster.now() + self._pause_s()
        return leaders

    async def _fetch(self, leader: int, broker: _Broker, wanted: list[TopicIdPartition]) -> None:
        async with broker.lock:
            session = broker.session
            due = session.take_due()
            if due and (_renews(due) or not due.keys() <= set(wanted)):
                await self._acknowledge(leader, broker, due)
                due = {}
            plan = session.plan_fetch(wanted, due)
            limits = self._limits
            request = ShareFetchRequest(
                group_id=self._member.group_id,
                member_id=self._member.member_id,
                share_session_epoch=plan.epoch,
                max_wait_ms=limits.max_wait_ms,
                min_bytes=limits.min_bytes,
                max_bytes=limits.max_bytes,
                max_records=limits.max_records,
                batch_size=limits.max_records,
                share_acquire_mode=limits.acquire_mode,
                topics=plan.topics,
                forgotten_topics_data=plan.forgotten,
            )
            deadline = self._cluster.deadline(self._cluster.options.request_timeout_ms + limits.max_wait_ms)
            response = await self._send(leader, broker, request, due, deadline)
            if response is not None:
                session.on_success()
                self.lock_timeout_ms = response.acquisition_lock_timeout_ms or self.lock_timeout_ms
                if response.throttle_time_ms:
                    broker.retry_at = self._cluster.now() + response.throttle_time_ms / 1000.0
                self._take_response(broker, response, due)

    def _take_response(self, broker: _Broker, response: ShareFetchResponse, due: Due) -> None:
        for topic in response.responses:
            for data in topic.partitions:
                partition = TopicIdPartition(topic.topic_id, data.partition_index)
                name = self._name(partition)
                if name is None:
                    continue
                if partition in due:
                    code = error_code(data.acknowledge_error_code)
                    self._settle(broker, partition, due.pop(partition), code, data.acknowledge_error_message)
                code = error_code(data.error_code)
                if code is not ErrorCode.NONE:
                    self._on_error(broker, name, code, response, data)
                elif data.acquired_records:
                    self._take_records(broker, partition, name, data)
        for partition, offsets in due.items():  # a partition that is not in the response was acknowledged
            self._settle(broker, partition, offsets, ErrorCode.NONE, None)

    def _take_records(
        self, broker: _Broker, partition: TopicIdPartition, name: TopicPartition, data: PartitionData
    ) -> None:
        """Keep the records within the acquired ranges for the user; acquired offsets without a record are gaps."""
        counts = {
            offset: acquired.delivery_count
            for acquired in data.acquired_records
            for offset in range(acquired.first_offset, acquired.last_offset + 1)
        }
        due = broker.session.due.setdefault(partition, {})
        due.update(dict.fromkeys(counts, GAP))
        if data.records:
            assert isinstance(data.records, (bytes, bytearray, memoryview))
            batches = FetchedBatches(name, min(counts), data.records, -1, -1, -1)
            stream = RecordStream(
                batches, isolation=IsolationLevel.READ_UNCOMMITTED, check_crcs=self._limits.check_crcs
            )
            for record in stream.take(1 << 62):
                if record.offset in counts:
                    del due[record.offset]
                    self._decode(broker, partition, record._replace(delivery_count=counts[record.offset]))
        if not due:
            del broker.session.due[partition]

    def _decode(self, broker: _Broker, partition: TopicIdPartition, record: Record) -> None:
        """Deserialize a record. If that fails, the record is released and the next poll raises the error."""
        topic, headers = record.topic, record.headers
        try:
            if self._key is not None:
                record = record._replace(key=self._key(topic, headers, record.key))
            if self._value is not None:
                record = record._replace(value=self._value(topic, headers, record.value))
        except SerializationError as error:
            broker.session.due.setdefault(partition, {})[record.offset] = AcknowledgeType.RELEASE
            self._error = error
            return
        broker.ready.append((partition, record))

    def _on_error(
        self, broker: _Broker, name: TopicPartition, code: ErrorCode, response: ShareFetchResponse, data: PartitionData
    ) -> None:
        if not code.retriable:
            self._error = KafkaError(code, f"Fetching {name}: {data.error_message or code.message}")
        if not note_leader_hints(self._cluster, response, name, data.current_leader):
            self._cluster.note_error(name, code)
            self._cluster.metadata.mark_stale([name.topic])
        self._back_off(broker)

    # -- acknowledging ---------------------------------------------------------------------------------------------

    async def acknowledge_all(self, deadline: float) -> None:
        """Send all due acknowledgements, and wait for the responses."""
        await asyncio.gather(
            *(self._acknowledge_due(leader, broker, deadline) for leader, broker in self._brokers.items())
        )

    async def _acknowledge_due(self, leader: int, broker: _Broker, deadline: float) -> None:
        async with broker.lock:
            due = broker.session.take_due()
            if due:
                await self._acknowledge(leader, broker, due, deadline=deadline)

    async def _acknowledge(
        self, leader: int, broker: _Broker, due: Due, *, closing: bool = False, deadline: float | None = None
    ) -> None:
        """Send one ShareAcknowledge. The caller holds the broker's lock."""
        session = broker.session
        request = ShareAcknowledgeRequest(
            group_id=self._member.group_id,
            member_id=self._member.member_id,
            share_session_epoch=CLOSING_EPOCH if closing else session.epoch,
            is_renew_ack=_renews(due),
            topics=session.plan_acknowledge(due),
        )
        response = await self._send(leader, broker, request, due, deadline or self._cluster.deadline())
        if response is None:
            return
        session.on_success()
        self.lock_timeout_ms = response.acquisition_lock_timeout_ms or self.lock_timeout_ms
        for topic in response.responses:
            for data in topic.partitions:
                partition = TopicIdPartition(topic.topic_id, data.partition_index)
                if partition in due:
                    code = error_code(data.error_code)
                    self._settle(broker, partition, due.pop(partition), code, data.error_message)
        for partition, offsets in due.items():
            self._settle(broker, partition, offsets, ErrorCode.NONE, None)

    async def _send(self, leader: int, broker: _Broker, request: Any, due: Due, deadline: float) -> Any:
        """Send a request. Returns None after a retriable error or the loss of the session.

        After every error the session is given up, and its acknowledgements fail with that error.
        """
        try:
            response = await self._cluster.send(leader, request, deadline=deadline)
        except KafkaError as error:
            self._lose(broker, due, error)
            self._cluster.metadata.mark_stale(self._member.topics)
            if not error.retriable:
                raise
            return None
        code = error_code(response.error_code)
        if code is ErrorCode.NONE:
            return response
        refusal = KafkaError(code, response.error_message or code.message)
        self._lose(broker, due, refusal)
        if not (code.retriable or code in _SESSION_LOST):
            raise refusal
        return None

    def _lose(self, broker: _Broker, due: Due, error: KafkaError) -> None:
        lost = broker.session.on_lost()
        broker.losses += 1
        broker.ready.clear()
        for partition, offsets in due.items():
            lost.setdefault(partition, {}).update(offsets)
        for partition, offsets in lost.items():
            self._settle(broker, partition, offsets, error.code, str(error))
        self._back_off(broker)

    def _settle(
        self, broker: _Broker, partition: TopicIdPartition, offsets: Mapping[int, int], code: ErrorCode, why: str | None
    ) -> None:
        """Notify the user, drop the acknowledged records, and keep the renewed ones."""
        name = self._name(partition)
        if name is None:
            return
        for offset, kind in offsets.items():
            held = self._held.get((name, offset))
            if held is not None and held[1] != partition:
                held = None  # a record of a topic of the same name that was created since
            if held is not None:
                del self._held[name, offset]
            if kind == AcknowledgeType.RENEW and code is ErrorCode.NONE and held is not None:
                broker.ready.append((partition, held[2]))
        real = frozenset(offset for offset, kind in offsets.items() if kind != GAP)
        if real:
            error = None if code is ErrorCode.NONE else KafkaError(code, f"Acknowledging {name}: {why or code.message}")
            self._note(AcknowledgementResult(name, real, error))

    def _name(self, partition: TopicIdPartition) -> TopicPartition | None:
        topic = self._names.get(partition.topic_id)
        return None if topic is None else TopicPartition(topic, partition.partition)

    def _back_off(self, broker: _Broker) -> None:
        broker.retry_at = self._cluster.now() + self._pause_s()

    def _pause_s(self) -> float:
        return self._cluster.options.retry_backoff.delay_ms(0, self._cluster.rng) / 1000.0

    def next_retry(self) -> float | None:
        """The loop time of the next retry."""
        now = self._cluster.now()
        times = [self._look_at, *(broker.retry_at for broker in self._brokers.values())]
        return min((at for at in times if at > now), default=None)

    async def close(self, deadline: float) -> None:
        """End each session with its due acknowledgements. The brokers release all other acquired records."""
        for leader, broker in self._brokers.items():
            if broker.fetching is not None:
                await asyncio.gather(broker.fetching, return_exceptions=True)
            broker.ready.clear()
            async with broker.lock:
                if broker.session.is_open:
                    try:
                        await self._acknowledge(
                            leader, broker, broker.session.take_due(), closing=True, deadline=deadline
                        )
                    except KafkaError as error:
                        self._error = error
        self._brokers = {}
        self._held = {}


def _renews(due: Due) -> bool:
    return any(AcknowledgeType.RENEW in offsets.values() for offsets in due.values())
