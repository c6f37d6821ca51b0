"""Port: who sees the records on their way: interceptors and delivery callbacks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from barnabas.client.values import Headers, RecordMetadata
from barnabas.core.errors import BarnabasError

log = logging.getLogger("barnabas.client")

DeliveryCallback = Callable[[RecordMetadata | None, BarnabasError | None], None]


def tell(told: DeliveryCallback, metadata: RecordMetadata | None, error: BarnabasError | None) -> None:
    """Call the user's function; what it raises is logged, and stops nothing else (as in Java's producer)."""
    try:
        told(metadata, error)
    except Exception:
        log.exception("A delivery callback or interceptor raised an exception; the producer goes on")


class ProducerInterceptor(Protocol):
    """Sees every record before it is serialized, and every outcome."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord: ...

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: BarnabasError | None) -> None: ...


class ProducerRecord:
    """A record as an interceptor sees it; it may be changed or replaced."""

    __slots__ = ("headers", "key", "partition", "timestamp", "topic", "value")

    def __init__(
        self, topic: str, value: Any, key: Any, partition: int | None, timestamp: int | None, headers: Headers
    ) -> None:
        self.topic = topic
        self.value = value
        self.key = key
        self.partition = partition
        self.timestamp = timestamp
        self.headers = headers
