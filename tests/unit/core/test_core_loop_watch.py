"""The measure of how long requests hold the event loop."""

from __future__ import annotations

import asyncio
import logging

import pytest

from barnabas.core.telemetry import Metrics, render
from barnabas.core.telemetry.loop_watch import LoopWatch, RequestStep, in_steps
from tests.logs import logged


class HandClock:
    """A clock that moves when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def _three_steps(clock: HandClock, fail: bool) -> str:
    clock.now += 0.002
    await asyncio.sleep(0)
    clock.now += 0.300
    await asyncio.sleep(0)
    clock.now += 0.004
    if fail:
        raise ValueError("at the end")
    return "done"


@pytest.mark.parametrize("fail", [False, True])
def test_every_step_but_the_last_is_added_and_waiting_is_not(fail: bool) -> None:
    clock, metrics = HandClock(), Metrics()
    hold = LoopWatch(metrics, clock, 250.0).hold("CREATE_TOPICS")

    async def run() -> object:
        step = RequestStep(clock())
        steps = asyncio.ensure_future(_outer(step))
        while not steps.done():
            await asyncio.sleep(0)
            clock.now += 7.0  # other work of the loop
        assert clock() - step.began == pytest.approx(7.004)  # the last step and the other work after it
        return steps.exception() or steps.result()

    async def _outer(step: RequestStep) -> str:
        coroutine = _three_steps(clock, fail)
        awaited = coroutine.send(None)
        hold.add(clock() - step.began)
        return await in_steps(coroutine, awaited, hold, clock, step)

    outcome = asyncio.run(run())
    assert isinstance(outcome, ValueError) if fail else outcome == "done"
    assert hold.longest_ms == pytest.approx(300)
    page = render(metrics)
    assert 'barnabas_loop_held_ms_count{by="CREATE_TOPICS"} 2' in page
    assert 'barnabas_loop_held_ms_bucket{by="CREATE_TOPICS",le="250' in page


def test_cancellation_reaches_the_coroutine() -> None:
    clock = HandClock()
    hold = LoopWatch(Metrics(), clock, 250.0).hold("FETCH")
    seen: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def run() -> None:
        async def outer() -> None:
            coroutine = waits()
            await in_steps(coroutine, coroutine.send(None), hold, clock, RequestStep(clock()))

        task = asyncio.ensure_future(outer())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert seen == ["cancelled"]


def test_a_step_that_reaches_the_limit_is_logged_with_its_api(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("barnabas").propagate = True
    watch = LoopWatch(Metrics(), HandClock(), 250.0)
    with caplog.at_level("WARNING", logger="barnabas.loop"):
        watch.hold("METADATA").add(0.249)
        watch.hold("OFFSET_COMMIT").add(0.250)
    assert [record.fields for record in logged(caplog, "barnabas.loop")] == [{"by": "OFFSET_COMMIT", "held_ms": 250}]  # type: ignore[attr-defined]
    assert watch.reported == 1
