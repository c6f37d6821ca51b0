"""The blocking clients have what the async ones have."""

from __future__ import annotations

import asyncio
import signal
from types import FrameType

import pytest

from barnabas.client.admin import AsyncAdmin
from barnabas.client.blocking import Admin, Consumer, ShareConsumer
from barnabas.client.blocking_producer import Producer
from barnabas.client.consumer.consumer import AsyncConsumer
from barnabas.client.loop_thread import LoopThread
from barnabas.client.producer.producer import AsyncProducer
from barnabas.client.share.consumer import AsyncShareConsumer

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
            await asyncio.sleep(5)
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
