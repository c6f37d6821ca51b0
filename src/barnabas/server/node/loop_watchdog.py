"""Shell: notices when the event loop was held by work that is not a request's, and names the code that held it.

    the task      sleeps 100 ms, again and again, and measures how late it wakes up
    the thread    looks at the task every `warn_ms` / 2; if the task is late, it notes what the loop's thread executes

The log line follows when the loop is free again. Requests measure themselves (`core/telemetry/loop_watch`); a request
that was logged is not logged a second time here. The line has the loop's CPU time as `cpu_ms`. If `cpu_ms` is far below
`held_ms`, the loop did not work: the machine was busy with other processes, or was paused.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from types import FrameType
from typing import Final

from barnabas.core.telemetry.loop_watch import LoopWatch

INTERVAL_S: Final = 0.1
_FRAMES_MAX: Final = 6


class LoopWatchdog:
    """Measures the delays of the event loop while its task `run` runs. The task owns the thread."""

    def __init__(self, watch: LoopWatch) -> None:
        self._watch = watch
        self._due = 0.0
        """The time at which the task should wake up, by the clock of `watch`."""
        self._where = ""
        """What the loop's thread executed while the task was late."""
        self._stop = threading.Event()

    async def run(self) -> None:
        watch = self._watch
        clock = watch.clock
        self._due = clock() + INTERVAL_S
        sampler = threading.Thread(
            target=self._sample, args=(threading.get_ident(),), name="barnabas-loop-watchdog", daemon=True
        )
        sampler.start()
        reported, cpu = watch.reported, time.thread_time()
        try:
            while True:
                await asyncio.sleep(INTERVAL_S)
                now, cpu_now = clock(), time.thread_time()
                late_ms = max(0.0, now - self._due) * 1000
                watch.on_late(late_ms)
                if late_ms >= watch.warn_ms and watch.reported == reported:
                    watch.on_held("OTHER", late_ms, cpu_ms=round((cpu_now - cpu) * 1000), where=self._where)
                self._where = ""
                self._due = now + INTERVAL_S
                reported, cpu = watch.reported, cpu_now
        finally:
            self._stop.set()

    def _sample(self, loop_thread: int) -> None:
        """Note once for each time that the task is late what the loop's thread executes."""
        watch = self._watch
        pause = watch.warn_ms / 2000
        while not self._stop.wait(pause):
            if not self._where and watch.clock() - self._due > pause:
                frame = sys._current_frames().get(loop_thread)
                if frame is not None:
                    self._where = describe_stack(frame)


def describe_stack(frame: FrameType | None) -> str:
    """The innermost functions of a stack, the innermost first: `create (log.py:12) < open (partition.py:40)`."""
    found: list[str] = []
    while frame is not None and len(found) < _FRAMES_MAX:
        code = frame.f_code
        found.append(f"{code.co_qualname} ({code.co_filename.rpartition('/')[2]}:{frame.f_lineno})")
        frame = frame.f_back
    return " < ".join(found)
