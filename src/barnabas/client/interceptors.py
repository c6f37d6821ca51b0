"""Port: interceptors and delivery callbacks of the producer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from barnabas.client.values import Headers, RecordMetadata
from barnabas.core.errors import BarnabasError

log = logging.getLogger("barnabas.client")

DeliveryCallback = Callable[[RecordMetadata | None, BarnabasError | None], None]


def notify(callback: DeliveryCallback, metadata: RecordMetadata | None, error: BarnabasError | None) -> None:
    """Call the user's function. An exception is logged and ignored, as in the Java producer."""
    try:
        callback(metadata, error)
    except Exception:  # the user's function may raise any exception
        log.exception("A delivery callback or interceptor raised an exception; the producer continues")


class ProducerInterceptor(Protocol):
    """Called for every record before serialization, and for every acknowledgement or error."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord: ...

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: BarnabasError | None) -> None: ...


@dataclass(slots=True)
class ProducerRecord:
    """A record to be produced: what an interceptor gets and may change or replace, and what a function of
    `barnabas.stream` returns. A `partition` or `timestamp` of None is chosen by the producer."""

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Headers = ()
