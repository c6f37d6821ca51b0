"""Client quotas: rates, buckets of tokens, the eight levels, and the delays that follow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.security.principals import KafkaPrincipal
from barnabas.protocol.security.quotas.limits import QuotaBucket, QuotaEntity, QuotaKind, QuotaLimits
from barnabas.protocol.security.quotas.manager import BUCKETS_MAX, ClientQuotaManager, MutationQuotaManager
from barnabas.protocol.security.quotas.rates import QuotaWindows, SampledRate, TokenBucket

WINDOWS = QuotaWindows()
T0 = 1_700_000_000_000


def entity(user: str | None = "", client: str | None = "") -> QuotaEntity:
    """The entity of a user and a client id; None is the default one, and "" is not part of the entity."""
    parts = (("client-id", client), ("user", user))
    return tuple((kind, name) for kind, name in parts if name != "")


def user(name: str) -> KafkaPrincipal:
    return KafkaPrincipal("User", name)


# --- rates


def test_a_rate_counts_all_windows_although_they_have_not_passed() -> None:
    rate = SampledRate(WINDOWS)
    rate.record(1000, T0)
    assert rate.elapsed_ms(T0) == 10_000
    assert rate.rate(T0) == 100


def test_the_delay_is_that_of_the_excess() -> None:
    """Ten windows of 400, then 2,300 in the middle of the eleventh: 600 per second in 10.5 s, where 500 are allowed."""
    rate = SampledRate(WINDOWS)
    now = T0
    for _ in range(10):
        rate.record(400, now)
        assert rate.throttle_ms(500, now) == 0
        now += 1000
    now += 500
    rate.record(2300, now)
    assert rate.rate(now) == 600
    assert rate.throttle_ms(500, now) == 2100


def test_a_use_is_forgotten_after_all_windows() -> None:
    rate = SampledRate(WINDOWS)
    rate.record(1_000_000, T0)
    assert rate.rate(T0 + WINDOWS.covered_ms - 1) > 0
    assert rate.rate(T0 + WINDOWS.covered_ms) == 0


@given(st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 10_000)), min_size=1, max_size=80))
def test_a_rate_holds_the_uses_of_its_windows(steps: list[tuple[int, int]]) -> None:
    """The measured sum lies between that of the covered time and that of one window more, and the memory is bounded."""
    rate, now, uses = SampledRate(WINDOWS), T0, []
    for pause, value in steps:
        now += pause
        rate.record(value, now)
        uses.append((now, value))
        measured = rate.rate(now) * rate.elapsed_ms(now) / 1000
        covered = sum(value for at, value in uses if now - at < WINDOWS.covered_ms - WINDOWS.size_ms)
        longest = sum(value for at, value in uses if now - at < WINDOWS.covered_ms + WINDOWS.size_ms)
        assert covered - 1e-6 <= measured <= longest + 1e-6
        assert len(rate._samples) <= WINDOWS.num + 1


def test_a_bucket_allows_a_burst_and_becomes_negative() -> None:
    bucket = TokenBucket(WINDOWS)
    assert bucket.tokens(2, T0) == 22  # 11 windows of a second
    bucket.take(30, 2, T0)
    assert bucket.tokens(2, T0) == -8
    assert bucket.throttle_ms(2, T0) == 4000
    assert bucket.throttle_ms(2, T0 + 4000) == 0
    assert bucket.tokens(2, T0 + 3_600_000) == 22


# --- levels


def test_the_first_of_eight_levels_decides() -> None:
    """Each level is removed in turn; then the next one decides, and its bucket says which clients share the limit."""
    levels: list[tuple[QuotaEntity, QuotaBucket]] = [
        (entity("a", "c"), QuotaBucket("a", "c")),
        (entity("a", None), QuotaBucket("a", "c")),
        (entity("a"), QuotaBucket("a", "")),
        (entity(None, "c"), QuotaBucket("a", "c")),
        (entity(None, None), QuotaBucket("a", "c")),
        (entity(None), QuotaBucket("a", "")),
        (entity(client="c"), QuotaBucket("", "c")),
        (entity(client=None), QuotaBucket("", "c")),
    ]
    limits = QuotaLimits()
    quotas = {entity: {QuotaKind.FETCH.value: float(number)} for number, (entity, _) in enumerate(levels, 1)}
    limits.change(quotas)
    for number, (removed, bucket) in enumerate(levels, 1):
        assert limits.bucket(QuotaKind.FETCH, user("a"), "c") == bucket
        assert limits.limit(QuotaKind.FETCH, bucket) == number
        assert limits.bucket(QuotaKind.PRODUCE, user("a"), "c") == QuotaBucket("a", "c"), "each quota stands by itself"
        limits.change({removed: None})
    assert limits.limit(QuotaKind.FETCH, QuotaBucket("a", "c")) is None
    assert not limits.is_active(QuotaKind.FETCH)


def test_a_change_of_an_entity_replaces_all_its_quotas() -> None:
    limits = QuotaLimits()
    limits.change({entity("a"): {"producer_byte_rate": 5.0, "request_percentage": 1.0}})
    limits.change({entity("a"): {"producer_byte_rate": 6.0}, entity("b"): {"consumer_byte_rate": 1.0}})
    assert limits.limit(QuotaKind.PRODUCE, QuotaBucket("a", "")) == 6
    assert [limits.is_active(kind) for kind in QuotaKind] == [True, True, False, False]


def test_a_limit_of_zero_delays_for_all_windows() -> None:
    rate, bucket = SampledRate(WINDOWS), TokenBucket(WINDOWS)
    rate.record(1, T0)
    bucket.take(1, 0, T0)
    assert (rate.throttle_ms(0, T0), bucket.throttle_ms(0, T0)) == (WINDOWS.covered_ms, WINDOWS.covered_ms)


def test_limits_by_client_id_do_not_hold_for_clients_without_one() -> None:
    limits = QuotaLimits()
    limits.change({entity(client=None): {"producer_byte_rate": 5.0}, (("ip", None),): {"connection_creation_rate": 1}})
    assert limits.limit(QuotaKind.PRODUCE, limits.bucket(QuotaKind.PRODUCE, user("a"), "")) is None
    assert limits.limit(QuotaKind.PRODUCE, limits.bucket(QuotaKind.PRODUCE, user("a"), "c")) == 5


# --- managers


def manager(quotas: dict[QuotaEntity, float], kind: QuotaKind = QuotaKind.PRODUCE) -> ClientQuotaManager:
    limits = QuotaLimits()
    limits.change({entity: {kind.value: limit} for entity, limit in quotas.items()})
    return ClientQuotaManager(kind, limits, WINDOWS)


def test_a_limit_of_a_user_is_shared_by_the_clients_of_the_user() -> None:
    quotas = manager({entity("a"): 1000, entity("b", None): 1000})
    assert quotas.record(user("a"), "c1", 10_000, T0) == 0
    assert quotas.record(user("a"), "c2", 1000, T0) > 0
    assert quotas.record(user("b"), "c1", 10_000, T0) == 0
    assert quotas.record(user("b"), "c2", 10_000, T0) == 0
    assert quotas.record(user("other"), "c2", 1e9, T0) == 0


class Quotas:
    """A manager whose limits change one by one. `check` records a use of `value` per second in all windows."""

    def __init__(self) -> None:
        self.limits = QuotaLimits()
        self.manager = ClientQuotaManager(QuotaKind.PRODUCE, self.limits, WINDOWS)

    def set(self, limit: float | None, name: str | None = "", client: str | None = "") -> None:
        limits = None if limit is None else {QuotaKind.PRODUCE.value: limit}
        self.limits.change({entity(name, client): limits})

    def check(self, name: str, client: str, limit: float, value: float, *, throttled: bool) -> None:
        kind = QuotaKind.PRODUCE
        assert self.limits.limit(kind, self.limits.bucket(kind, user(name), client)) == limit
        assert (self.manager.record(user(name), client, value * 11, T0) > 0) == throttled


def test_precedence_and_sharing_are_those_of_kafka() -> None:
    """ClientQuotaManagerTest.testQuotaConfigPrecedence."""
    quotas = Quotas()
    quotas.set(1000, None)
    quotas.set(2000, client=None)
    quotas.set(3000, None, None)
    quotas.set(4000, "A")
    quotas.set(5000, "A", "c1")
    quotas.set(6000, "B")
    quotas.set(7000, "B", "c1")
    quotas.set(8000, "B", None)
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
    quotas.set(None, None, None)
    quotas.check("D", "c1", 1000, 0, throttled=False)  # another bucket
    quotas.check("E", "c4", 1000, 1500, throttled=True)
    quotas.check("F", "c4", 1000, 800, throttled=False)
    quotas.check("F", "c5", 1000, 800, throttled=True)
    quotas.set(None, None)
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
    quotas.set(12000, "A", None)
    quotas.set(None, "A", "c6")
    quotas.check("A", "c6", 12000, 4000, throttled=True)


def test_a_use_that_is_taken_back_does_not_count() -> None:
    quotas = manager({entity("a"): 1000})
    assert quotas.record(user("a"), "c", 11_000, T0) == 1000
    quotas.take_back(user("a"), "c", 11_000, T0)
    assert quotas.record(user("a"), "c", 0, T0) == 0


def test_the_delay_of_requests_is_bounded() -> None:
    limits = QuotaLimits()
    limits.change({entity("a"): {QuotaKind.REQUEST.value: 1.0}})
    quotas = ClientQuotaManager(QuotaKind.REQUEST, limits, WINDOWS, throttle_ms_max=1000)
    assert quotas.record(user("a"), "", 10_000.0, T0) == 1000


def test_the_largest_use_at_once_fits_the_windows() -> None:
    quotas = manager({entity("a"): 1000})
    most = quotas.most_at_once(user("a"), "c")
    assert most == 10_000
    assert quotas.record(user("a"), "c", most, T0) == 0
    assert quotas.most_at_once(user("other"), "c") is None
    assert manager({}).most_at_once(user("a"), "c") is None


def test_a_client_with_ever_new_ids_is_bounded_in_memory() -> None:
    quotas = manager({entity(client=None): 1000})
    for number in range(BUCKETS_MAX + 10):
        quotas.record(user("a"), str(number), 1, T0)
    assert len(quotas._meters) == BUCKETS_MAX


@pytest.mark.parametrize("strict", [True, False])
def test_a_strict_mutation_quota_refuses_and_a_permissive_one_delays(strict: bool) -> None:
    limits = QuotaLimits()
    limits.change({entity("a"): {"controller_mutation_rate": 1.0}})
    managed = MutationQuotaManager(limits, WINDOWS)
    first = managed.open(user("a"), "c", strict=strict)
    assert first.take(20, T0), "the bucket holds 11 tokens and may become negative"
    second = managed.open(user("a"), "c", strict=strict)
    assert second.take(1, T0) is not strict
    assert second.throttle_ms(T0) == (9_000 if strict else 10_000)
    assert second.throttle_ms(T0 + 2_000) == (7_000 if strict else 8_000)
    assert first.throttle_ms(T0) == (0 if strict else 9_000)
    unlimited = managed.open(user("b"), "c", strict=strict)
    assert unlimited.take(1_000_000, T0)
    assert unlimited.throttle_ms(T0) == 0
