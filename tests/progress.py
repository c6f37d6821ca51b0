"""Deadlines by progress: a wait fails when nothing has changed for a long time, not when a total time has passed.

A test that waits for another process cannot know how fast the machine is. On a busy machine every step takes longer,
but steps still happen. So these waits watch a value that changes with each step (a count of acknowledged records, a
committed offset, the size of a log) and fail only when that value stands still for `STANDSTILL_S`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import Producer

from barnabas.client.blocking import Admin
from barnabas.client.values import TopicDescription
from barnabas.core.errors import KafkaError

STANDSTILL_S: Final = 120.0
"""A process that is alive does something observable within this time, however busy the machine is."""
_POLL_S: Final = 0.1
_LOOP_POLL_S: Final = 0.01


class Standstill:
    """Detects that an observed value has stopped changing.

    `check(value)` is called in each round of a waiting loop. It raises AssertionError when `value` has been equal to
    the previous values for `patience_s`.
    """

    def __init__(self, what: str, patience_s: float = STANDSTILL_S) -> None:
        self._what = what
        self._patience_s = patience_s
        self._value: object = None
        self._changed_at = time.monotonic()

    def check(self, value: object) -> None:
        now = time.monotonic()
        if value != self._value:
            self._value, self._changed_at = value, now
        assert now < self._changed_at + self._patience_s, (
            f"no progress for {self._patience_s:g} s while waiting until {self._what}; last seen: {self._value!r}"
        )


def wait_until(
    condition: Callable[[], bool],
    what: str,
    *,
    progress: Callable[[], object] = lambda: None,
    patience_s: float = STANDSTILL_S,
) -> None:
    """Returns when `condition()` is true. Raises AssertionError when `progress()` has not changed for `patience_s`.

    `what` completes the sentence "waiting until ...". Without `progress` the condition itself is the only progress.
    """
    standstill = Standstill(what, patience_s)
    while not condition():
        standstill.check(progress())
        time.sleep(_POLL_S)  # other processes cannot notify this one


async def until(
    condition: Callable[[], bool],
    what: str,
    *,
    progress: Callable[[], object] = lambda: None,
    patience_s: float = STANDSTILL_S,
) -> None:
    """`wait_until` for the tests that are coroutines."""
    standstill = Standstill(what, patience_s)
    while not condition():
        standstill.check(progress())
        await asyncio.sleep(_LOOP_POLL_S)  # what is waited for may be in another process or thread


def flush(producer: Producer, patience_s: float = STANDSTILL_S) -> None:
    """Returns when librdkafka has an answer for every record. Raises AssertionError when answers stop coming."""
    standstill = Standstill("every record is answered", patience_s)
    while left := producer.flush(1.0):
        standstill.check(left)


def described(admin: Admin, topic: str) -> TopicDescription:
    """The topic that was just created, as soon as the broker that is asked has read so in the metadata log."""
    found: list[TopicDescription] = []

    def is_known() -> bool:
        view = admin.describe_topics([topic])[topic]
        if not isinstance(view, KafkaError):
            found.append(view)
        return bool(found)

    wait_until(is_known, f"the topic {topic} is known")
    return found[0]
