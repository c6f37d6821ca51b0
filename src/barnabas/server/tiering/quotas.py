"""Machine: the limits of bytes per second to and from the object store (KIP-956; Kafka's `RLMQuotaManager`).

    copies    before each segment: while the rate is above the limit, the copier waits; then the segment's size counts
    reads     while the rate is above the limit, a partition gets no remote records; what was read counts afterwards

One segment or one read may exceed the limit, and the rate comes back to it before the next one begins.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from msgspec import Struct

from barnabas.protocol.security.quotas.rates import QuotaWindows, SimpleRate

UNLIMITED: Final = (1 << 63) - 1
_SAMPLE_MS: Final = 30_000
_SAMPLES: Final = 2
"""The defaults of Kafka's metrics (`metrics.sample.window.ms`, `metrics.num.samples`)."""


class _Sample(Struct):
    start_ms: int
    count: int = 0
    total_ms: int = 0
    max_ms: int = 0


class ThrottleTimes:
    """The average and the maximum of the throttle times of the last minute."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque(maxlen=_SAMPLES)

    def record(self, throttle_ms: int, now_ms: int) -> None:
        if not self._samples or now_ms - self._samples[-1].start_ms >= _SAMPLE_MS:
            self._samples.append(_Sample(now_ms))
        sample = self._samples[-1]
        sample.count += 1
        sample.total_ms += throttle_ms
        sample.max_ms = max(sample.max_ms, throttle_ms)

    def average_ms(self, now_ms: int) -> float:
        """0 if nothing was throttled."""
        kept = self._kept(now_ms)
        return sum(sample.total_ms for sample in kept) / max(sum(sample.count for sample in kept), 1)

    def max_ms(self, now_ms: int) -> int:
        """0 if nothing was throttled."""
        return max((sample.max_ms for sample in self._kept(now_ms)), default=0)

    def _kept(self, now_ms: int) -> list[_Sample]:
        return [sample for sample in self._samples if now_ms - sample.start_ms < _SAMPLES * _SAMPLE_MS]


class RemoteQuota:
    """The limit of one direction. Times are of a monotonic clock."""

    def __init__(self, bytes_per_second: int = UNLIMITED, windows: QuotaWindows | None = None) -> None:
        self.bytes_per_second = bytes_per_second
        """May be changed at any time, and then applies to what has been used already."""
        self.times = ThrottleTimes()
        self._rate = SimpleRate(QuotaWindows() if windows is None else windows)

    def record(self, size: int, now_ms: int) -> None:
        """Count bytes that are copied, or were read."""
        self._rate.record(size, now_ms)

    def throttle_ms(self, now_ms: int) -> int:
        """0 if a copy or a read may begin; otherwise the time after which the rate is back at the limit."""
        if self.bytes_per_second == UNLIMITED:
            return 0
        throttle_ms = self._rate.throttle_ms(self.bytes_per_second, now_ms)
        if throttle_ms:
            self.times.record(throttle_ms, now_ms)
        return throttle_ms
