"""Shell: `python -m bench.attacks.server serve ...`: a broker that measures in CPU time how long its loop is held.

On a busy machine the elapsed time of a step is mostly the time of other processes. Two metrics therefore have another
meaning here: `barnabas_loop_held_max_ms` is the CPU time of the longest step of an API's requests, and
`barnabas_loop_late_max_ms` that of the longest turn of the loop, whatever ran in it. A turn of LONG_TURN_MS or more is
logged with what it executed. SIGUSR1 begins both anew.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from collections import Counter
from typing import Final

from barnabas.cli.app import main
from barnabas.core.telemetry import get_logger
from barnabas.core.telemetry.loop_watch import LoopWatch
from barnabas.server.node import loop_watchdog

LONG_TURN_MS: Final = 100.0
_INTERVAL_S: Final = 0.005
_SAMPLE_S: Final = 0.01
_STACKS_MAX: Final = 5


class TurnMeter:
    """Measures the turns of the event loop in place of the watchdog."""

    def __init__(self, watch: LoopWatch) -> None:
        self._watch = watch
        self._stacks: Counter[str] = Counter()
        """What the loop's thread executed since the meter's task has last run."""

    async def run(self) -> None:
        threading.Thread(target=self._sample, args=(threading.get_ident(),), daemon=True).start()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self._reset)
        log = get_logger("barnabas.bench")
        before = time.thread_time()
        while True:
            await asyncio.sleep(_INTERVAL_S)
            now = time.thread_time()
            turn_ms, before = (now - before) * 1000, now
            self._watch.on_late(turn_ms)
            stacks, self._stacks = self._stacks, Counter()
            if turn_ms >= LONG_TURN_MS:
                for where, count in stacks.most_common(_STACKS_MAX):
                    log.warning("a long turn", cpu_ms=round(turn_ms), samples=count, where=where)

    def _reset(self) -> None:
        self._watch._latest_ms = 0.0
        for hold in self._watch._holds.values():
            hold.longest_ms = 0.0

    def _sample(self, loop_thread: int) -> None:
        while True:
            time.sleep(_SAMPLE_S)
            frame = sys._current_frames().get(loop_thread)
            self._stacks[loop_watchdog.describe_stack(frame)] += 1


if __name__ == "__main__":
    init = LoopWatch.__init__

    def with_cpu_clock(self: LoopWatch, metrics: object, clock: object, warn_ms: float) -> None:
        init(self, metrics, time.thread_time, warn_ms)  # type: ignore[arg-type]

    LoopWatch.__init__ = with_cpu_clock  # type: ignore[method-assign]
    loop_watchdog.LoopWatchdog = TurnMeter  # type: ignore[assignment, misc]
    main()
