"""The producer workload waits when librdkafka's queue is full, and counts records that fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from bench import workloads


class SlowProducer:
    """Stands for `confluent_kafka.Producer`: a queue of `ROOM` records, from which every 20th poll takes one."""

    ROOM = 3
    polls = sent = 0
    fails_at = -1

    def __init__(self, settings: dict[str, Any]) -> None:
        self._on_delivery: Callable[[str, None], None] = settings["on_delivery"]
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def list_topics(self, topic: str, timeout: float) -> None:
        pass

    def produce(self, topic: str, value: bytes) -> None:
        if self._waiting == self.ROOM:
            raise BufferError("Local: Queue full")
        self._waiting += 1
        type(self).sent += 1

    def poll(self, timeout: float) -> int:
        type(self).polls += 1
        if self.polls % 20 == 0 and self._waiting:
            self._waiting -= 1
            if self.sent == self.fails_at:
                self._on_delivery("the broker is gone", None)
        return 0

    def flush(self, timeout: float) -> int:
        self.poll(timeout)
        return self._waiting


def produce(monkeypatch: pytest.MonkeyPatch, **attributes: int) -> type[SlowProducer]:
    kind = type("OneSlowProducer", (SlowProducer,), attributes)
    monkeypatch.setattr(workloads, "Producer", kind)
    workloads.produce("nowhere", topic="t", size=100_000, batch=16_384, codec="none", megabytes=1)
    return kind


def test_producer_waits_for_room_in_its_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    done = produce(monkeypatch)
    assert (done.sent, done.polls) == (11, 220)  # the first one is acknowledged before the clock starts


def test_record_that_fails_ends_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="1 records were not acknowledged: the broker is gone"):
        produce(monkeypatch, fails_at=7)
