"""The watchdog names work that held the event loop and was not a request's."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from barnabas.core.telemetry import Metrics
from barnabas.core.telemetry.loop_watch import LoopWatch
from barnabas.server.node.loop_watchdog import LoopWatchdog
from tests.logs import logged
from tests.progress import until


def hold_the_loop(watch: LoopWatch, dog: LoopWatchdog) -> None:
    """Holds the loop until the watchdog's thread has seen it, and the task is late enough for a log line."""
    ended = watch.clock() + 60
    dog._where = ""  # on a busy machine the loop may have been late before
    while (not dog._where or watch.clock() < dog._due + watch.warn_ms / 1000) and watch.clock() < ended:
        time.sleep(0.01)  # this call is what holds the event loop


def test_the_function_that_held_the_loop_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("barnabas").propagate = True

    async def run() -> None:
        watch = LoopWatch(Metrics(), time.monotonic, 50.0)
        dog = LoopWatchdog(watch)
        task = asyncio.ensure_future(dog.run())
        await asyncio.sleep(0)
        hold_the_loop(watch, dog)
        await until(lambda: bool(watch.reported), "the watchdog reports")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with caplog.at_level("WARNING", logger="barnabas.loop"):
        asyncio.run(run())
    lines: list[dict[str, str]] = [record.fields for record in logged(caplog, "barnabas.loop")]  # type: ignore[attr-defined]
    by = [line["by"] for line in lines if "hold_the_loop (test_node_loop_watchdog.py:" in line["where"]]
    assert set(by) == {"OTHER"}  # brokers of other tests in this process may have written lines, too
