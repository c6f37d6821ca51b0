"""The harness of read-process-write tests: a broker process and an application, both killed -9 at random.

input ──► application (any client) ──► output            then: output equals input, once each, in order
"""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing.process import BrokerProcess

PARTITIONS = 2
BROKER_SETTINGS = (
    "group.initial.rebalance.delay.ms=0",
    "offsets.topic.num.partitions=2",
    "transaction.state.log.num.partitions=2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=500",
    "group.min.session.timeout.ms=1000",
)

Command = Callable[[str, str, str, str], list[str]]
"""(bootstrap servers, input, output, group) -> how the application is started."""


class Application:
    """The process under test, started again whenever it ends."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.command = command
        self.log = log
        self.starts = 0
        self.process: subprocess.Popen[bytes] | None = None

    def keep_running(self) -> None:
        if self.process is None or self.process.poll() is not None:
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
            self.starts += 1

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def prove(
    folder: Path, command: Command, *, records: int, seed: int, every_s: tuple[float, float], limit_s: float
) -> dict[str, float]:
    """Copy `records` while killing something every so often; gives counts and times. Raises AssertionError."""
    rng = random.Random(seed)
    with BrokerProcess(folder / "data", settings=BROKER_SETTINGS) as broker:
        bootstrap = broker.bootstrap_servers
        _create(bootstrap, "input", "output")
        _fill(bootstrap, "input", records)
        app = Application(command(bootstrap, "input", "output", "copiers"), folder / "application.log.txt")
        began = time.monotonic()
        kills = {"broker": 0, "application": 0}
        next_kill = began + rng.uniform(*every_s)
        try:
            while not _is_done(bootstrap, records):
                now = time.monotonic()
                assert now - began < limit_s, f"not done after {limit_s} s (seed {seed}); see {folder}"
                app.keep_running()
                if now >= next_kill:
                    victim = rng.choice(sorted(kills))
                    kills[victim] += 1
                    if victim == "broker":
                        broker.kill()
                        broker.start()
                    else:
                        app.kill()
                    next_kill = time.monotonic() + rng.uniform(*every_s)
        finally:
            app.kill()
        took = time.monotonic() - began
        copied = read_committed(bootstrap, "output", PARTITIONS)
        for partition in range(PARTITIONS):
            expected = [f"{i}" for i in range(partition, records, PARTITIONS)]
            assert copied[partition] == expected, _difference(expected, copied[partition], seed)
    return {**kills, "starts": app.starts, "seconds": round(took, 1)}


def _difference(expected: list[str], found: list[str], seed: int) -> str:
    lost, extra = set(expected) - set(found), len(found) - len(set(found))
    return f"seed {seed}: {len(found)} of {len(expected)} records; lost {sorted(lost)[:5]}, {extra} twice"


def _create(bootstrap: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics]).values():
        future.result(20)


def _fill(bootstrap: str, topic: str, records: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for i in range(records):
        producer.produce(topic, str(i), partition=i % PARTITIONS)
        if i % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def _is_done(bootstrap: str, records: int) -> bool:
    """The group has committed the end of the input: then, in the same transactions, the output is complete."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "copiers", "log_level": 0})
    try:
        where = [TopicPartition("input", p) for p in range(PARTITIONS)]
        return sum(max(tp.offset, 0) for tp in consumer.committed(where, timeout=2)) >= records
    except Exception:  # noqa: BLE001 - the broker is away, or a transaction is open
        return False
    finally:
        consumer.close()
        time.sleep(0.05)


def read_committed(bootstrap: str, topic: str, partitions: int) -> dict[int, list[str]]:
    """Every committed value of a topic up to its last stable offset, by partition."""
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
    deadline = time.monotonic() + 60
    while len(ended) < partitions:
        assert time.monotonic() < deadline, f"the end of {topic} was not reached"
        for message in consumer.consume(1000, timeout=1.0):
            if message.error() is None:
                found[message.partition()].append((message.value() or b"").decode())
            else:
                ended.add(message.partition())
    consumer.close()
    return found
