"""Shell: librdkafka and our own client behind the few blocking methods that the workloads need.

Each result of a client becomes one of three outcomes: the operation happened, it definitely did not, or that is
unknown. In doubt the outcome is unknown, because the checker draws conclusions from definite outcomes only.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import confluent_kafka as rdk

from barnabas.client.blocking import Consumer
from barnabas.client.blocking_producer import Producer
from barnabas.core.errors import BarnabasError
from barnabas.core.ids import TopicPartition
from barnabas.testing.histories import OperationOutcome, PollAction, SendAction

TOPIC = "log"
PARTITIONS = 4
KEYS = tuple(f"{TOPIC}-{partition}" for partition in range(PARTITIONS))
CALL_S = 12.0
"""A call that takes longer has an unknown outcome. The time is longer than any fault and the restart after it."""
REQUEST_MS = 1_000
"""request.timeout.ms: shorter than a broker is paused, so that requests are retried."""


class Writer(Protocol):
    """A producer. After a failure the producer may be `finished`, and must be replaced by a new one."""

    finished: bool

    def send(self, sends: Sequence[SendAction]) -> list[SendAction]:
        """Sends the values, and returns them with the offsets of those that were acknowledged in time."""

    def begin(self) -> None: ...

    def commit(self, positions: Mapping[int, int], reader: Reader) -> OperationOutcome:
        """Commits the transaction with the reader's positions; aborts the transaction if it cannot be committed."""

    def abort(self, positions: Mapping[int, int], reader: Reader) -> OperationOutcome:
        """Adds the positions to the transaction, and then aborts the transaction."""

    def close(self) -> None: ...


class Reader(Protocol):
    """A read_committed consumer."""

    rebalances: int

    def assign(self) -> None: ...

    def subscribe(self) -> None: ...

    def poll(self, seconds: float, count: int) -> list[PollAction]: ...

    def to_committed(self) -> None:
        """Seeks every partition to the group's committed offset, or to the beginning."""

    def close(self) -> None: ...


def partition_of(key: str) -> int:
    return int(key.rsplit("-", 1)[1])


# --- librdkafka --------------------------------------------------------------------------------------------------

_RDK: dict[str, Any] = {
    "log_level": 0,
    "socket.timeout.ms": REQUEST_MS,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "metadata.recovery.strategy": "none",
}


def polls_of(messages: Iterable[rdk.Message]) -> list[PollAction]:
    """The messages that are records, not errors."""
    polls = []
    for message in messages:
        value, offset = message.value(), message.offset()
        if message.error() is None and value is not None and offset is not None:
            polls.append(PollAction(f"{TOPIC}-{message.partition()}", int(value), offset))
    return polls


class RdkWriter:
    """A producer on librdkafka. Without `transactional_id` the producer is idempotent only."""

    def __init__(self, servers: str, transactional_id: str | None) -> None:
        settings = {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 1, **_RDK}
        if transactional_id is not None:
            settings |= {"transactional.id": transactional_id, "transaction.timeout.ms": 10_000}
        self.finished = False
        self._producer = rdk.Producer(settings)
        if transactional_id is not None:
            self._insist(lambda: self._producer.init_transactions(CALL_S))

    def send(self, sends: Sequence[SendAction]) -> list[SendAction]:
        done = list(sends)

        def delivered(place: int) -> Callable[[Any, Any], None]:
            def note(error: Any, message: Any) -> None:
                if error is None:
                    done[place] = SendAction(sends[place].key, sends[place].value, message.offset())

            return note

        try:
            for place, send in enumerate(sends):
                self._producer.produce(
                    TOPIC, str(send.value), partition=partition_of(send.key), on_delivery=delivered(place)
                )
            if self._producer.flush(CALL_S):
                self.finished = True
        except rdk.KafkaException:
            self.finished = True
        return list(done)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def commit(self, positions: Mapping[int, int], reader: Reader) -> OperationOutcome:
        try:
            self._send_offsets(positions, reader)
            self._insist(lambda: self._producer.commit_transaction(CALL_S))
        except rdk.KafkaException as failed:
            if failed.args[0].txn_requires_abort():
                return self._abort()
            self.finished = True
            return OperationOutcome.INFO
        return OperationOutcome.OK

    def abort(self, positions: Mapping[int, int], reader: Reader) -> OperationOutcome:
        try:
            self._send_offsets(positions, reader)
        except rdk.KafkaException as failed:
            self.finished = not failed.args[0].txn_requires_abort()
            if self.finished:
                return OperationOutcome.INFO
        return self._abort()

    def _abort(self) -> OperationOutcome:
        try:
            self._insist(lambda: self._producer.abort_transaction(CALL_S))
        except rdk.KafkaException:
            self.finished = True
            return OperationOutcome.INFO
        return OperationOutcome.FAIL

    def _send_offsets(self, positions: Mapping[int, int], reader: Reader) -> None:
        assert isinstance(reader, RdkReader)
        offsets = [rdk.TopicPartition(TOPIC, partition, offset) for partition, offset in positions.items()]
        if offsets:
            group = reader.consumer.consumer_group_metadata()
            self._insist(lambda: self._producer.send_offsets_to_transaction(offsets, group, CALL_S))

    def _insist(self, call: Callable[[], object]) -> None:
        """Repeats a call until its outcome is known, but not longer than `CALL_S`."""
        deadline = time.monotonic() + CALL_S
        while True:
            try:
                call()
                return
            except rdk.KafkaException as failed:
                if not failed.args[0].retriable() or time.monotonic() > deadline:
                    raise

    def close(self) -> None:
        self._producer.purge()


class RdkReader:
    """A consumer on librdkafka. Several consumers may use the same `group`; only `subscribe` joins it."""

    def __init__(self, servers: str, group: str, protocol: str = "classic") -> None:
        settings = {
            "bootstrap.servers": servers,
            "group.id": group,
            "group.protocol": protocol,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 50,
            **_RDK,
        }
        if protocol == "classic":
            settings |= {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}
        self.rebalances = 0
        self.consumer = rdk.Consumer(settings)

    def assign(self) -> None:
        self.consumer.assign([rdk.TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])

    def subscribe(self) -> None:
        def changed(*_: object) -> None:
            self.rebalances += 1

        self.consumer.subscribe([TOPIC], on_assign=changed, on_revoke=changed, on_lost=changed)

    def poll(self, seconds: float, count: int) -> list[PollAction]:
        return polls_of(self.consumer.consume(count, seconds))

    def to_committed(self) -> None:
        deadline = time.monotonic() + 3 * CALL_S
        while True:
            try:
                where = [rdk.TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
                committed = self.consumer.committed(where, timeout=CALL_S)
            except rdk.KafkaException:
                if time.monotonic() > deadline:
                    raise
                continue
            self.consumer.assign(
                [rdk.TopicPartition(TOPIC, found.partition, max(found.offset, 0)) for found in committed]
            )
            return

    def close(self) -> None:
        self.consumer.close()


# --- ours --------------------------------------------------------------------------------------------------------

_OURS: dict[str, Any] = {
    "request_timeout_ms": REQUEST_MS,
    "reconnect_backoff_ms": 20,
    "reconnect_backoff_max_ms": 200,
}


class OurWriter:
    """A producer on our own client. Without `transactional_id` the producer is idempotent only."""

    def __init__(self, servers: str, transactional_id: str | None) -> None:
        settings: dict[str, Any] = {
            "max_block_ms": int(CALL_S * 1000),
            "delivery_timeout_ms": int(CALL_S * 1000),
            **_OURS,
        }
        if transactional_id is not None:
            settings |= {"transactional_id": transactional_id, "transaction_timeout_ms": 10_000}
        self.finished = False
        self._producer = Producer(bootstrap_servers=servers, **settings)
        if transactional_id is not None:
            self._insist(self._producer.init_transactions)

    def _insist(self, call: Callable[[], None]) -> None:
        deadline = time.monotonic() + 3 * CALL_S
        while True:
            try:
                call()
                return
            except BarnabasError:
                if time.monotonic() > deadline:
                    raise

    def send(self, sends: Sequence[SendAction]) -> list[SendAction]:
        sent = [
            self._producer.send(TOPIC, str(send.value).encode(), partition=partition_of(send.key)) for send in sends
        ]
        done = []
        for send, record in zip(sends, sent, strict=True):
            try:
                done.append(SendAction(send.key, send.value, record.result(2 * CALL_S).offset))
            except (BarnabasError, TimeoutError):
                done.append(send)
        return done

    def begin(self) -> None:
        self._producer.begin_transaction()

    def commit(self, positions: Mapping[int, int], reader: Reader) -> OperationOutcome:
        try:
            self._send_offsets(positions, reader)
        except BarnabasError:
            return self._abort()
        try:
            self._producer.commit_transaction()
        except BarnabasError as failed:
            return self._abort() if _says_aborted(failed) else self._finish()
        return OperationOutcome.OK

    def abort(self, positions: Mapping[int, int], reader: Reader) -> OperationOutcome:
        with contextlib.suppress(BarnabasError):  # the transaction is aborted in any case
            self._send_offsets(positions, reader)
        return self._abort()

    def _abort(self) -> OperationOutcome:
        try:
            self._producer.abort_transaction()
        except BarnabasError:
            return self._finish()
        return OperationOutcome.FAIL

    def _finish(self) -> OperationOutcome:
        self.finished = True
        return OperationOutcome.INFO

    def _send_offsets(self, positions: Mapping[int, int], reader: Reader) -> None:
        assert isinstance(reader, OurReader)
        offsets = {TopicPartition(TOPIC, partition): offset for partition, offset in positions.items()}
        if offsets:
            self._producer.send_offsets_to_transaction(offsets, reader.consumer.group_metadata())

    def close(self) -> None:
        self._producer.close()


def _says_aborted(failed: BarnabasError) -> bool:
    from barnabas.client.errors import TransactionAbortedError

    return isinstance(failed, TransactionAbortedError)


class OurReader:
    """A consumer on our own client; see `RdkReader`."""

    def __init__(self, servers: str, group: str, protocol: str = "classic") -> None:
        settings: dict[str, Any] = {
            "group_id": group,
            "group_protocol": protocol,
            "isolation_level": "read_committed",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "fetch_max_wait_ms": 100,
            **_OURS,
        }
        if protocol == "classic":
            settings |= {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 500}
        self.rebalances = 0
        self.consumer = Consumer(bootstrap_servers=servers, **settings)

    def assign(self) -> None:
        self.consumer.assign([TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)])

    def subscribe(self) -> None:
        from barnabas.client import RebalanceListener

        counted = self

        class Counting(RebalanceListener):
            def on_partitions_assigned(self, partitions: object) -> None:
                counted.rebalances += 1

            def on_partitions_revoked(self, partitions: object) -> None:
                counted.rebalances += 1

            def on_partitions_lost(self, partitions: object) -> None:
                counted.rebalances += 1

        self.consumer.subscribe([TOPIC], Counting())

    def poll(self, seconds: float, count: int) -> list[PollAction]:
        try:
            records = self.consumer.poll(seconds * 1000, max_records=count)
        except BarnabasError:
            return []
        return [PollAction(f"{TOPIC}-{record.partition}", int(record.value), record.offset) for record in records]

    def to_committed(self) -> None:
        where = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
        deadline = time.monotonic() + 3 * CALL_S
        while True:
            try:
                committed = self.consumer.committed(where)
            except BarnabasError:
                if time.monotonic() > deadline:
                    raise
                continue
            for partition, found in committed.items():
                self.consumer.seek(partition, 0 if found is None else found.offset)
            return

    def close(self) -> None:
        self.consumer.close()
