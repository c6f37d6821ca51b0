"""Machine: measures what clients use of one kind of quota, and delays those that exceed their limit.

The authorities are Kafka's `ClientQuotaManager`, `ClientRequestQuotaManager` and `ControllerMutationQuotaManager`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from barnabas.protocol.security.principals import KafkaPrincipal
from barnabas.protocol.security.quotas.limits import ClientQuotaCallback, QuotaKind
from barnabas.protocol.security.quotas.rates import Meters, QuotaWindows, SampledRate, TokenBucket

BUCKETS_MAX: Final = 20_000
"""Clients choose their client ids freely, so a hostile one could use any number of them. Beyond this number the use
that was measured longest ago is forgotten."""


class ClientQuotaManager:
    """One kind of quota that limits a rate: bytes of Produce or Fetch, or the time of requests."""

    def __init__(
        self,
        kind: QuotaKind,
        callback: ClientQuotaCallback,
        windows: QuotaWindows,
        *,
        throttle_ms_max: int | None = None,
    ) -> None:
        """`throttle_ms_max` is the longest delay that a client gets; None means unlimited."""
        self._kind = kind
        self._callback = callback
        self._windows = windows
        self._throttle_ms_max = throttle_ms_max
        self._meters: Meters[Hashable, SampledRate] = Meters(lambda: SampledRate(windows), BUCKETS_MAX)

    @property
    def is_active(self) -> bool:
        """Whether any client may have a limit. If not, nothing is measured."""
        return self._callback.is_active(self._kind)

    def record(self, principal: KafkaPrincipal, client_id: str, value: float, now_ms: int) -> int:
        """Add a use. Returns for how many milliseconds the client must be delayed."""
        if not self.is_active:
            return 0
        bucket = self._callback.bucket(self._kind, principal, client_id)
        meter = self._meters.of(bucket)
        meter.record(value, now_ms)
        limit = self._callback.limit(self._kind, bucket)
        if limit is None:
            return 0
        delay = meter.throttle_ms(limit, now_ms)
        return delay if self._throttle_ms_max is None else min(delay, self._throttle_ms_max)

    def take_back(self, principal: KafkaPrincipal, client_id: str, value: float, now_ms: int) -> None:
        """Subtract a use that did not take place after all."""
        if self.is_active:
            self._meters.of(self._callback.bucket(self._kind, principal, client_id)).record(-value, now_ms)

    def most_at_once(self, principal: KafkaPrincipal, client_id: str) -> float | None:
        """The largest use that the limit allows in all windows together; None for no limit.

        A larger one would exceed the limit even after the longest pause.
        """
        if not self.is_active:
            return None
        limit = self._callback.limit(self._kind, self._callback.bucket(self._kind, principal, client_id))
        return None if limit is None else limit * (self._windows.num - 1) * self._windows.size_seconds


class MutationQuotaManager:
    """The quota of partitions that are created or deleted (KIP-599)."""

    def __init__(self, callback: ClientQuotaCallback, windows: QuotaWindows) -> None:
        self._callback = callback
        self._meters: Meters[Hashable, TokenBucket] = Meters(lambda: TokenBucket(windows), BUCKETS_MAX)

    def open(self, principal: KafkaPrincipal, client_id: str, *, strict: bool) -> MutationQuota:
        """The quota for one request. A strict one refuses what a client without tokens wants."""
        kind = QuotaKind.CONTROLLER_MUTATION
        if not self._callback.is_active(kind):
            return MutationQuota(None, None, strict=strict)
        bucket = self._callback.bucket(kind, principal, client_id)
        return MutationQuota(self._meters.of(bucket), self._callback.limit(kind, bucket), strict=strict)


class MutationQuota:
    """What one request may create or delete."""

    __slots__ = ("_bucket", "_limit", "_measured_ms", "_strict", "_throttle_ms")

    def __init__(self, bucket: TokenBucket | None, limit: float | None, *, strict: bool) -> None:
        self._bucket = bucket
        self._limit = limit
        self._strict = strict
        self._throttle_ms = 0
        self._measured_ms = 0

    def take(self, partitions: int, now_ms: int) -> bool:
        """Account for partitions that are created or deleted. Returns False if the request must not do it, because the
        client has used up its quota; then nothing is accounted for."""
        if self._bucket is None or self._limit is None:
            return True
        if self._strict and self._bucket.tokens(self._limit, now_ms) < 0:
            self._measure(now_ms)
            return False
        self._bucket.take(partitions, self._limit, now_ms)
        if not self._strict:
            self._measure(now_ms)
        return True

    def throttle_ms(self, now_ms: int) -> int:
        """For how long the client must be delayed from now on."""
        return max(0, self._throttle_ms - (now_ms - self._measured_ms))

    def _measure(self, now_ms: int) -> None:
        assert self._bucket is not None and self._limit is not None
        self._throttle_ms = self._bucket.throttle_ms(self._limit, now_ms)
        self._measured_ms = now_ms
