"""Shell: the clocks of a host: the loop's time, and a wall clock that may be wrong. Implements `core.clock.Clock`."""

from __future__ import annotations

import asyncio
from typing import Final

EPOCH_MS: Final = 1_767_225_600_000
"""2026-01-01T00:00:00Z, the start of every simulated run."""


class SimClock:
    """The clocks of one host. `skew_s` is the error of the wall clock in seconds; `drift` is the gain in seconds per
    second. Both may change."""

    def __init__(self, loop: asyncio.AbstractEventLoop, skew_s: float = 0.0, drift: float = 0.0) -> None:
        self.skew_s = skew_s
        self.drift = drift
        self._loop = loop
        self._start = loop.time()

    def now_ms(self) -> int:
        elapsed = self._loop.time() - self._start
        return EPOCH_MS + int((elapsed * (1.0 + self.drift) + self.skew_s) * 1000)

    def monotonic(self) -> float:
        return self._loop.time()
