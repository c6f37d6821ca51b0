"""A producer (librdkafka) and a consumer group that move from a cluster to its mirror, and know what must be there.

The record at offset N of a partition is the Nth that was written there: a producer writes no control records. So a log
is right if its values are a prefix of what was sent, at these offsets, and the group is right if its offsets are.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.system.chaos.workload import Acknowledged

TOPIC: Final = "orders"
GROUP: Final = "billing"
PARTITIONS: Final = 3
_CLIENT: Final = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 0}
_FILLER: Final = "all work and no play " * 20


class Writing:
    """Writes into one cluster at a time. `logs` has the values of each partition, in order."""

    def __init__(self, acknowledged: Acknowledged) -> None:
        self.logs: list[list[str]] = [[] for _ in range(PARTITIONS)]
        self.promised: list[dict[int, str]] = [{} for _ in range(PARTITIONS)]
        """By partition: acknowledged offset -> value."""
        self.failures: list[str] = []
        self.total = 0
        """The number of acknowledgements in all rounds."""
        self._acknowledged = acknowledged
        self._round = 0

    def start(self, address: str) -> None:
        """Begin to write into a cluster whose partitions have the records of `logs`."""
        self._round += 1
        self._is_over = False
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 2,
                "batch.size": 20_000,
                "message.timeout.ms": 600_000,
                "queue.buffering.max.messages": 5_000,
                "error_cb": self._on_error,
                **_CLIENT,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def lose(self) -> None:
        """The cluster is gone: what it has not acknowledged is unknown."""
        self._is_over = True
        self._end()
        self._producer.purge()
        self._producer.flush(10)

    def finish(self) -> None:
        """Stop when everything is acknowledged."""
        self._end()
        assert self._producer.flush(120) == 0

    def _end(self) -> None:
        self._stop.set()
        self._thread.join()

    def cut(self, partition: int, end: int) -> list[str]:
        """The cluster that has taken over has the partition up to `end`. Returns the acknowledged values from there on,
        which are lost."""
        promised = self.promised[partition]
        lost = [value for offset, value in sorted(promised.items()) if offset >= end]
        self.promised[partition] = {offset: value for offset, value in promised.items() if offset < end}
        del self.logs[partition][end:]
        return lost

    def _run(self) -> None:
        while not self._stop.is_set():
            for partition in range(PARTITIONS):
                number = len(self.logs[partition])
                value = f"{partition}-{number} of round {self._round} {_FILLER[: number % 300]}"
                try:
                    self._producer.produce(TOPIC, value, partition=partition, on_delivery=self._on_delivery(value))
                except BufferError:
                    continue
                self.logs[partition].append(value)
            self._producer.poll(0.001)
            self._stop.wait(0.002)  # so that the mirror, on two processors, can follow

    def _on_delivery(self, value: str) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, message: Message) -> None:
            partition, offset = message.partition(), message.offset()
            if error is None and partition is not None and offset is not None:
                self.promised[partition][offset] = value
                self.total += 1
                self._acknowledged.add()
            elif not self._is_over:
                self.failures.append(f"{value[:40]}: {error}")

        return delivered

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.failures.append(f"fatal: {error}")


class Reading:
    """One member of the group, in one cluster at a time. It commits only what it has processed."""

    def __init__(self, expected: Writing) -> None:
        self.failures: list[str] = []
        self.again = 0
        """Records that came twice: processed, and not yet committed when the member or its offsets moved."""
        self.processed = [0] * PARTITIONS
        """The offset after the last record of each partition that was processed."""
        self.tried = [0] * PARTITIONS
        """The largest offsets that the member has tried to commit."""
        self.committed = [0] * PARTITIONS
        """The largest offsets whose commit was acknowledged by the present cluster."""
        self.values: list[dict[int, str]] = [{} for _ in range(PARTITIONS)]
        self._expected = expected

    def start(self, address: str, committed: list[int]) -> None:
        """Begin to read in a cluster that has these offsets for the group."""
        self.committed = list(committed)
        self._stop, self._ended = threading.Event(), threading.Event()
        self._commits = False
        threading.Thread(target=self._run, args=(address,), daemon=True).start()

    def stop(self) -> None:
        """Returns when nothing is processed any more. The member may be a while in leaving a cluster that is gone."""
        self._stop.set()
        assert self._ended.wait(60)

    def cut(self, partition: int, end: int) -> None:
        """Records from `end` on were lost; other ones will have their offsets."""
        self.processed[partition] = min(self.processed[partition], end)
        self.values[partition] = {offset: value for offset, value in self.values[partition].items() if offset < end}

    def _run(self, address: str) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "check.crcs": True,
                "session.timeout.ms": 10_000,
                "on_commit": self._on_committed,
                **_CLIENT,
            }
        )
        following: dict[int, int] = {}
        """By partition: the offset that must come next. Empty after an assignment."""
        consumer.subscribe([TOPIC], on_assign=lambda *_: following.clear())
        try:
            while not self._stop.is_set():
                for message in consumer.consume(500, timeout=0.2):
                    self._take(message, following)
                self._commit(consumer, following)
        finally:
            self._ended.set()
            consumer.close()

    def _take(self, message: Message, following: dict[int, int]) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        if message.error() is not None or partition is None or offset is None or value is None:
            return
        after = following.get(partition)
        if after is not None and offset != after:
            self.failures.append(f"partition {partition}: {offset} came, {after} was next")
        if after is None and offset < self.committed[partition]:
            self.failures.append(
                f"partition {partition}: {offset} came again after {self.committed[partition]} was kept"
            )
        if offset > self.processed[partition]:
            self.failures.append(f"partition {partition}: {offset} came, {self.processed[partition]} never did")
        self.again += int(offset < self.processed[partition])
        self.values[partition][offset] = value.decode()
        self.processed[partition] = max(self.processed[partition], offset + 1)
        following[partition] = offset + 1

    def _commit(self, consumer: Consumer, following: dict[int, int]) -> None:
        if not following or self._commits:  # one at a time, so that none overtakes another
            return
        wanted = dict(following)
        for partition, offset in wanted.items():
            self.tried[partition] = max(self.tried[partition], offset)
        offsets = [TopicPartition(TOPIC, partition, offset) for partition, offset in sorted(wanted.items())]
        try:
            consumer.commit(offsets=offsets)  # a call that waits would wait for ever if the cluster is gone
        except KafkaException:
            return  # with the next records it tries again
        self._commits = True

    def _on_committed(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        self._commits = False
        if error is not None or self._ended.is_set():
            return
        for done in partitions:
            if done.error is None:
                self.committed[done.partition] = max(self.committed[done.partition], done.offset)


class Tally:
    """What a run has counted."""

    def __init__(self) -> None:
        self.kills = self.failovers = self.lost = self.behind = 0
        self.by_node: dict[str, int] = defaultdict(int)
        self.failover_s: list[float] = []

    def text(self, writing: Writing, reading: Reading) -> str:
        slowest = max(self.failover_s, default=0.0)
        return (
            f"{self.kills} kills ({dict(sorted(self.by_node.items()))}), {self.failovers} failovers (slowest "
            f"{slowest:.1f} s), {writing.total} records acknowledged, {self.lost} of them in tails that were not "
            f"mirrored, {sum(reading.processed)} in the group, {reading.again} of them again, because the last commits "
            f"were not mirrored yet or not acknowledged ({self.behind} at failovers)"
        )
