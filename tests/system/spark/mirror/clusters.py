"""Two clusters A and B, what is in their topics, and a copier that runs until it has copied everything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException
from confluent_kafka import KafkaError as ForeignError
from confluent_kafka import TopicPartition as ForeignPartition

from barnabas.client.blocking import Admin
from barnabas.client.values import LATEST, IsolationLevel
from barnabas.core.errors import KafkaError
from barnabas.core.hashing import partition_for_key
from barnabas.core.ids import TopicPartition
from barnabas.spark.mirror.copying.copier import SparkCopier
from barnabas.spark.mirror.ports import CopiedRange, CopiedRanges, CopyPlan
from barnabas.spark.mirror.records import SourceOffset, decode_source_offset, encode_source_offset
from tests.progress import wait_until
from tests.system.spark.broker import Record, Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OFFSETS = "mm2-offsets.A.internal"
OFFSETS_PARTITIONS = 5
CLEANING = ("log.cleaner.backoff.ms=100", "log.initial.task.delay.ms=100")
"""Settings of brokers whose log cleaner looks often."""


@dataclass(frozen=True)
class Found:
    """A record, as librdkafka reads it."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int

    @property
    def content(self) -> tuple[Any, ...]:
        return (self.key, self.value, self.headers, self.timestamp)


def read_all(servers: str, topic: str, partition: int = 0, isolation: str = "read_committed") -> list[Found]:
    """All records of a partition."""
    settings = {"bootstrap.servers": servers, "group.id": "reader", "enable.partition.eof": True}
    settings |= {"isolation.level": isolation, "fetch.message.max.bytes": 20_000_000}
    settings |= {"fetch.wait.max.ms": 10, "enable.metrics.push": False}  # the end is reached sooner
    consumer = Consumer(settings)
    found = []
    try:
        consumer.assign([ForeignPartition(topic, partition, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(30)
            assert message is not None, "the consumer stalls"
            error = message.error()
            if error is None:
                _, timestamp = message.timestamp()
                headers = tuple(message.headers() or ())
                found.append(Found(message.offset(), message.key(), message.value(), headers, timestamp))
            elif error.code() == ForeignError._PARTITION_EOF:
                return found
            else:
                raise KafkaException(error)
    finally:
        consumer.close()


@dataclass
class Pair:
    """The two clusters, and what a copier has reported."""

    spark: SparkSession
    servers: tuple[str, str]
    source: Topics
    target: Topics
    copied: list[CopiedRange] = field(default_factory=list)

    def plan(self, topics: Mapping[str, str], **more: Any) -> CopyPlan:
        source = {"bootstrap.servers": self.servers[0], **more.pop("source_settings", {})}
        target = {"bootstrap.servers": self.servers[1], **more.pop("target_settings", {})}
        return CopyPlan("A", "B", source, target, topics, **{"offsets_topic": OFFSETS, **more})

    @contextmanager
    def copying(self, plan: CopyPlan) -> Iterator[SparkCopier]:
        """A copier that runs."""
        copier = SparkCopier(self.spark)
        copier.start(plan, self.on_copied)
        try:
            yield copier
        finally:
            copier.stop(60)

    def on_copied(self, batch: CopiedRanges) -> None:
        self.copied += batch.ranges

    def copy(self, plan: CopyPlan) -> None:
        """Copy until the positions have reached the ends of the source topics."""
        with self.copying(plan) as copier:
            self.wait(plan, copier)

    def wait(self, plan: CopyPlan, copier: SparkCopier) -> None:
        ends = self.ends(plan)
        stored = self.positions()

        def reached() -> dict[TopicPartition, int]:
            failure = copier.failure()
            if failure is not None:
                raise failure
            return stored | {copied.partition: copied.next_upstream for copied in self.copied}

        def is_done() -> bool:
            positions = reached()
            return all(positions.get(tp, 0) >= end for tp, end in ends.items())

        wait_until(is_done, "everything is copied", progress=reached)

    def ends(self, plan: CopyPlan) -> dict[TopicPartition, int]:
        level = plan.source_settings.get(
            "isolation.level", "read_committed" if plan.transactional else "read_uncommitted"
        )
        with Admin({"bootstrap.servers": self.servers[0]}) as admin:
            partitions = [
                TopicPartition(name, p.partition)
                for name, topic in admin.describe_topics(list(plan.topics)).items()
                if not isinstance(topic, KafkaError)
                for p in topic.partitions
            ]
            found = admin.list_offsets(dict.fromkeys(partitions, LATEST), isolation=IsolationLevel.parse(level))
        ends = {}
        for tp, answer in found.items():
            assert not isinstance(answer, KafkaError), answer
            ends[tp] = answer.offset
        return ends

    def positions(self) -> dict[TopicPartition, int]:
        """The next upstream offsets in the offsets topic of B."""
        found: dict[TopicPartition, int] = {}
        for partition in range(OFFSETS_PARTITIONS):
            for record in read_all(self.servers[1], OFFSETS, partition):
                position = decode_source_offset(record.key or b"", record.value)
                if position is not None and position.offset is not None:
                    found[position.partition] = position.offset + 1
        return found

    def store_position(self, tp: TopicPartition, last: int) -> None:
        """Store the last copied offset, as Kafka's MirrorMaker does."""
        key, value = encode_source_offset(SourceOffset("A", tp, last))
        self.target.produce(OFFSETS, [Record(value, key, partition_for_key(key, OFFSETS_PARTITIONS))])

    def runs(self, tp: TopicPartition) -> dict[int, int]:
        """Upstream offset -> downstream offset, for every record that was reported."""
        pairs: dict[int, int] = {}
        for copied in self.copied:
            if copied.partition == tp:
                for run in copied.runs:
                    pairs |= {run.upstream + i: run.downstream + i for i in range(run.count)}
        return pairs


def contents(records: Sequence[Found]) -> list[tuple[Any, ...]]:
    return [record.content for record in records]
