"""Shell: a group that reads a log while brokers are killed. The group receives every record at least once, in order.

Each record has its number in the partition (`workload.Writer`). Members commit only the records that they have
processed. So a new owner of a partition begins at a number that was seen, or at the next number; and while a member
owns a partition, the numbers increase by one.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.progress import Standstill
from tests.system.chaos.workload import PARTITIONS


class Readers:
    """The members of the group. Each thread runs `run`; call `check` when the writers have ended."""

    def __init__(self, address: str, group: str, topic: str, protocol: str = "classic") -> None:
        self.rebalances = 0
        self.again = 0
        """The number of records received more than once, which at-least-once delivery allows."""
        self.failures: list[str] = []
        self._address = address
        self._group = group
        self._topic = topic
        self._settings: dict[str, str | int] = {"group.protocol": protocol}
        if protocol == "classic":  # with the new protocol the group has these
            self._settings |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
        self._seen: dict[int, int] = defaultdict(lambda: -1)
        """By partition: the number up to which every record was processed."""
        self._lock = threading.Lock()

    def run(self, stop: threading.Event) -> None:
        """Runs one member until `stop` is set."""
        self._read(stop.is_set)

    def check(self, sent: list[int]) -> int:
        """A last member of the group reads the remaining records. Returns the number of different records read."""
        standstill = Standstill(f"the group has read {sent} records of {self._topic}")

        def is_complete() -> bool:
            standstill.check(dict(self._seen))
            return self._all(sent)

        self._read(is_complete)
        assert not self.failures, f"{self._topic}: {self.failures[:5]}"
        return sum(sent)

    def _all(self, sent: list[int]) -> bool:
        return all(self._seen[partition] == sent[partition] - 1 for partition in range(PARTITIONS))

    def _read(self, ended: Callable[[], bool]) -> None:
        last: dict[int, int] = {}
        """By partition of this member: the last number received."""

        def on_assign(_: Consumer, partitions: list[TopicPartition]) -> None:
            self.rebalances += 1
            for partition in partitions:
                last.pop(partition.partition, None)

        consumer = Consumer(
            {
                "bootstrap.servers": self._address,
                "group.id": self._group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "check.crcs": True,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                **self._settings,
            }
        )
        consumer.subscribe([self._topic], on_assign=on_assign)
        try:
            while not ended():
                for message in consumer.consume(500, timeout=0.2):
                    value, partition = message.value(), message.partition()
                    if message.error() is None and value is not None and partition is not None:
                        self._take(last, partition, int(value.partition(b" ")[0]))
                self._commit(consumer, last)
        finally:
            consumer.close()

    def _take(self, last: dict[int, int], partition: int, number: int) -> None:
        with self._lock:
            seen, before = self._seen[partition], last.get(partition)
            if before is not None and number != before + 1:
                self.failures.append(f"partition {partition}: {number} came after {before}")
            if number > seen + 1:
                self.failures.append(f"partition {partition}: {number} came, and {seen + 1} never did")
            if number <= seen:
                self.again += 1
            self._seen[partition] = max(seen, number)
            last[partition] = number

    def _commit(self, consumer: Consumer, last: dict[int, int]) -> None:
        """Commits the member's position. After a failed commit the member commits again with the next records, or the
        next owner reads the records again."""
        if not last:
            return
        try:
            consumer.commit(asynchronous=False)
        except KafkaException:
            return
