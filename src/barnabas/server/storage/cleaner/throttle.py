"""Machine: the delays that limit a rate of bytes (Kafka's Throttler). The caller waits."""

from __future__ import annotations

from typing import Final

_WINDOW_S: Final = 0.3


class Throttle:
    """Counts bytes in windows of 300 ms. `rate` is in bytes per second; there is no delay if it is infinite."""

    __slots__ = ("_bytes", "_rate", "_start")

    def __init__(self, rate: float, now_s: float) -> None:
        self._rate = max(rate, 1.0)
        self._start = now_s
        self._bytes = 0

    def delay(self, size: int, now_s: float) -> float:
        """The seconds to wait after `size` bytes have been read or written."""
        self._bytes += size
        elapsed = now_s - self._start
        owed = self._bytes / self._rate - elapsed
        if elapsed < _WINDOW_S and owed < _WINDOW_S:
            return 0.0
        self._bytes = 0
        self._start = now_s + max(owed, 0.0)
        return max(owed, 0.0)
