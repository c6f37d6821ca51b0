"""Calls of librdkafka that are repeated when a broker is missing in its newest metadata.

librdkafka 2.10 and later forgets a broker that a Metadata response does not contain, and fails the requests that wait
for an answer of this broker with `_DESTROY_BROKER`. A broker that is fenced, or that another broker does not know yet,
is such a broker. Programs repeat the call, which can have taken effect.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

PATIENCE_S: Final = 60.0
_PAUSE_S: Final = 0.1

T = TypeVar("T")


def answered(call: Callable[[], T], *, passing: Sequence[int] = ()) -> T:
    """What `call()` returns. It is called again after `_DESTROY_BROKER` and the error codes `passing`, for `PATIENCE_S`
    at most. Raises KafkaException."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return call()
        except KafkaException as error:
            if error.args[0].code() not in (KafkaError._DESTROY_BROKER, *passing) or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_S)  # between two requests to a broker, which cannot notify its clients


def create_topics(admin: AdminClient, topics: Sequence[NewTopic]) -> None:
    """Create topics that do not exist. Raises KafkaException."""
    for topic in topics:
        repeated = False

        def create(topic: NewTopic = topic) -> None:
            nonlocal repeated
            try:
                admin.create_topics([topic])[topic.topic].result(PATIENCE_S)
            except KafkaException as error:
                if not (repeated and error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS):
                    raise
            finally:
                repeated = True

        answered(create)
