"""A tiered topic of a cluster of real processes: what was acknowledged is written, kept locally, and read back."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing.process import BrokerProcess
from barnabas.testing.process_cluster import ClusterProcess
from tests.librdkafka import answered, create_topics
from tests.progress import Standstill, flush, wait_until

TOPIC: Final = "archive"
SEGMENT_BYTES: Final = 1_048_576
VALUE_BYTES: Final = 4_000
SETTINGS: Final = (
    "remote.log.storage.system.enable=true",
    "remote.log.manager.task.interval.ms=300",
    "rlmm.config.remote.log.metadata.topic.num.partitions=3",
    "log.retention.check.interval.ms=300",
    "log.initial.task.delay.ms=300",
    "file.delete.delay.ms=100",
)


def value_of(number: int) -> bytes:
    """The value of record `number`: bytes that do not repeat."""
    return hashlib.shake_128(str(number).encode()).digest(VALUE_BYTES)


class Archive:
    """The topic, with one partition on three brokers. Broker 3 is its preferred leader."""

    def __init__(self, cluster: ClusterProcess) -> None:
        self.cluster = cluster
        self.address = cluster.bootstrap_servers
        self.admin = AdminClient({"bootstrap.servers": self.address})
        self.written = 0

    def create(self, **configs: str) -> None:
        wanted = {
            "remote.storage.enable": "true",
            "segment.bytes": str(SEGMENT_BYTES),
            "local.retention.bytes": str(2 * SEGMENT_BYTES),
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "min.insync.replicas": "2",
            **{name.replace("_", "."): text for name, text in configs.items()},
        }
        topic = NewTopic(TOPIC, num_partitions=1, replica_assignment=[[3, 1, 2]], config=wanted)
        create_topics(self.admin, [topic])

    def write(self, count: int) -> None:
        """Write the next records, and wait until all are acknowledged."""
        producer = Producer({"bootstrap.servers": self.address, "enable.idempotence": True, "linger.ms": 5})
        failures: list[object] = []

        def on_delivery(error: object, _: object) -> None:
            if error is not None:
                failures.append(error)

        for number in range(self.written, self.written + count):
            producer.produce(TOPIC, key=str(number).encode(), value=value_of(number), on_delivery=on_delivery)
            if number % 500 == 0:
                flush(producer)
        flush(producer)
        assert not failures, failures[:3]
        self.written += count

    def read_all(self) -> None:
        """Another client reads everything from the beginning, and compares each record."""
        consumer = Consumer(
            {"bootstrap.servers": self.address, "group.id": "reader", "enable.auto.commit": False}
            | {"auto.offset.reset": "error"}
        )
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        expected, standstill = 0, Standstill(f"{self.written} records are read")
        try:
            while expected < self.written:
                for message in consumer.consume(1_000, 1.0):
                    assert message.error() is None or message.error().retriable(), message.error()
                    if message.error() is None:
                        assert (message.key(), message.value()) == (str(expected).encode(), value_of(expected))
                        expected += 1
                standstill.check(expected)
        finally:
            consumer.close()

    def local_bases(self, node: BrokerProcess) -> list[int]:
        """The base offsets of the local segments of a broker."""
        return sorted(int(path.stem) for path in (node.data_dir / f"{TOPIC}-0").glob("*.log"))

    def local_start(self, node: BrokerProcess) -> int:
        return min(self.local_bases(node), default=0)

    def wait_short(self, *nodes: BrokerProcess) -> None:
        """Wait until the local logs of these brokers begin above most of the records."""
        for node in nodes:
            wait_until(
                lambda node=node: self.local_start(node) > self.written // 2,  # type: ignore[misc]
                f"the local log of {node.data_dir.name} is short",
                progress=lambda node=node: self.local_bases(node),  # type: ignore[misc]
            )

    def elect_preferred(self) -> None:
        """Make broker 3 the leader, as soon as it is in sync."""

        def leads() -> bool:
            answered(lambda: self.admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(TOPIC, 0)]).result(60))
            return self.leader() == 3

        wait_until(leads, "broker 3 leads")

    def leader(self) -> int:
        metadata = answered(lambda: self.admin.list_topics(TOPIC, timeout=30))
        return int(metadata.topics[TOPIC].partitions[0].leader)


def object_files(root: Path, suffix: str = "") -> Sequence[Path]:
    """The objects of a store in a directory."""
    return [path for path in root.rglob(f"*{suffix}") if path.is_file()]
