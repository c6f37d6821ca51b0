"""Exactly-once processing under faults: a producer writes numbers, and an application copies them in transactions."""

from __future__ import annotations

import random
import sys
import threading
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.librdkafka import create_topics
from tests.progress import flush
from tests.system.transactions.exactly_once import (
    PARTITIONS,
    Application,
    Command,
    Progress,
    read_committed,
    wait_copied,
)

PER_TRANSACTION = 100


def librdkafka(bootstrap: str, source: str, target: str, group: str) -> list[str]:
    words = [bootstrap, source, target, group, str(PER_TRANSACTION)]
    return [sys.executable, "-m", "tests.system.transactions.copier", *words]


class Copies:
    """A producer and a copying application. `run` feeds both in a thread; `check` waits for the last copy and compares
    input and output."""

    def __init__(self, address: str, folder: Path, name: str, command: Command) -> None:
        self.name = name
        self._address = address
        self._input, self._output, self._group = f"numbers-{name}", f"copies-{name}", f"copiers-{name}"
        self._sent = 0
        self._producer = Producer(
            {"bootstrap.servers": address, "enable.idempotence": True, "message.timeout.ms": 300_000, "log_level": 0}
        )
        admin = AdminClient({"bootstrap.servers": address})
        create_topics(admin, [NewTopic(name, PARTITIONS, 3) for name in (self._input, self._output)])
        self._app = Application(
            command(address, self._input, self._output, self._group), folder / f"copier-{name}.log.txt"
        )
        self._rng = random.Random(name)

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(0.05):
            for _ in range(8):
                self._producer.produce(self._input, str(self._sent), partition=self._sent % PARTITIONS)
                self._sent += 1
            self._producer.poll(0)
            self._app.keep_running()
            if self._rng.random() < 0.005:
                self._app.kill()

    def check(self) -> int:
        """Checks that every number is in the output once, in order. Returns the number of copies."""
        flush(self._producer)
        progress = Progress(self._address, self._input, self._group)
        try:
            wait_copied(progress, self._sent, self._app, f"copier {self.name}")
        finally:
            self._app.kill()
            progress.close()
        output = read_committed(self._address, self._output, PARTITIONS)
        for partition in range(PARTITIONS):
            expected = [str(number) for number in range(partition, self._sent, PARTITIONS)]
            assert output[partition] == expected, (
                f"{self.name}: {len(output[partition])} of {len(expected)} numbers were copied"
            )
        return self._sent
