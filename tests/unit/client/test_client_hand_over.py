"""Records reach the loop's thread from several others without a lock: none is lost, each thread's keep their order."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from barnabas.client import blocking_producer
from barnabas.client.blocking_producer import Producer, SentRecord
from barnabas.client.errors import SerializationError
from barnabas.core.errors import KafkaError
from tests.unit.client.fake_cluster import FakeCluster

THREADS, RECORDS = 4, 1_000


@pytest.fixture(autouse=True)
def busy_border(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Threads change places often, and the hand-over is full, empty and begun anew all the time."""
    monkeypatch.setattr(blocking_producer, "HANDED_OVER_MAX", 20)
    monkeypatch.setattr(blocking_producer, "DRAINED_AT_ONCE_MAX", 3)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def connected(fake: FakeCluster) -> Producer:
    settings: dict[str, Any] = {"cluster": fake.cluster(), "linger_ms": 0}
    return Producer(**settings)


def test_several_threads_lose_nothing_and_keep_their_orders() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    with connected(fake) as producer, ThreadPoolExecutor(THREADS) as pool:

        def send(name: int) -> list[SentRecord]:
            return [producer.send("t", b"%d %d" % (name, number)) for number in range(RECORDS)]

        sent = list(pool.map(send, range(THREADS)))
        producer.flush()
        assert all(record.done() for records in sent for record in records)
        values = fake.log("t").values()
        for name, records in enumerate(sent):
            own = [b"%d %d" % (name, number) for number in range(RECORDS)]
            assert [value for value in values if value is not None and value.startswith(b"%d " % name)] == own
            assert [values[record.result().offset] for record in records] == own


def _raises(_: object, error: object) -> None:
    raise ZeroDivisionError


def test_what_is_refused_is_raised_at_once_and_the_rest_goes_on() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    delivered: list[object] = []
    with connected(fake) as producer:
        with pytest.raises(KafkaError, match="no partition 7"):
            producer.send("t", b"1", partition=7, on_delivery=lambda _, error: delivered.append(error))
        with pytest.raises(SerializationError, match="bytes"):
            producer.send("t", object(), on_delivery=_raises)
        producer.send("t", b"2", on_delivery=_raises)
        good = producer.send("t", b"3")
        assert good.result(10).offset == 1
    assert not delivered
