"""Exactly-once under faults: a feeder writes numbers, an application copies them in transactions."""

from __future__ import annotations

import random
import sys
import threading
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.system.transactions.exactly_once import PARTITIONS, Application, Progress, read_committed

INPUT, OUTPUT, GROUP = "numbers", "copies", "copiers"
PER_TRANSACTION = 50
PATIENCE_S = 120.0


class Copies:
    """`run` in a thread of its own; `check` afterwards waits for the last copy and compares."""

    def __init__(self, address: str, folder: Path) -> None:
        self._address = address
        self._sent = 0
        self._producer = Producer(
            {"bootstrap.servers": address, "enable.idempotence": True, "message.timeout.ms": 300_000, "log_level": 0}
        )
        admin = AdminClient({"bootstrap.servers": address})
        for future in admin.create_topics([NewTopic(name, PARTITIONS, 3) for name in (INPUT, OUTPUT)]).values():
            future.result(20)
        words = [address, INPUT, OUTPUT, GROUP, str(PER_TRANSACTION)]
        self._app = Application(
            [sys.executable, "-m", "tests.system.transactions.copier", *words], folder / "copier.log.txt"
        )
        self._chance = random.Random(folder.name)

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(0.05):
            for _ in range(8):
                self._producer.produce(INPUT, str(self._sent), partition=self._sent % PARTITIONS)
                self._sent += 1
            self._producer.poll(0)
            self._app.keep_running()
            if self._chance.random() < 0.005:
                self._app.kill()

    def check(self) -> int:
        """Every number is in the output once, in order; the last copies may take long, but go on. Gives how many."""
        assert self._producer.flush(PATIENCE_S) == 0
        progress = Progress(self._address, INPUT)
        pause, copied_before = threading.Event(), -1
        deadline = time.monotonic() + PATIENCE_S
        try:
            while copied_before < self._sent and time.monotonic() < deadline:
                self._app.keep_running()
                if (copied := progress.committed()) > copied_before:
                    copied_before, deadline = copied, time.monotonic() + PATIENCE_S
                pause.wait(0.2)
        finally:
            self._app.kill()
            progress.close()
        output = read_committed(self._address, OUTPUT, PARTITIONS)
        for partition in range(PARTITIONS):
            expected = [str(number) for number in range(partition, self._sent, PARTITIONS)]
            assert output[partition] == expected, f"{len(output[partition])} of {len(expected)} numbers were copied"
        return self._sent
