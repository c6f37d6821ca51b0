"""Value: exponential backoff with jitter, as Kafka's clients compute it (ExponentialBackoff)."""

from __future__ import annotations

from msgspec import Struct

from barnabas.core.rng import Rng


class Backoff(Struct, frozen=True):
    """The pause before an attempt: `initial_ms` x `multiplier`^attempt, at most `max_ms`, then multiplied by a random
    factor between 1 - `jitter` and 1 + `jitter`."""

    initial_ms: float
    max_ms: float
    multiplier: float = 2.0
    jitter: float = 0.2

    def delay_ms(self, attempt: int, rng: Rng) -> float:
        """The wait before retry number `attempt` (0 is the first)."""
        term = min(self.initial_ms * self.multiplier ** min(attempt, 64), self.max_ms)
        return term * (1.0 - self.jitter + 2.0 * self.jitter * rng.random())
