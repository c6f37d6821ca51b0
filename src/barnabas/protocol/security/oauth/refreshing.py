"""Machine: when a client replaces its token (sasl.login.refresh.*; Kafka's ExpiringCredentialRefreshingLogin).

issued |------------------------------|=====|--------------| expires
                              window.factor  +jitter        <-- buffer.seconds -->
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from barnabas.core.rng import Rng
from barnabas.protocol.security.oauth.tokens import BearerToken

RETRY_MS: Final = 10_000
"""The time between attempts while a token cannot be replaced."""


class TokenRefresh(Struct, frozen=True):
    """The configs, with Kafka's defaults."""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_ms: int = 60_000
    buffer_ms: int = 300_000

    def refresh_at_ms(self, token: BearerToken, now_ms: int, rng: Rng) -> int:
        """The wall-clock time at which to replace `token`, which was received at `now_ms`."""
        starts_at_ms = now_ms if token.issued_at_ms is None else min(token.issued_at_ms, now_ms)
        share = self.window_factor + self.window_jitter * rng.random()
        proposed = starts_at_ms + int((token.expires_at_ms - starts_at_ms) * share)
        earliest, latest = now_ms + self.min_period_ms, token.expires_at_ms - self.buffer_ms
        if earliest >= latest:  # the token does not live long enough for both settings: neither counts
            return max(proposed, now_ms)
        return min(max(proposed, earliest), latest)
