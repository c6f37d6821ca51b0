"""Machine: the quotas of clients: which of the eight levels applies to a client, and how long it is throttled.

The limit of a client is that of the first level that has one (Kafka's `ClientQuotaManager`):

    entity                              who shares the quota
    user, client id                     this client id of this user
    user, default client id             this client id of this user
    user                                all clients of this user
    default user, client id             this client id of this user
    default user, default client id     this client id of this user
    default user                        all clients of this user
    client id                           this client id, whoever uses it
    default client id                   this client id, whoever uses it

Each key (`producer_byte_rate`, ...) is looked up by itself. Who shares a quota shares a bucket, in which the use is
counted. A change of a limit keeps the bucket; a change of the level may begin another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas.protocol.security.quota_rates import SampledRate, Windows

USER: Final = "user"
CLIENT_ID: Final = "client-id"

BUCKETS_MAX: Final = 100_000
"""With more buckets, those that were not used for `IDLE_MS` are dropped."""
IDLE_MS: Final = 3_600_000
"""Kafka drops the sensors of a client after an hour without requests, too."""

EntityPairs = tuple[tuple[str, str | None], ...]
"""Sorted (entity type, entity name) pairs; the name None denotes the default entity of that type."""
Bucket = tuple[str, str, str]
"""The key, and the user and the client id that share the bucket; an empty text stands for all of them."""


class QuotaLimit(NamedTuple):
    """The limit that applies to a client, and the bucket that counts its use."""

    bound: float
    bucket: Bucket


def find_limit(
    by_entity: Mapping[EntityPairs, Mapping[str, float]], key: str, user: str, client_id: str
) -> QuotaLimit | None:
    """The limit of `key` for a client; None if no level has one."""
    alone, of_user, of_client = (key, user, client_id), (key, user, ""), (key, "", client_id)
    for entity, bucket in (
        (((CLIENT_ID, client_id), (USER, user)), alone),
        (((CLIENT_ID, None), (USER, user)), alone),
        (((USER, user),), of_user),
        (((CLIENT_ID, client_id), (USER, None)), alone),
        (((CLIENT_ID, None), (USER, None)), alone),
        (((USER, None),), of_user),
        (((CLIENT_ID, client_id),), of_client),
        (((CLIENT_ID, None),), of_client),
    ):
        limits = by_entity.get(entity)
        if limits is not None and key in limits:
            return QuotaLimit(limits[key], bucket)
    return None


class ClientQuotas:
    """The use of quotas by the clients of one broker."""

    def __init__(self, windows: Windows | None = None) -> None:
        self._windows = windows or Windows()
        self._by_entity: Mapping[EntityPairs, Mapping[str, float]] = {}
        self._found: dict[Bucket, QuotaLimit | None] = {}
        self._rates: dict[Bucket, SampledRate] = {}

    def set_limits(self, by_entity: Mapping[EntityPairs, Mapping[str, float]]) -> None:
        """Replace all limits."""
        self._by_entity = by_entity
        self._found.clear()

    def limit(self, key: str, user: str, client_id: str) -> QuotaLimit | None:
        """The limit that applies to a client; None if its use is not limited."""
        if not self._by_entity:
            return None
        asked = (key, user, client_id)
        try:
            return self._found[asked]
        except KeyError:
            if len(self._found) >= BUCKETS_MAX:
                self._found.clear()
            found = self._found[asked] = find_limit(self._by_entity, key, user, client_id)
            return found

    def record(
        self, key: str, user: str, client_id: str, value: float, now_ms: int, *, throttle_ms_max: int | None = None
    ) -> int:
        """Count the use of a quota. Returns the time for which the client is to be throttled, in milliseconds; the
        quotas of request time and of connections have a maximum, one window."""
        found = self.limit(key, user, client_id)
        if found is None:
            return 0
        rate = self._rate_of(found.bucket, now_ms)
        rate.record(value, now_ms)
        throttle_ms = rate.throttle_ms(found.bound, now_ms)
        return throttle_ms if throttle_ms_max is None else min(throttle_ms, throttle_ms_max)

    def take_back(self, key: str, user: str, client_id: str, value: float, now_ms: int) -> None:
        """Undo `record` for a response that was not sent, because the client was throttled."""
        found = self.limit(key, user, client_id)
        if found is not None:
            self._rate_of(found.bucket, now_ms).record(-value, now_ms)

    def max_in_window(self, key: str, user: str, client_id: str) -> float:
        """The most that one request may use so that waiting can bring the rate back to the limit; infinity without a
        limit. A response to Fetch has no more bytes."""
        found = self.limit(key, user, client_id)
        return float("inf") if found is None else found.bound * self._windows.full_s

    def _rate_of(self, bucket: Bucket, now_ms: int) -> SampledRate:
        rate = self._rates.get(bucket)
        if rate is None:
            if len(self._rates) >= BUCKETS_MAX:
                self._drop_idle(now_ms)
            rate = self._rates[bucket] = SampledRate(self._windows)
        return rate

    def _drop_idle(self, now_ms: int) -> None:
        """Drop the buckets that are not used any more; all, if too many clients are active to count each."""
        self._rates = {bucket: rate for bucket, rate in self._rates.items() if now_ms - rate.used_ms < IDLE_MS}
        if len(self._rates) >= BUCKETS_MAX:
            self._rates.clear()
