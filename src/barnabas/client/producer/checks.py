"""Machine: checks of a record's parts. The errors say what is wrong and what is expected."""

from __future__ import annotations

from typing import Any, SupportsIndex

from barnabas.client.errors import SerializationError
from barnabas.core.errors import ErrorCode, KafkaError


def check_topic(topic: Any) -> None:
    if not isinstance(topic, str) or not topic:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"A topic is a text that is not empty, not {topic!r:.100}.")


def check_headers(topic: str, headers: Any) -> None:
    """Raise SerializationError unless the headers are pairs of a text and bytes or None."""
    wrong: object = headers
    try:
        for name, data in headers:
            if not isinstance(name, str) or not (data is None or isinstance(data, (bytes, bytearray, memoryview))):
                wrong = (name, data)
                break
        else:
            return
    except (TypeError, ValueError):
        pass
    raise SerializationError(
        f"The headers of a record for {topic!r} are pairs of a text and bytes (or None), such as"
        f" [('trace', b'17')], not {wrong!r:.100}."
    )


def check_timestamp(topic: str, timestamp: Any) -> None:
    if not isinstance(timestamp, SupportsIndex) or not 0 <= int(timestamp) < 1 << 63:
        raise SerializationError(
            f"The timestamp of a record for {topic!r} is the number of milliseconds since 1970, as an int that is not"
            f" negative, not {timestamp!r:.100}."
        )


def no_such_partition(topic: str, partition: object, count: int) -> KafkaError:
    return KafkaError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"There is no partition {partition!r} of {topic!r}; it has {count} partitions, numbered from 0.",
    )


def too_large(topic: str, size: int, limit: int) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"A record of {size} bytes for {topic!r} is larger than max.request.size ({limit}).",
    )
