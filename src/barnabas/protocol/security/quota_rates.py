"""Machine: how much of a quota is used: rates over sampled windows, token buckets, and the throttle time.

The arithmetic is that of Kafka's `Rate`, `SampledStat`, `TokenBucket` and `QuotaUtils`, so that clients are throttled
for the same time. Times are milliseconds.
"""

from __future__ import annotations

import math
from typing import Final

from msgspec import Struct

DEFAULT_SAMPLES: Final = 11
"""The default of quota.window.num and controller.quota.window.num."""
DEFAULT_WINDOW_MS: Final = 1_000
"""The default of quota.window.size.seconds, in milliseconds."""


class Windows(Struct, frozen=True):
    """The windows over which a quota is measured: `quota.window.num` windows of `quota.window.size.seconds`."""

    samples: int = DEFAULT_SAMPLES
    size_ms: int = DEFAULT_WINDOW_MS

    @property
    def span_ms(self) -> int:
        """The time after which a sample without further records is forgotten."""
        return self.samples * self.size_ms

    @property
    def full_s(self) -> float:
        """The seconds of the full windows, without the one that is being filled."""
        return (self.samples - 1) * self.size_ms / 1000


class _Sample:
    __slots__ = ("last_ms", "start_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.value = 0.0


class SampledRate:
    """A rate per second over the last windows. A record belongs to the window in which it is made."""

    __slots__ = ("_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: list[_Sample] = []
        """The oldest first; at most one more than the number of windows."""

    @property
    def used_ms(self) -> int:
        """The time of the last record; 0 if there is none."""
        return self._samples[-1].last_ms if self._samples else 0

    def record(self, value: float, now_ms: int) -> None:
        """Add a value; a negative one takes back an earlier one."""
        samples, windows = self._samples, self._windows
        if not samples or now_ms - samples[-1].start_ms >= windows.size_ms:
            samples.append(_Sample(now_ms))
            if len(samples) > windows.samples + 1:
                del samples[0]
        newest = samples[-1]
        newest.value += value
        newest.last_ms = now_ms

    def measure(self, now_ms: int) -> float:
        """The rate per second."""
        window_ms = self.window_ms(now_ms)  # forgets old samples
        return sum(sample.value for sample in self._samples) / (window_ms / 1000)

    def window_ms(self, now_ms: int) -> int:
        """The time over which the rate is measured: since the oldest sample began, but at least the full windows. A
        burst at the start of a client's life would otherwise look like a high rate."""
        windows = self._windows
        self._samples = [sample for sample in self._samples if now_ms - sample.last_ms < windows.span_ms]
        if not self._samples:
            self._samples.append(_Sample(now_ms))
        elapsed_ms = now_ms - self._samples[0].start_ms
        missing = windows.samples - 1 - elapsed_ms // windows.size_ms
        if missing > 0:
            elapsed_ms += missing * windows.size_ms
        return max(elapsed_ms, 1)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """The time without records after which the rate is back at `bound`; 0 if the rate does not exceed it.

        If O is the rate over a window of W, a delay of X brings it to T when O * W / (W + X) = T.
        """
        rate = self.measure(now_ms)
        if rate <= bound:
            return 0
        return _round((rate - bound) / bound * self.window_ms(now_ms))


class TokenBucket:
    """Tokens that are refilled with `rate` per second, up to what all windows together bring. A request may take more
    tokens than there are; the bucket is exhausted while the number is negative (KIP-599)."""

    __slots__ = ("_rate", "_tokens", "_updated_ms", "_windows")

    def __init__(self, windows: Windows, rate: float, now_ms: int) -> None:
        self._windows = windows
        self._rate = rate
        self._tokens = self._burst
        self._updated_ms = now_ms

    @property
    def _burst(self) -> float:
        return self._rate * self._windows.span_ms / 1000

    def set_rate(self, rate: float, now_ms: int) -> None:
        """Change the quota. The tokens that were earned so far stay, up to the new limit."""
        self._refill(now_ms)
        self._rate = rate
        self._tokens = min(self._tokens, self._burst)

    def measure(self, now_ms: int) -> float:
        """The number of tokens."""
        self._refill(now_ms)
        return self._tokens

    def take(self, tokens: float, now_ms: int) -> int:
        """Take tokens, whether they are there or not. Returns the throttle time: 0, or until the number is no longer
        negative. What old versions of CreateTopics, CreatePartitions and DeleteTopics get."""
        self._refill(now_ms)
        self._tokens = min(self._tokens - tokens, self._burst)
        return self.throttle_ms(now_ms)

    def try_take(self, tokens: float, now_ms: int) -> int:
        """Take tokens unless the bucket is exhausted. Returns 0 if they are taken, else the throttle time: the request
        is then answered with THROTTLING_QUOTA_EXCEEDED."""
        throttle_ms = self.throttle_ms(now_ms)
        if not throttle_ms:
            self._tokens = min(self._tokens - tokens, self._burst)
        return throttle_ms

    def throttle_ms(self, now_ms: int) -> int:
        self._refill(now_ms)
        return 0 if self._tokens >= 0 else max(_round(-self._tokens / self._rate * 1000), 1)

    def _refill(self, now_ms: int) -> None:
        self._tokens = min(self._tokens + self._rate * (now_ms - self._updated_ms) / 1000, self._burst)
        self._updated_ms = now_ms


def _round(value: float) -> int:
    """As Java's `Math.round`: halves are rounded up."""
    return math.floor(value + 0.5)
