"""Shell: a workload that runs while brokers are killed. It keeps every acknowledgement, and checks all of them at the
end.

An acknowledged operation must have taken effect. After an error or a time-out the operation may or may not have.
"""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from tests.librdkafka import answered, create_topics
from tests.progress import STANDSTILL_S, flush

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 2
_SEGMENT_BYTES = "internal.segment.bytes"
_CLIENT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 0}


class Acknowledged:
    """The number of acknowledgements, with a method that waits for more."""

    def __init__(self) -> None:
        self._count = 0
        self._changed = threading.Condition()

    def add(self, count: int = 1) -> None:
        with self._changed:
            self._count += count
            self._changed.notify_all()

    def wait_for_more(self, count: int, patience_s: float = STANDSTILL_S) -> None:
        """Returns after `count` more acknowledgements. Raises AssertionError when none comes for `patience_s`."""
        with self._changed:
            goal = self._count + count
            while (before := self._count) < goal:
                if not self._changed.wait_for(lambda: self._count > before, patience_s):
                    raise AssertionError(f"no record was acknowledged for {patience_s:g} s")


class Writer:
    """An idempotent producer with one codec. It numbers the records of each partition."""

    def __init__(self, address: str, codec: str, acknowledged: Acknowledged) -> None:
        self.topic = f"log-{codec}"
        self.sent = [0] * PARTITIONS
        self.kept: dict[int, dict[int, int]] = defaultdict(dict)
        """By partition: record number -> acknowledged offset."""
        self.failures: list[str] = []
        self._acknowledged = acknowledged
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "acks": "all",
                "compression.type": codec,
                "linger.ms": 2,
                "batch.size": 20_000,
                "message.timeout.ms": 300_000,
                "queue.buffering.max.messages": 20_000,
                "error_cb": self._on_error,
                **_CLIENT,
            }
        )

    def run(self, stop: threading.Event) -> None:
        filler = "all work and no play " * 8
        while not stop.is_set():
            for partition in range(PARTITIONS):
                number = self.sent[partition]
                with contextlib.suppress(BufferError):
                    value = f"{number} {filler[: number % 150]}"
                    self._producer.produce(
                        self.topic, value, partition=partition, on_delivery=self._on_delivery(number)
                    )
                    self.sent[partition] += 1
            self._producer.poll(0.001)

    def finish(self, patience_s: float = STANDSTILL_S) -> None:
        flush(self._producer, patience_s)

    def _on_delivery(self, number: int) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failures.append(f"record {number}: {error}")
                return
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            self.kept[partition][number] = offset
            self._acknowledged.add()

        return delivered

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.failures.append(f"fatal: {error}")

    def check(self, address: str) -> int:
        """Checks that every record is stored once, in order, at its acknowledged offset. Returns the number of
        records."""
        assert not self.failures, f"{self.topic}: {self.failures[:5]}"
        for partition in range(PARTITIONS):
            found = read_partition(address, self.topic, partition)
            numbers = [number for number, _ in found]
            assert numbers == list(range(self.sent[partition])), _first_gap(self.topic, partition, numbers)
            assert dict(found) == self.kept[partition], (
                f"{self.topic}-{partition}: a record is not where it was promised"
            )
        return sum(self.sent)


class Committer:
    """A group that commits ever greater offsets."""

    def __init__(self, address: str, group: str, topic: str) -> None:
        self.promised = -1
        self.tried = -1
        self._topic = topic
        self._consumer = Consumer(
            {"bootstrap.servers": address, "group.id": group, "enable.auto.commit": False, **_CLIENT}
        )

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self.tried += 1
            with contextlib.suppress(KafkaException):
                done = self._consumer.commit(offsets=[TopicPartition(self._topic, 0, self.tried)], asynchronous=False)
                if done is not None and done[0].error is None:
                    self.promised = self.tried
        self._consumer.close()

    def check(self, address: str, group: str) -> None:
        reader = Consumer({"bootstrap.servers": address, "group.id": group})
        found = reader.committed([TopicPartition(self._topic, 0)], timeout=20)[0].offset
        reader.close()
        assert self.promised >= 0
        assert self.promised <= found <= self.tried, f"{self.promised} was promised, {self.tried} tried, {found} found"


class Administrator:
    """Creates topics, and sets retention.ms of each topic to the number of the topic."""

    def __init__(self, address: str, replicas: int = 1, pause_s: float = 0.02) -> None:
        """`pause_s` is the time between two topics."""
        self._pause_s = pause_s
        self.created: set[str] = set()
        self.configured: dict[str, str] = {}
        self._replicas = replicas
        self._admin = AdminClient({"bootstrap.servers": address, **_CLIENT})

    def run(self, stop: threading.Event) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            name = f"made-{number}"
            with contextlib.suppress(KafkaException):
                self._admin.create_topics([NewTopic(name, 1, self._replicas)], request_timeout=5)[name].result()
                self.created.add(name)
                entry = ConfigEntry("retention.ms", str(number), incremental_operation=AlterConfigOpType.SET)
                resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
                self._admin.incremental_alter_configs([resource], request_timeout=5)[resource].result()
                self.configured[name] = str(number)
            stop.wait(self._pause_s)

    def check(self, address: str) -> None:
        admin = AdminClient({"bootstrap.servers": address})
        missing = self.created - set(admin.list_topics(timeout=20).topics)
        assert not missing, f"topics that were created are gone: {sorted(missing)}"
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in self.configured]
        for resource, answer in admin.describe_configs(resources).items():
            assert answer.result()["retention.ms"].value == self.configured[resource.name], resource.name


def create_logs(address: str, replicas: int = 1, segment_bytes: str = _SEGMENT_BYTES) -> None:
    """`segment_bytes` is the name of the config that allows small segments: `segment.bytes` before Apache Kafka 4."""
    admin = AdminClient({"bootstrap.servers": address})
    config = {segment_bytes: "200000", "index.interval.bytes": "1024"}
    config["min.insync.replicas"] = str(max(replicas - 1, 1))
    create_topics(admin, [NewTopic(f"log-{codec}", PARTITIONS, replicas, config=config) for codec in CODECS])


def read_partition(address: str, topic: str, partition: int) -> list[tuple[int, int]]:
    """The record number and the offset of every record of a partition."""
    reader = Consumer(
        {"bootstrap.servers": address, "group.id": "reader", "enable.auto.commit": False, "check.crcs": True}
    )
    where = TopicPartition(topic, partition)
    low, high = _watermarks(reader, where)
    where.offset = low
    reader.assign([where])
    found: list[tuple[int, int]] = []
    while len(found) < high - low:
        messages = reader.consume(min(high - low - len(found), 10_000), timeout=20)
        assert messages, f"{topic}-{partition}: {len(found)} of {high - low} records came"
        for message in messages:
            assert message.error() is None, message.error()
            value, offset = message.value(), message.offset()
            assert value is not None
            assert offset is not None
            found.append((int(value.partition(b" ")[0]), offset))
    reader.close()
    return found


def _watermarks(reader: Consumer, where: TopicPartition) -> tuple[int, int]:
    """The low and high watermark. A new leader that does not know its high watermark yet answers OFFSET_NOT_AVAILABLE
    (KIP-207)."""
    return answered(lambda: reader.get_watermark_offsets(where, timeout=20), passing=(KafkaError.OFFSET_NOT_AVAILABLE,))


def _first_gap(topic: str, partition: int, numbers: list[int]) -> str:
    for expected, number in enumerate(numbers):
        if number != expected:
            return f"{topic}-{partition}: record {number} stands where {expected} belongs ({len(numbers)} records)"
    return f"{topic}-{partition}: only {len(numbers)} records are there"
