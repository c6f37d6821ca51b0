"""Port: the clock. State machines do not read it; they take `now_ms` as an argument."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The clocks of a process. `now_ms` is the wall clock, for timestamps. `monotonic` is in seconds, to measure
    durations."""

    def now_ms(self) -> int: ...

    def monotonic(self) -> float: ...


class SystemClock:
    """The clocks of the operating system."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
