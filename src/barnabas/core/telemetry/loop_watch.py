"""Value: how long the event loop was held without a pause, by the API that held it.

A request holds the loop from one suspension of its handler to the next. The dispatcher measures each of these steps,
and adds it to the API's `LoopHold`:

    barnabas_loop_held_ms{by="OFFSET_COMMIT"}       a histogram of the steps
    barnabas_loop_held_max_ms{by="OFFSET_COMMIT"}   the longest step since the node started

A step that reaches `warn_ms` is logged. Work that is not a request's is noticed by `server/node/loop_watchdog`, a task
that should run every 100 ms and measures how late it runs:

    barnabas_loop_late_ms, barnabas_loop_late_max_ms
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, Protocol, TypeVar

from barnabas.core.telemetry.log import get_logger
from barnabas.core.telemetry.metrics import Metrics

T = TypeVar("T")

log = get_logger("barnabas.loop")

HELD_BUCKETS_MS: Final = (1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 5000.0)


class StepCounter(Protocol):
    """Counts the steps of requests."""

    def add(self, seconds: float) -> None:
        """Count one step."""
        ...


class LoopHold:
    """The steps of one API."""

    __slots__ = ("_watch", "by", "histogram", "longest_ms")

    def __init__(self, by: str, watch: LoopWatch, metrics: Metrics) -> None:
        self.by = by
        self.longest_ms = 0.0
        self._watch = watch
        self.histogram = metrics.histogram(
            "barnabas_loop_held_ms", "Steps of requests, in which the event loop ran nothing else.", HELD_BUCKETS_MS,
            by=by,
        )  # fmt: skip
        metrics.gauge(
            "barnabas_loop_held_max_ms",
            "The longest such step since the node started.",
            lambda: self.longest_ms,
            by=by,
        )

    def add(self, seconds: float) -> None:
        """Count one step."""
        held_ms = seconds * 1000
        if held_ms > self.longest_ms:
            self.longest_ms = held_ms
        histogram = self.histogram
        if held_ms <= 1.0:  # most steps: without a search for the bucket
            histogram.counts[0] += 1
            histogram.sum += held_ms
            return
        histogram.observe(held_ms)
        if held_ms >= self._watch.warn_ms:
            self._watch.on_held(self.by, held_ms)


class LoopWatch:
    """The holds of one node. `clock` returns seconds; it must advance while a step runs."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float], warn_ms: float) -> None:
        self.clock = clock
        self.warn_ms = warn_ms
        self.reported = 0
        """The number of steps that reached `warn_ms`."""
        self._metrics = metrics
        self._holds: dict[str, LoopHold] = {}
        self._late = metrics.histogram(
            "barnabas_loop_late_ms", "How late the event loop ran a task that was due.", HELD_BUCKETS_MS
        )
        self._latest_ms = 0.0
        metrics.gauge(
            "barnabas_loop_late_max_ms", "The largest such time since the node started.", lambda: self._latest_ms
        )

    def hold(self, by: str) -> LoopHold:
        """The hold of this name."""
        found = self._holds.get(by)
        if found is None:
            found = self._holds[by] = LoopHold(by, self, self._metrics)
        return found

    def on_held(self, by: str, held_ms: float, **fields: object) -> None:
        """A step reached `warn_ms`: log it."""
        self.reported += 1
        log.warning("the event loop was held", by=by, held_ms=round(held_ms), **fields)

    def on_late(self, late_ms: float) -> None:
        """A task that was due ran late by this time."""
        self._late.observe(late_ms)
        self._latest_ms = max(self._latest_ms, late_ms)


class RequestStep:
    """The step of a request that is running: when it began."""

    __slots__ = ("began",)

    def __init__(self, began: float) -> None:
        self.began = began


@types.coroutine
def in_steps(
    coroutine: Coroutine[Any, Any, T], awaited: Any, hold: StepCounter, clock: Callable[[], float], step: RequestStep
) -> Generator[Any, Any, T]:
    """Run the rest of `coroutine`, whose first step has ended: `coroutine.send(None)` returned `awaited`. Each of the
    following steps but the last is added to `hold`; the last one, which began at `step.began`, is not over when this
    coroutine returns or raises."""
    while True:
        try:
            sent = yield awaited
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as error:  # noqa: BLE001 - the inner coroutine gets cancellation, too
            resume: Callable[[Any], Any] = coroutine.throw
            argument: Any = error
        else:
            resume, argument = coroutine.send, sent
        step.began = clock()
        try:
            awaited = resume(argument)
        except StopIteration as stop:
            result: T = stop.value
            return result
        hold.add(clock() - step.began)
