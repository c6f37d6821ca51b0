"""Shell: an idempotent librdkafka producer and a consumer in a group, which run while a test changes the cluster.

`move` continues with other client settings. `finish` checks that every record was acknowledged, that no request of a
client failed, and that the log has every record once.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import Consumer, KafkaError, Producer

from tests.progress import flush, wait_until

_EXPECTED: Final = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)
"""librdkafka reports connections that have ended by these codes. It repeats the requests by itself."""
_LOST: Final = "Local: Broker transport failure"
"""A connection that ends during the SASL handshake, because its node stops, is an authentication error of this text."""
_GROUP: Final = "billing"


class Load:
    """Writes numbers to `topic` and reads them. `settings` are librdkafka's."""

    def __init__(self, topic: str, settings: dict[str, str]) -> None:
        self.topic = topic
        self.failures: list[str] = []
        self.acknowledged = 0
        self.read: dict[tuple[int, int], int] = {}
        """The number at each partition and offset."""
        self._next = 0
        self._start(settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the threads end; after a failure their clients may never be done, so they are not waited for."""
        self._producing.set()
        self._consuming.set()

    def move(self, settings: dict[str, str]) -> None:
        """Close both clients, and continue with clients that have other settings."""
        self._stop()
        self._start(settings)

    def finish(self) -> None:
        self._halt_producer()
        wait_until(
            lambda: len(set(self.read.values())) >= self._next,
            f"the consumer has all {self._next} records",
            progress=lambda: len(self.read),
        )
        self._stop()
        assert not self.failures, self.failures
        assert self.acknowledged == self._next > 0
        doubled = [number for number, count in Counter(self.read.values()).items() if count > 1]
        assert doubled == []
        assert set(self.read.values()) == set(range(self._next))

    def wait_for_more(self) -> None:
        """Returns when records that are written from now on have been acknowledged and read."""
        acknowledged, read = self.acknowledged, len(self.read)
        wait_until(
            lambda: self.acknowledged >= acknowledged + 20 and len(self.read) >= read + 20,
            "more records are written and read",
            progress=lambda: (self.acknowledged, len(self.read)),
        )

    # ---- inside

    def _start(self, settings: dict[str, str]) -> None:
        shared: dict[str, Any] = {**settings, "error_cb": self._on_error, "reconnect.backoff.max.ms": 500}
        producer = Producer({**shared, "enable.idempotence": True, "linger.ms": 5})
        consumer = Consumer(
            {**shared, "group.id": _GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        )
        self._producing, self._consuming = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=self._guard, args=(lambda: self._produce(producer),), daemon=True),
            threading.Thread(target=self._guard, args=(lambda: self._consume(consumer),), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _halt_producer(self) -> None:
        self._producing.set()
        self._threads[0].join()

    def _stop(self) -> None:
        self._halt_producer()
        self._consuming.set()
        self._threads[1].join()

    def _guard(self, run: Callable[[], None]) -> None:
        try:
            run()
        except Exception as error:  # noqa: BLE001 - a thread has nobody to raise it to; `finish` shows it
            self.failures.append(repr(error))

    def _produce(self, producer: Producer) -> None:
        while not self._producing.is_set():
            producer.produce(self.topic, str(self._next), partition=self._next % 3, on_delivery=self._on_delivery)
            self._next += 1
            producer.poll(0.005)
        flush(producer)

    def _consume(self, consumer: Consumer) -> None:
        consumer.subscribe([self.topic])
        while not self._consuming.is_set():
            for message in consumer.consume(500, 0.1):
                if (error := message.error()) is not None:
                    self._on_error(error)
                    continue
                self.read[message.partition(), message.offset()] = int(message.value())
        consumer.commit(asynchronous=False)
        consumer.close()

    def _on_delivery(self, error: KafkaError | None, _message: object) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failures.append(f"delivery: {error}")

    def _on_error(self, error: KafkaError) -> None:
        if error.code() not in _EXPECTED and _LOST not in error.str():
            self.failures.append(f"client: {error}")
