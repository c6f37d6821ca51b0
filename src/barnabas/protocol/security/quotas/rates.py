"""Machine: the rate of a sampled value, and a bucket of tokens (Kafka's `Rate` and `TokenBucket`).

Both compute how long a client that has exceeded its limit must wait.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from msgspec import Struct


class QuotaWindows(Struct, frozen=True):
    """The windows in which usage is sampled."""

    num: int = 11
    """The number of windows that a rate covers (`quota.window.num`, or `controller.quota.window.num`)."""
    size_seconds: int = 1
    """The length of one window (`quota.window.size.seconds`, or `controller.quota.window.size.seconds`)."""

    @property
    def size_ms(self) -> int:
        return self.size_seconds * 1000

    @property
    def covered_ms(self) -> int:
        """The length of all windows together."""
        return self.num * self.size_ms


class _Sample(Struct):
    """What was used in one window."""

    start_ms: int
    last_ms: int
    value: float = 0.0

    def reset(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.value = 0.0


class SampledRate:
    """The average use per second over the last windows. Times must not decrease."""

    __slots__ = ("_current", "_samples", "_windows")

    def __init__(self, windows: QuotaWindows) -> None:
        self._windows = windows
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        """Add a use; a negative value takes back an earlier one."""
        if not self._samples:
            self._samples.append(_Sample(now_ms, now_ms))
        sample = self._samples[self._current]
        if now_ms - sample.start_ms >= self._windows.size_ms:
            sample = self._advance(now_ms)
        sample.value += value
        sample.last_ms = now_ms

    def rate(self, now_ms: int) -> float:
        """The use per second."""
        return sum(sample.value for sample in self._kept(now_ms)) / self.elapsed_ms(now_ms) * 1000

    def elapsed_ms(self, now_ms: int) -> int:
        """The time that the rate covers. All windows but one count even if they have not passed yet, so that the first
        uses of a client do not look like a high rate."""
        samples = self._kept(now_ms)
        elapsed = now_ms - min((sample.start_ms for sample in samples), default=now_ms)
        size = self._windows.size_ms
        missing = self._windows.num - 1 - elapsed // size
        return max(elapsed + max(missing, 0) * size, 1)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """The time without any use after which the rate is back at `limit` per second; 0 if it is not exceeded."""
        rate = self.rate(now_ms)
        if rate <= limit:
            return 0
        return self._windows.covered_ms if limit <= 0 else _rounded((rate - limit) / limit * self.elapsed_ms(now_ms))

    def _advance(self, now_ms: int) -> _Sample:
        # One sample more than windows: the oldest one may have begun before the time that is covered.
        self._current = (self._current + 1) % (self._windows.num + 1)
        if self._current == len(self._samples):
            self._samples.append(_Sample(now_ms, now_ms))
        sample = self._samples[self._current]
        sample.reset(now_ms)
        return sample

    def _kept(self, now_ms: int) -> list[_Sample]:
        """The samples, after those without a use in the covered time were reset."""
        for sample in self._samples:
            if now_ms - sample.last_ms >= self._windows.covered_ms:
                sample.reset(now_ms)
        return self._samples


class SimpleRate(SampledRate):
    """A rate whose first windows do not count before they have passed (Kafka's `SimpleRate`): a use shows at once."""

    __slots__ = ()

    def elapsed_ms(self, now_ms: int) -> int:
        samples = self._kept(now_ms)
        elapsed = now_ms - min((sample.start_ms for sample in samples), default=now_ms)
        return max(elapsed, self._windows.size_ms)


class TokenBucket:
    """A bucket that is refilled at the rate of the limit, and holds what the limit allows in all windows together.

    It may become negative: a request that begins while there are tokens may take more than there are (KIP-599).
    """

    __slots__ = ("_last_ms", "_tokens", "_windows")

    def __init__(self, windows: QuotaWindows) -> None:
        self._windows = windows
        self._tokens = 0.0
        self._last_ms = 0

    def tokens(self, limit: float, now_ms: int) -> float:
        """The tokens of the moment, with `limit` new ones per second."""
        most = limit * self._windows.covered_ms / 1000
        self._tokens = min(most, self._tokens + limit * (now_ms - self._last_ms) / 1000)
        self._last_ms = now_ms
        return self._tokens

    def take(self, count: float, limit: float, now_ms: int) -> None:
        """Take tokens, although there may not be so many."""
        self._tokens = self.tokens(limit, now_ms) - count

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """The time until the bucket is no longer negative."""
        tokens = self.tokens(limit, now_ms)
        if limit <= 0:
            return self._windows.covered_ms if tokens < 0 else 0
        return max(_rounded(-tokens / limit * 1000), 1) if tokens < 0 else 0


KeyT = TypeVar("KeyT", bound=Hashable)
MeterT = TypeVar("MeterT", SampledRate, TokenBucket)


class Meters(Generic[KeyT, MeterT]):
    """The use of each of many clients or addresses. The one that was used last is the last one."""

    def __init__(self, create: Callable[[], MeterT], limit: int) -> None:
        """With more than `limit` meters, the one that was used longest ago is forgotten."""
        self._create: Callable[[], MeterT] = create
        self._limit = limit
        self._by_key: OrderedDict[KeyT, MeterT] = OrderedDict()

    def of(self, key: KeyT) -> MeterT:
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = self._create()
            if len(self._by_key) > self._limit:
                self._by_key.popitem(last=False)
        else:
            self._by_key.move_to_end(key)
        return found

    def __len__(self) -> int:
        return len(self._by_key)


def _rounded(value: float) -> int:
    """The nearest whole number; a half is rounded up, as in Java."""
    return math.floor(value + 0.5)
