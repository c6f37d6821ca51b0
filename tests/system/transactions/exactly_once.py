"""The harness of read-process-write tests: a broker process and an application, both killed -9 at random.

input ──► application (any client) ──► output            then: output equals input, once each, in order
"""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.core.child_processes import start_child
from barnabas.testing.process import BrokerProcess
from tests.progress import Standstill, flush

PARTITIONS = 2
BROKER_SETTINGS = (
    "group.initial.rebalance.delay.ms=0",
    "offsets.topic.num.partitions=2",
    "transaction.state.log.num.partitions=2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=500",
    "group.min.session.timeout.ms=1000",
)

Command = Callable[[str, str, str, str], list[str]]
"""(bootstrap servers, input, output, group) -> the command line of the application."""


class Application:
    """The process under test. `keep_running` starts the process again if it has ended."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.command = command
        self.log = log
        self.starts = 0
        self.process: subprocess.Popen[bytes] | None = None

    def keep_running(self) -> None:
        if self.process is None or self.process.poll() is not None:
            with self.log.open("ab") as log:
                self.process = start_child(self.command, stdout=log, stderr=log)
            self.starts += 1

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def prove(folder: Path, command: Command, *, records: int, seed: int, kills: int) -> dict[str, float]:
    """Copies `records` records while the application and the broker are killed in turn, `kills` times in all. Returns
    counts and times.

    A killed process is started again. The next kill comes a short random time after the copying has continued, so that
    every process is killed while it works. Raises AssertionError if input and output differ.
    """
    rng = random.Random(seed)
    with BrokerProcess(folder / "data", settings=BROKER_SETTINGS) as broker:
        bootstrap = broker.bootstrap_servers
        _create(bootstrap, "input", "output")
        app = Application(command(bootstrap, "input", "output", "copiers"), folder / "application.log.txt")
        progress = Progress(bootstrap, "input")
        began = time.monotonic()
        done = {"broker": 0, "application": 0}
        fed = 0
        try:
            for round_number in range(kills + 1):
                upto = records * (round_number + 1) // (kills + 1)
                _fill(bootstrap, "input", fed, upto)
                app.keep_running()
                wait_copied(progress, fed + 1, app, f"seed {seed}; see {folder}")
                fed = upto
                if round_number < kills:
                    _sleep(rng.uniform(0.0, 0.05))  # somewhere in the middle of a transaction
                    victim = sorted(done)[round_number % 2]
                    done[victim] += 1
                    if victim == "broker":
                        broker.kill()
                        broker.start()
                    else:
                        app.kill()
            wait_copied(progress, records, app, f"seed {seed}; see {folder}")
        finally:
            app.kill()
            progress.close()
        took = time.monotonic() - began
        copied = read_committed(bootstrap, "output", PARTITIONS)
        for partition in range(PARTITIONS):
            expected = [f"{i}" for i in range(partition, records, PARTITIONS)]
            assert copied[partition] == expected, _difference(expected, copied[partition], seed)
    return {**done, "starts": app.starts, "seconds": round(took, 1)}


def wait_copied(progress: Progress, offset: int, app: Application, which: str) -> None:
    """Returns when the group has copied `offset` records. The application is restarted whenever it ends."""
    standstill = Standstill(f"{offset} records are copied ({which})")
    highest = 0
    while (copied := progress.committed()) < offset:
        highest = max(highest, copied)
        standstill.check(highest)
        app.keep_running()


def _sleep(seconds: float) -> None:
    """Sleeps until the random moment of a kill in the middle of a transaction, or while a fault lasts."""
    time.sleep(seconds)  # no condition is waited for: the moment is random


class Progress:
    """Reads the progress of the group: the number of records of `topic` that it has copied, from its offsets."""

    def __init__(self, bootstrap: str, topic: str, group: str = "copiers") -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "log_level": 0,
                "reconnect.backoff.max.ms": 200,
                "metadata.recovery.strategy": "none",
            }
        )
        self._where = [TopicPartition(topic, p) for p in range(PARTITIONS)]

    def committed(self) -> int:
        try:
            found = self._consumer.committed(self._where, timeout=1)
        except KafkaException:  # the broker is down, or a transaction is open
            return 0
        return sum(max(tp.offset, 0) for tp in found)

    def close(self) -> None:
        self._consumer.close()


def _difference(expected: list[str], found: list[str], seed: int) -> str:
    lost, extra = set(expected) - set(found), len(found) - len(set(found))
    return f"seed {seed}: {len(found)} of {len(expected)} records; lost {sorted(lost)[:5]}, {extra} twice"


def _create(bootstrap: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics]).values():
        future.result(20)


def _fill(bootstrap: str, topic: str, start: int, end: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "enable.idempotence": True})
    for i in range(start, end):
        producer.produce(topic, str(i), partition=i % PARTITIONS)
        if i % 10_000 == 0:
            producer.poll(0)
    flush(producer)


def read_committed(bootstrap: str, topic: str, partitions: int) -> dict[int, list[str]]:
    """All committed values of a topic up to its last stable offset, by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "checker",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    found: dict[int, list[str]] = {p: [] for p in range(partitions)}
    ended: set[int] = set()
    standstill = Standstill(f"the end of every partition of {topic} is read")
    while len(ended) < partitions:
        standstill.check((len(ended), sum(map(len, found.values()))))
        for message in consumer.consume(1000, timeout=0.1):  # it waits for so long, or for 1000
            if message.error() is None:
                found[message.partition()].append((message.value() or b"").decode())
            else:
                ended.add(message.partition())
    consumer.close()
    return found
