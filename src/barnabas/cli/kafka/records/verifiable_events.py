"""Shell: the JSON lines of Kafka's verifiable producers and consumers, and the names of Java's exceptions in them."""

from __future__ import annotations

import json
import sys
import time
from typing import Any, Final

from barnabas.cli.kafka.arguments import emit
from barnabas.core.errors import ErrorCode, KafkaError

_JAVA_NAMES: Final = {
    ErrorCode.CORRUPT_MESSAGE: "CorruptRecord",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "InvalidTopic",
    ErrorCode.KAFKA_STORAGE_ERROR: "KafkaStorage",
    ErrorCode.MESSAGE_TOO_LARGE: "RecordTooLarge",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "OutOfOrderSequence",
    ErrorCode.RECORD_LIST_TOO_LARGE: "RecordBatchTooLarge",
    ErrorCode.REQUEST_TIMED_OUT: "Timeout",
    ErrorCode.UNKNOWN_SERVER_ERROR: "UnknownServer",
}
"""The errors whose exception in Java has not simply the name of the error."""


def emit_event(name: str, **fields: Any) -> None:
    """Print an event, and flush: programs wait for these lines."""
    event = {"timestamp": int(time.time() * 1000), "name": name, **fields}
    emit(json.dumps(event, separators=(",", ":"), ensure_ascii=False))
    sys.stdout.flush()


def java_exception(error: BaseException) -> str:
    """The Java class of an error, such as `org.apache.kafka.common.errors.NotEnoughReplicasException`."""
    if not isinstance(error, KafkaError):
        return "org.apache.kafka.common.KafkaException"
    name = _JAVA_NAMES.get(error.code)
    if name is None:
        name = "".join(word.capitalize() for word in error.code.name.removesuffix("_FAILED").split("_"))
    return f"org.apache.kafka.common.errors.{name}Exception"


def text_of(data: bytes | None) -> str | None:
    """Bytes as Kafka's StringDeserializer reads them."""
    return None if data is None else data.decode("utf-8", "replace")
