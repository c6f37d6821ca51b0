"""Port: interceptors and delivery callbacks of the producer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from barnabas.client.values import Headers, RecordMetadata
from barnabas.core.errors import BarnabasError

log = logging.getLogger("barnabas.client")

DeliveryCallback = Callable[[RecordMetadata | None, BarnabasError | None], None]


def notify(callback: DeliveryCallback, metadata: RecordMetadata | None, error: BarnabasError | None) -> None:
    """Call the user's function. An exception is logged and ignored, as in the Java producer."""
    try:
        callback(metadata, error)
    except Exception:
        log.exception("A delivery callback or interceptor raised an exception; the producer continues")


class ProducerInterceptor(Protocol):
    """Called for every record before serialization, and for every acknowledgement or error."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord: ...

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: BarnabasError | None) -> None: ...


class ProducerRecord:
    """The record that an interceptor gets. The interceptor may change or replace it."""

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
