"""The blocking clients have what the async ones have."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from barnabas.client.admin import AsyncAdmin
from barnabas.client.blocking import Admin, BlockingReader, Consumer, ShareConsumer, read
from barnabas.client.blocking_producer import Producer
from barnabas.client.consumer.consumer import AsyncConsumer
from barnabas.client.errors import ClientClosedError
from barnabas.client.loop_thread import LoopThread
from barnabas.client.producer.producer import AsyncProducer
from barnabas.client.share.consumer import AsyncShareConsumer
from tests.progress import wait_until

ITERATED = {"records"}
"""What `for record in consumer` is for."""
OF_THE_LOOP = {
    *("check_usable", "learn", "leave_transaction", "place", "raise_failures", "shut", "try_place", "try_send"),
    "unacknowledged",
}
"""What the hand-over to the loop is made of."""


@pytest.mark.parametrize(
    ("asynchronous", "blocking"),
    [
        (AsyncAdmin, Admin),
        (AsyncConsumer, Consumer),
        (AsyncShareConsumer, ShareConsumer),
        (AsyncProducer, Producer),
    ],
)
def test_nothing_is_missing(asynchronous: type, blocking: type) -> None:
    public = {name for name in dir(asynchronous) if not name.startswith("_")}
    assert {name for name in public if not hasattr(blocking, name)} <= ITERATED | OF_THE_LOOP


class StoppedError(Exception):
    """What the signal handler raises."""


def test_a_signal_ends_a_call_that_it_does_not_wake() -> None:
    """Another thread gets the signal, so the main thread's wait for the lock goes on; its handler runs all the same."""
    loops = LoopThread()
    outcome = []

    async def work() -> None:
        await asyncio.sleep(0)  # the main thread waits, or begins to
        signal.pthread_kill(loops._thread.ident or 0, signal.SIGUSR1)
        try:
            await asyncio.sleep(5)  # is interrupted
        except asyncio.CancelledError:
            outcome.append("cancelled")
            raise
        outcome.append("went on")

    def stop(number: int, frame: FrameType | None) -> None:
        raise StoppedError

    handler = signal.signal(signal.SIGUSR1, stop)
    try:
        with pytest.raises(StoppedError):
            loops.run(work)
    finally:
        signal.signal(signal.SIGUSR1, handler)
        loops.close()
    assert outcome == ["cancelled"]


class Numbers:
    """A client whose records are numbers."""

    cluster: Any = SimpleNamespace()

    def __init__(self, count: int) -> None:
        self.defers = False
        self.on_the_way: Taken | None = None
        self.left = deque(range(count))

    async def poll(self, timeout_ms: float = 0, *, raise_problems: bool = False) -> list[Any]:
        if not self.left:
            await asyncio.sleep(0.001)  # other threads have to run
        taken = [self.left.popleft() for _ in range(min(len(self.left), 500))]
        self.on_the_way = Taken(self, taken) if taken else None
        return taken

    def wakeup(self) -> None:
        raise NotImplementedError

    async def close(self, timeout_ms: float | None = None) -> None: ...


class Taken:
    """Numbers on their way to the program."""

    def __init__(self, numbers: Numbers, records: list[int]) -> None:
        self.ended = self.one_by_one = False
        self.records = records
        self._numbers = numbers
        self._received = 0

    def receive(self, count: int) -> None:
        self._received = count

    def put_back(self) -> None:
        self._numbers.left.extendleft(reversed(self.records[self._received :]))


def test_threads_that_share_a_consumer_get_each_record_once() -> None:
    count = 100_000
    reader = BlockingReader(lambda: Numbers(count))
    poll = read(Numbers.poll)
    ends: list[list[int]] = []

    shared = iter(reader)

    def iterate(numbers: Iterable[Any] = shared) -> None:
        got: list[int] = []
        ends.append(got)
        with suppress(ClientClosedError):
            for number in numbers:
                got.append(number)  # noqa: PERF402 - seen by the other thread at once

    def take() -> None:
        got: list[int] = []
        ends.append(got)
        with suppress(ClientClosedError):
            while True:
                got += poll(reader)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=work) for work in (iterate, iterate, lambda: iterate(reader), take)]
    try:
        for thread in threads:
            thread.start()
        wait_until(lambda: len({number for got in list(ends) for number in list(got)}) == count, "all numbers arrive")
    finally:
        sys.setswitchinterval(interval)
        reader.close()
        for thread in threads:
            thread.join()
    assert sum(map(len, ends)) == count
