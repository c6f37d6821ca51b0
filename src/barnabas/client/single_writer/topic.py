"""Shell: a compacted topic of one partition, as the log of a state that several processes share (see `state.py`).

Each change is a transaction: its records are committed together, and a process that has been replaced as the writer is
fenced and cannot write any more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from barnabas.client.admin import AsyncAdmin
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.consumer.record_stream import RecordStream
from barnabas.client.errors import TransactionAbortedError
from barnabas.client.fetching import ConsumerFetchConfig
from barnabas.client.offsets import offsets_at
from barnabas.client.partition_reader import OffsetRange, PartitionReader
from barnabas.client.producer.producer import AsyncProducer
from barnabas.client.single_writer.state import WriterFencedError
from barnabas.client.values import EARLIEST, LATEST, ConfigEntry, ConfigResource, IsolationLevel
from barnabas.core.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.core.ids import NO_TOPIC_ID, TopicPartition
from barnabas.core.telemetry import get_logger

log = get_logger("barnabas.client")

RecordT = TypeVar("RecordT")
CHANGE_TIMEOUT_MS: Final = 15_000
_TRANSACTION_TIMEOUT_MS: Final = 10_000
_MARKER_WAIT_S: Final = 0.002
_LIMITS: Final = ConsumerFetchConfig(
    max_bytes=52_428_800, partition_max_bytes=8_388_608, isolation=IsolationLevel.READ_COMMITTED
)
_LOST: Final = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING)


class TopicLogError(BarnabasError):
    """The topic cannot be used as a log, or a change may not have been written."""


class TopicLogTimeoutError(TopicLogError):
    """There was no answer in time, so that it is not known whether the change was written."""


class TopicLogReadOnlyError(TopicLogError):
    """The topic takes no writes: it is a mirror of another cluster's topic (a cluster link)."""


class RecordCodec(Protocol[RecordT]):
    """Port: the format of the records. `decode` returns None for a record that the state does not need, and raises
    ValueError for one that is not valid, which is logged and skipped.
    """

    def decode(self, key: bytes, value: bytes | None) -> RecordT | None: ...

    def encode(self, record: RecordT) -> tuple[bytes, bytes | None]: ...


@dataclass(frozen=True, slots=True)
class TopicLogOptions:
    """The topic, the transactional id that its writers share, and the replicas of a new topic."""

    topic: str
    transactional_id: str
    replicas: int = 3
    """An upper limit: a smaller cluster gets a replica on each of its brokers."""
    creates: bool = True
    """Whether the topic is created if it does not exist."""


class TopicLog(Generic[RecordT]):
    """The `SharedLog` on a Kafka topic. Closing the log does not close the cluster."""

    def __init__(self, cluster: Cluster, options: TopicLogOptions, codec: RecordCodec[RecordT]) -> None:
        self.topic = options.topic
        self._cluster = cluster
        self._options = options
        self._codec = codec
        self._partition = TopicPartition(options.topic, 0)
        self._reader = PartitionReader(self._cluster, _LIMITS)
        self._position = -1
        self._topic_id = NO_TOPIC_ID
        self._producer: AsyncProducer | None = None

    async def open(self) -> None:
        """Create the topic if it does not exist. Raises TopicLogError if the topic's settings do not allow its use, or
        if it does not exist and is not to be created.
        """
        admin = AsyncAdmin(cluster=self._cluster)
        if self._options.creates:
            await self._create(admin)
        await self._check_topic(admin)

    async def _create(self, admin: AsyncAdmin) -> None:
        try:
            brokers = len((await admin.describe_cluster()).brokers)
            replicas = max(1, min(self._options.replicas, brokers))
            await admin.create_topic(self.topic, 1, replicas, {"cleanup.policy": "compact"})
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    async def close(self) -> None:
        await self._close_producer()

    async def _check_topic(self, admin: AsyncAdmin) -> None:
        view = (await admin.describe_topics([self.topic])).get(self.topic)
        if isinstance(view, KafkaError):
            if view.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not self._options.creates:
                raise TopicLogError(
                    f"The topic {self.topic} does not exist. It must be mirrored before it can be read."
                )
            if not view.retriable:
                raise view
        elif view is not None and len(view.partitions) > 1:
            raise TopicLogError(
                f"The topic {self.topic} has {len(view.partitions)} partitions; it must have one, "
                f"so that its records have one order."
            )
        resource = ConfigResource.topic(self.topic)
        configs = (await admin.describe_configs([resource], names=["cleanup.policy"])).get(resource)
        entry = configs.get("cleanup.policy") if isinstance(configs, dict) else None
        if isinstance(entry, ConfigEntry) and entry.value is not None and "delete" in entry.value:
            raise TopicLogError(
                f"The topic {self.topic} has cleanup.policy={entry.value}: old records would be deleted."
                " Set it to compact."
            )

    # -- reading

    async def catch_up(self, apply: Callable[[RecordT], None]) -> None:
        end = await self._offset(LATEST)
        if end < self._position:
            await self._cluster.refresh([self.topic])  # the end moves back only if the topic was created again
        topic_id = self._cluster.metadata.topic_id(self.topic)
        if self._topic_id == NO_TOPIC_ID:
            self._topic_id = topic_id
        if not self._cluster.metadata.may_be(self.topic, self._topic_id):
            raise TopicLogError(
                f"The topic {self.topic} was deleted and created again, so that the state that was read from it is"
                " gone. Restart this process to begin with the state that the new topic has."
            )
        if self._position < 0:
            self._position = await self._offset(EARLIEST)
        await self._read_to(end, apply)

    async def _read_to(self, end: int, apply: Callable[[RecordT], None]) -> None:
        """Apply the records from the current position up to, but not including, `end`."""
        if self._position >= end:
            return
        ranges = [OffsetRange(self._partition, self._position, end)]
        async for batches in self._reader.batches(ranges):
            stream = RecordStream(batches, isolation=IsolationLevel.READ_COMMITTED, check_crcs=True)
            for record in stream.take(1 << 30):
                if not self._position <= record.offset < end:
                    continue
                self._position = record.offset + 1
                try:
                    decoded = None if record.key is None else self._codec.decode(record.key, record.value)
                except ValueError as error:
                    log.warning("a record was skipped", topic=self.topic, offset=record.offset, reason=str(error))
                    continue
                if decoded is not None:
                    apply(decoded)
        self._position = end

    async def _offset(self, which: int) -> int:
        """The log start offset (EARLIEST) or the last stable offset (LATEST)."""
        found = await offsets_at(self._cluster, {self._partition: which}, isolation=IsolationLevel.READ_COMMITTED)
        return found[self._partition]

    # -- writing

    async def become_writer(self) -> bool:
        if self._producer is not None:
            return False
        producer = AsyncProducer(
            {
                "transactional.id": self._options.transactional_id,
                "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
                "delivery.timeout.ms": CHANGE_TIMEOUT_MS,
                "request.timeout.ms": _TRANSACTION_TIMEOUT_MS,
                "max.block.ms": CHANGE_TIMEOUT_MS,
                "linger.ms": 0,
            },
            cluster=self._cluster,
        )
        try:
            await producer.init_transactions()
        except BaseException:  # cancellation, too: the producer must be closed
            await producer.close(0)
            raise
        self._producer = producer
        return True

    async def append(self, records: Sequence[RecordT], apply: Callable[[RecordT], None]) -> None:
        producer = self._producer
        assert producer is not None, "become_writer must be called first"
        try:
            producer.begin_transaction()
            futures = []
            for record in records:
                key, value = self._codec.encode(record)
                futures.append(await producer.send(self.topic, value, key=key, partition=0))
            await producer.commit_transaction()
            end = 1 + max([(await future).offset for future in futures])
        except BarnabasError as error:
            await self._close_producer()
            if (refusal := _refusal(error)) is not None:
                raise TopicLogReadOnlyError(f"The topic {self.topic} takes no writes: {refusal}") from error
            if isinstance(error, TransactionAbortedError) or (isinstance(error, KafkaError) and error.code in _LOST):
                raise WriterFencedError from error
            message = f"The change could not be written to {self.topic}, or it is not known whether it was: {error}"
            raise (TopicLogTimeoutError if _timed_out(error) else TopicLogError)(message) from error
        except BaseException:  # cancellation, too: no transaction may stay open
            await self._close_producer()
            raise
        await self._read_back(end, apply)

    async def _read_back(self, end: int, apply: Callable[[RecordT], None]) -> None:
        """Wait until the last stable offset reaches `end`, and apply the records. The transaction is already committed
        then, but its marker, which makes the records readable, is written later. Raises TopicLogTimeoutError after
        `CHANGE_TIMEOUT_MS`.
        """
        stable = -1
        try:
            async with asyncio.timeout(CHANGE_TIMEOUT_MS / 1000):
                wait_s = _MARKER_WAIT_S
                while (stable := await self._offset(LATEST)) < end:
                    await asyncio.sleep(wait_s)
                    wait_s = min(2 * wait_s, 0.1)
        except TimeoutError as error:
            if isinstance(error, BarnabasError):
                raise
            seen = f"its last stable offset is {stable}" if stable >= 0 else "no broker has answered for its end"
            message = (
                f"The change is written to {self.topic}, but could not be read back within {CHANGE_TIMEOUT_MS} ms:"
                f" it ends at offset {end}, and {seen}. Another transaction may be open there (see"
                f" `barnabas transactions list`), or its leader may be down. The change will be read later."
            )
            raise TopicLogTimeoutError(message) from error
        await self._read_to(stable, apply)

    async def _close_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(BarnabasError, TimeoutError):
                await producer.close(0)


def _refusal(error: BaseException | None) -> KafkaError | None:
    """The POLICY_VIOLATION behind an error, with which a broker refuses writes to a mirror."""
    while error is not None:
        if isinstance(error, KafkaError) and error.code is ErrorCode.POLICY_VIOLATION:
            return error
        error = error.__cause__
    return None


def _timed_out(error: BarnabasError) -> bool:
    return isinstance(error, KafkaError) and error.code is ErrorCode.REQUEST_TIMED_OUT
