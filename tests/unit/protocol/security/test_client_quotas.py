"""The eight levels of quotas, and throttle times (Kafka's ClientQuotaManagerTest and TokenBucketTest)."""

from __future__ import annotations

import pytest

from barnabas.protocol.security.client_quotas import ClientQuotas, EntityPairs, QuotaLimit, find_limit
from barnabas.protocol.security.quota_rates import SampledRate, TokenBucket, Windows

KEY = "producer_byte_rate"
DEFAULT = None
UNSET = "unset"
LEVELS: list[tuple[EntityPairs, tuple[str, str, str]]] = [
    ((("client-id", "c"), ("user", "u")), (KEY, "u", "c")),
    ((("client-id", DEFAULT), ("user", "u")), (KEY, "u", "c")),
    ((("user", "u"),), (KEY, "u", "")),
    ((("client-id", "c"), ("user", DEFAULT)), (KEY, "u", "c")),
    ((("client-id", DEFAULT), ("user", DEFAULT)), (KEY, "u", "c")),
    ((("user", DEFAULT),), (KEY, "u", "")),
    ((("client-id", "c"),), (KEY, "", "c")),
    ((("client-id", DEFAULT),), (KEY, "", "c")),
]
"""Entities that apply to client c of user u, in the order of precedence, with their buckets."""


def entity(user: str | None = UNSET, client: str | None = UNSET) -> EntityPairs:
    pairs = (("client-id", client), ("user", user))
    return tuple(pair for pair in pairs if pair[1] != UNSET)


@pytest.mark.parametrize("level", range(len(LEVELS)))
def test_the_first_level_that_has_a_limit_applies(level: int) -> None:
    limits = {entity: {KEY: float(place)} for place, (entity, _) in enumerate(LEVELS) if place >= level}
    assert find_limit(limits, KEY, "u", "c") == QuotaLimit(float(level), LEVELS[level][1])


def test_each_key_is_looked_up_by_itself() -> None:
    limits = {entity("u", "c"): {"consumer_byte_rate": 1.0}, entity("u"): {KEY: 2.0}}
    assert find_limit(limits, KEY, "u", "c") == QuotaLimit(2.0, (KEY, "u", ""))
    assert find_limit(limits, "consumer_byte_rate", "u", "c") == QuotaLimit(1.0, ("consumer_byte_rate", "u", "c"))
    assert find_limit(limits, "request_percentage", "u", "c") is None
    assert find_limit(limits, KEY, "other", "c") is None


class Quotas:
    """A table of limits that a test changes, and the clock."""

    def __init__(self) -> None:
        self.quotas = ClientQuotas()
        self._limits: dict[EntityPairs, dict[str, float]] = {}
        self.now_ms = 1_000_000

    def set(self, bound: float | None, user: str | None = UNSET, client: str | None = UNSET) -> None:
        if bound is None:
            del self._limits[entity(user, client)]
        else:
            self._limits[entity(user, client)] = {KEY: bound}
        self.quotas.set_limits(dict(self._limits))

    def check(self, user: str, client: str, bound: float, value: float, *, throttled: bool) -> None:
        found = self.quotas.limit(KEY, user, client)
        assert found is not None
        assert found.bound == bound
        assert self.quotas.max_in_window(KEY, user, client) == bound * 10
        assert (self.quotas.record(KEY, user, client, value * 11, self.now_ms) > 0) == throttled


def test_precedence_and_sharing_are_those_of_kafka() -> None:
    """ClientQuotaManagerTest.testQuotaConfigPrecedence."""
    quotas = Quotas()
    quotas.set(1000, DEFAULT)
    quotas.set(2000, client=DEFAULT)
    quotas.set(3000, DEFAULT, DEFAULT)
    quotas.set(4000, "A")
    quotas.set(5000, "A", "c1")
    quotas.set(6000, "B")
    quotas.set(7000, "B", "c1")
    quotas.set(8000, "B", DEFAULT)
    quotas.set(10000, "C")
    quotas.set(9000, client="c1")
    quotas.check("A", "c1", 5000, 4500, throttled=False)
    quotas.check("A", "c2", 4000, 4500, throttled=True)
    quotas.check("A", "c3", 4000, 0, throttled=True)  # shared by the clients of the user
    quotas.check("A", "c1", 5000, 0, throttled=False)
    quotas.check("B", "c1", 7000, 8000, throttled=True)
    quotas.check("B", "c2", 8000, 7000, throttled=False)
    quotas.check("B", "c3", 8000, 7000, throttled=False)
    quotas.check("D", "c1", 3000, 3500, throttled=True)
    quotas.check("D", "c2", 3000, 2500, throttled=False)
    quotas.check("E", "c1", 3000, 2500, throttled=False)
    quotas.set(None, DEFAULT, DEFAULT)
    quotas.check("D", "c1", 1000, 0, throttled=False)  # another bucket
    quotas.check("E", "c4", 1000, 1500, throttled=True)
    quotas.check("F", "c4", 1000, 800, throttled=False)
    quotas.check("F", "c5", 1000, 800, throttled=True)
    quotas.set(None, DEFAULT)
    quotas.check("F", "c4", 2000, 0, throttled=False)
    quotas.check("F", "c5", 2000, 0, throttled=False)
    quotas.check("F", "c5", 2000, 2500, throttled=True)
    quotas.check("G", "c5", 2000, 0, throttled=True)  # shared by the users of the client id
    quotas.set(8000, "A")
    quotas.set(10000, "A", "c1")
    quotas.check("A", "c2", 8000, 0, throttled=False)
    quotas.check("A", "c2", 8000, 4500, throttled=True)  # with what was used under the old limit
    quotas.check("A", "c1", 10000, 0, throttled=False)
    quotas.check("A", "c1", 10000, 6000, throttled=True)
    quotas.set(None, "A", "c1")
    quotas.check("A", "c6", 8000, 0, throttled=True)
    quotas.set(11000, "A", "c6")
    quotas.check("A", "c6", 11000, 8500, throttled=False)
    quotas.set(12000, "A", DEFAULT)
    quotas.set(None, "A", "c6")
    quotas.check("A", "c6", 12000, 4000, throttled=True)


def test_without_a_limit_nothing_is_counted() -> None:
    quotas = ClientQuotas()
    assert quotas.record(KEY, "u", "c", 1e12, 0) == 0
    assert quotas.max_in_window(KEY, "u", "c") == float("inf")


def test_a_spike_is_throttled_until_the_rate_is_back() -> None:
    """ClientQuotaManagerTest.testQuotaViolation: 6300 bytes in 10.5 s are 600/s; (600 - 500)/500 x 10.5 s = 2.1 s."""
    quotas = Quotas()
    quotas.set(500, client=DEFAULT)

    def record(value: float) -> int:
        return quotas.quotas.record(KEY, "ANONYMOUS", "unknown", value, quotas.now_ms)

    for _ in range(10):
        assert record(400) == 0
        quotas.now_ms += 1000
    quotas.now_ms += 500
    assert record(2300) == 2100
    quotas.now_ms += 2100
    for _ in range(10):
        record(400)
        quotas.now_ms += 1000
    assert record(0) == 0


def test_a_response_that_is_not_sent_is_taken_back() -> None:
    quotas = Quotas()
    quotas.set(100, "u")
    assert quotas.quotas.record(KEY, "u", "c", 2000, quotas.now_ms) > 0
    quotas.quotas.take_back(KEY, "u", "c", 2000, quotas.now_ms)
    assert quotas.quotas.record(KEY, "u", "c", 0, quotas.now_ms) == 0


def test_the_throttle_time_of_some_quotas_is_bounded() -> None:
    quotas = Quotas()
    quotas.set(1, "u")
    assert quotas.quotas.record(KEY, "u", "c", 5_000, quotas.now_ms, throttle_ms_max=1000) == 1000
    assert quotas.quotas.record(KEY, "u", "c", 0, quotas.now_ms) > 1000


# ---- rates


def test_a_rate_counts_at_least_the_full_windows() -> None:
    rate = SampledRate(Windows())
    rate.record(1000, 0)
    assert rate.window_ms(0) == 10_000
    assert rate.measure(0) == 100
    assert rate.window_ms(500) == 10_500  # the full windows, and the part of the last one that has passed


def test_old_samples_are_forgotten() -> None:
    rate = SampledRate(Windows())
    rate.record(1000, 0)
    assert rate.measure(10_999) > 0
    assert rate.measure(11_000) == 0
    rate.record(10, 11_500)
    assert rate.measure(11_500) == pytest.approx(10 / 10.5)


def test_a_long_use_keeps_a_bounded_number_of_samples() -> None:
    rate = SampledRate(Windows(samples=3, size_ms=100))
    for now_ms in range(0, 100_000, 50):
        rate.record(1, now_ms)
        assert rate.measure(now_ms) <= 25
    assert rate.measure(99_950) == pytest.approx(20, rel=0.3)


# ---- token buckets


def test_tokens_are_refilled_up_to_all_windows() -> None:
    bucket = TokenBucket(Windows(samples=10, size_ms=2_000), 5, now_ms=0)
    assert bucket.measure(0) == 100  # 10 windows x 2 s x 5
    assert bucket.take(60, 0) == 0
    assert bucket.measure(2_000) == 50
    assert bucket.measure(60_000) == 100


def test_a_bucket_may_go_below_zero_once() -> None:
    bucket = TokenBucket(Windows(samples=1, size_ms=1_000), 10, now_ms=0)
    assert bucket.try_take(60, 0) == 0
    assert bucket.measure(0) == -50
    assert bucket.try_take(1, 0) == 5_000
    assert bucket.measure(0) == -50  # nothing was taken
    assert bucket.try_take(1, 4_999) == 1
    assert bucket.try_take(1, 5_000) == 0


def test_the_permissive_way_takes_and_throttles() -> None:
    bucket = TokenBucket(Windows(samples=1, size_ms=1_000), 10, now_ms=0)
    assert bucket.take(10, 0) == 0
    assert bucket.take(10, 0) == 1_000
    assert bucket.take(10, 0) == 2_000


def test_a_lower_rate_lowers_the_burst() -> None:
    bucket = TokenBucket(Windows(samples=1, size_ms=1_000), 10, now_ms=0)
    bucket.set_rate(4, 0)
    assert bucket.measure(0) == 4
    bucket.set_rate(10, 0)
    assert bucket.measure(1_000) == 10
