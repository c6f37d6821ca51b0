"""Machine: how long to wait so that a rate is kept (Kafka's Throttler); the waiting is done by whoever asks."""

from __future__ import annotations

from typing import Final

_WINDOW_S: Final = 0.3


class Throttle:
    """Counts bytes over windows of 300 ms. `rate` in bytes per second; infinity asks for no wait ever."""

    __slots__ = ("_bytes", "_rate", "_start")

    def __init__(self, rate: float, now_s: float) -> None:
        self._rate = max(rate, 1.0)
        self._start = now_s
        self._bytes = 0

    def delay(self, size: int, now_s: float) -> float:
        """`size` bytes are about to be moved: the seconds to wait after that."""
        self._bytes += size
        elapsed = now_s - self._start
        owed = self._bytes / self._rate - elapsed
        if elapsed < _WINDOW_S and owed < _WINDOW_S:
            return 0.0
        self._bytes = 0
        self._start = now_s + max(owed, 0.0)
        return max(owed, 0.0)
