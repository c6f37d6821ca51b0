"""Limits of connections: the cases of Kafka's ConnectionQuotasTest, in virtual time."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec import Struct

from barnabas.protocol.security.quotas.rates import QuotaWindows
from barnabas.protocol.transport.connection_quotas import (
    ADDRESSES_MAX,
    UNLIMITED,
    AddressRates,
    ConnectionQuotas,
    DescriptorLimits,
    ListenerLimits,
)
from tests.configs import connection_limits

EXTERNAL, ADMIN, REPLICATION = "EXTERNAL", "ADMIN", "REPLICATION"
LISTENERS = (EXTERNAL, ADMIN, REPLICATION)
HOSTS = {EXTERNAL: "192.168.1.1", ADMIN: "192.168.1.2", REPLICATION: "192.168.1.3"}
WINDOWS = QuotaWindows(2, 1)


class Connection:
    """An admitted connection."""

    def __init__(self, last_active: float, *, idle: bool = True) -> None:
        self.last_active = last_active
        self.idle = idle
        self.closing = False

    def close(self, reason: str, *, expected: bool = False) -> None:
        self.closing = True


class Owner:
    """A listener, which counts how often a slot became free."""

    def __init__(self, name: str, connections: Sequence[Connection] = ()) -> None:
        self.name = name
        self.connections = list(connections)
        self.woken = 0

    def on_slot_free(self) -> None:
        self.woken += 1


def quotas_with(
    *, listeners: Sequence[str] = LISTENERS, own: Mapping[str, ListenerLimits] | None = None, **limits: Any
) -> ConnectionQuotas:
    """The limits of a node; REPLICATION is the listener for requests between brokers."""
    quotas = ConnectionQuotas(
        connection_limits(**limits, listeners=own or {}), windows=WINDOWS, inter_broker_listener=REPLICATION
    )
    for name in listeners:
        quotas.add_listener(Owner(name))
    return quotas


class Outcome(Struct):
    """What became of the connections of one listener."""

    admitted: int = 0
    delayed: int = 0
    throttled: int = 0
    refused: int = 0
    blocked: bool = False
    """Whether the last connection waits for a slot."""
    ended_ms: int = 0

    @property
    def rate(self) -> float:
        return self.admitted * 1000 / self.ended_ms


Plan = tuple[str, str, int, int]
"""Connections to create: the listener, the address, their number, and the milliseconds between them."""


def create(quotas: ConnectionQuotas, *plans: Plan, start_ms: int = 0) -> list[Outcome]:
    """Create connections as an acceptor of each plan would: the next one is accepted when the last one is admitted."""
    outcomes = [Outcome() for _ in plans]
    events = [(start_ms, number, 0, False) for number in range(len(plans))]
    heapq.heapify(events)
    while events:
        now, number, done, is_counted = heapq.heappop(events)
        listener, host, count, interval_ms = plans[number]
        outcome = outcomes[number]
        if done == count:
            outcome.ended_ms = now - start_ms
            continue
        if not is_counted:
            delay = quotas.delay_ms(listener, now)
            outcome.delayed += delay > 0
            heapq.heappush(events, (now + delay, number, done, True))
            continue
        if not quotas.has_slot(listener):
            outcome.blocked = True
            continue
        refusal = quotas.try_admit(listener, host, now)
        outcome.admitted += refusal is None
        outcome.throttled += refusal is not None and refusal.delay_ms > 0
        outcome.refused += refusal is not None and refusal.delay_ms == 0
        due = start_ms + (done + 1) * interval_ms
        heapq.heappush(events, (max(now, due), number, done + 1, False))
    return outcomes


def of_all(count: int, interval_ms: int = 0) -> list[Plan]:
    return [(name, HOSTS[name], count, interval_ms) for name in LISTENERS]


def test_a_connection_of_an_unknown_listener_is_an_error() -> None:
    with pytest.raises(KeyError):
        quotas_with(listeners=()).delay_ms(EXTERNAL, 0)


def test_an_unknown_address_cannot_be_released() -> None:
    with pytest.raises(AssertionError):
        quotas_with().release(EXTERNAL, "192.168.2.0")


def test_there_are_no_limits_by_default() -> None:
    quotas = quotas_with()
    for outcome in create(quotas, *of_all(10_000)):
        assert outcome == Outcome(admitted=10_000)
    assert quotas.open == 30_000
    quotas.release(EXTERNAL, HOSTS[EXTERNAL])
    assert (quotas.open_of(EXTERNAL), quotas.open_of(ADMIN)) == (9_999, 10_000)


def test_connections_above_the_limit_of_an_address_are_refused() -> None:
    quotas = quotas_with(max_connections_per_ip=17)
    plan = (EXTERNAL, HOSTS[EXTERNAL], 19, 0)
    assert create(quotas, plan) == [Outcome(admitted=17, refused=2)]
    assert create(quotas, (EXTERNAL, "192.168.10.0", 17, 0)) == [Outcome(admitted=17)]
    for _ in range(2):
        quotas.release(EXTERNAL, HOSTS[EXTERNAL])
    assert create(quotas, plan) == [Outcome(admitted=2, refused=17)]


def test_an_override_replaces_the_limit_of_an_address() -> None:
    quotas = quotas_with(max_connections_per_ip=2, max_connections_per_ip_overrides={"10.0.0.1": 3, "10.0.0.2": 0})
    assert create(quotas, (EXTERNAL, "10.0.0.1", 4, 0)) == [Outcome(admitted=3, refused=1)]
    assert create(quotas, (EXTERNAL, "10.0.0.2", 4, 0)) == [Outcome(refused=4)]
    refusal = quotas.try_admit(EXTERNAL, "10.0.0.1", 0)
    assert refusal is not None
    assert refusal.reason == "max.connections.per.ip=3 reached for 10.0.0.1"


def test_the_limit_of_the_node_does_not_hold_between_brokers() -> None:
    quotas = quotas_with(max_connections=800)
    assert create(quotas, (EXTERNAL, HOSTS[EXTERNAL], 801, 0)) == [Outcome(admitted=800, blocked=True)]
    quotas.release(EXTERNAL, HOSTS[EXTERNAL])
    assert create(quotas, (EXTERNAL, HOSTS[EXTERNAL], 1, 0)) == [Outcome(admitted=1)]
    assert create(quotas, (REPLICATION, HOSTS[REPLICATION], 2, 0)) == [Outcome(admitted=2)]
    for _ in range(2):
        quotas.release(EXTERNAL, HOSTS[EXTERNAL])
        assert not quotas.has_slot(ADMIN)
    quotas.release(EXTERNAL, HOSTS[EXTERNAL])
    assert quotas.has_slot(ADMIN)


def test_the_limit_of_the_node_holds_for_an_only_listener() -> None:
    quotas = quotas_with(listeners=(REPLICATION,), max_connections=2)
    assert create(quotas, (REPLICATION, HOSTS[REPLICATION], 3, 0)) == [Outcome(admitted=2, blocked=True)]


def test_each_listener_has_its_own_limit() -> None:
    quotas = quotas_with(max_connections=800, own=dict.fromkeys(LISTENERS, ListenerLimits(200, UNLIMITED)))
    assert create(quotas, *of_all(201)) == [Outcome(admitted=200, blocked=True)] * 3
    for name in LISTENERS:
        quotas.release(name, HOSTS[name])
    assert create(quotas, *of_all(1)) == [Outcome(admitted=1)] * 3


def test_connections_below_the_rate_of_the_node_do_not_wait() -> None:
    outcomes = create(quotas_with(max_connection_creation_rate=125), *of_all(200, 25))
    assert outcomes == [Outcome(admitted=200, ended_ms=5_000)] * 3


def test_connections_above_the_rate_of_the_node_wait_but_for_those_between_brokers() -> None:
    external, admin, replication = create(quotas_with(max_connection_creation_rate=90), *of_all(400, 10))
    assert [outcome.admitted for outcome in (external, admin, replication)] == [400] * 3
    assert external.delayed > 100
    assert admin.delayed > 100
    assert external.rate + admin.rate == pytest.approx(90, abs=20)
    between = create(quotas_with(max_connection_creation_rate=90), (REPLICATION, HOSTS[REPLICATION], 80, 12))
    assert between == [Outcome(admitted=80, ended_ms=960)]


def test_connections_below_the_rates_of_their_listeners_do_not_wait() -> None:
    own = dict.fromkeys(LISTENERS, ListenerLimits(UNLIMITED, 50))
    outcomes = create(quotas_with(max_connection_creation_rate=125, own=own), *of_all(200, 25))
    assert outcomes == [Outcome(admitted=200, ended_ms=5_000)] * 3


def test_connections_above_the_rates_of_their_listeners_wait() -> None:
    own = dict.fromkeys(LISTENERS, ListenerLimits(UNLIMITED, 30))
    for outcome in create(quotas_with(max_connection_creation_rate=125, own=own), *of_all(600, 25)):
        assert outcome.admitted == 600
        assert outcome.delayed > 100
        assert outcome.rate == pytest.approx(30, abs=7)


def test_connections_below_the_rate_of_their_address_are_admitted() -> None:
    quotas = quotas_with()
    quotas.set_address_rates(AddressRates({HOSTS[EXTERNAL]: 30}))
    assert create(quotas, *of_all(200, 40)) == [Outcome(admitted=200, ended_ms=8_000)] * 3


def test_connections_above_the_rate_of_their_address_are_closed_after_a_delay() -> None:
    quotas = quotas_with()
    quotas.set_address_rates(AddressRates({HOSTS[EXTERNAL]: 20}))
    external, admin, replication = create(quotas, *of_all(80, 25))
    assert external.throttled > 20
    assert external.rate == pytest.approx(20, abs=1)
    assert admin == replication == Outcome(admitted=80, ended_ms=2_000)
    quotas.set_address_rates(AddressRates({}, 20))
    (admin,) = create(quotas, (ADMIN, HOSTS[ADMIN], 80, 25), start_ms=10_000)
    assert admin.rate == pytest.approx(20, abs=1)
    assert admin.delayed == 0, "the listener accepts other connections meanwhile"


def test_the_rate_of_a_listener_makes_addresses_wait_before_their_own_rates() -> None:
    quotas = quotas_with(own={EXTERNAL: ListenerLimits(UNLIMITED, 35)})
    quotas.set_address_rates(AddressRates({}, 25))
    first, second = create(quotas, (EXTERNAL, "192.168.10.0", 35, 0), (EXTERNAL, "192.168.2.0", 35, 0))
    assert first.delayed + second.delayed > 0
    assert (first.throttled > 0) + (second.throttled > 0) < 2


def test_a_connection_that_is_refused_for_its_address_counts_in_no_rate() -> None:
    quotas = quotas_with(
        max_connection_creation_rate=2, own={EXTERNAL: ListenerLimits(UNLIMITED, 2)}, listeners=(EXTERNAL, ADMIN)
    )
    quotas.set_address_rates(AddressRates({HOSTS[EXTERNAL]: 1}))
    outcome = create(quotas, (EXTERNAL, HOSTS[EXTERNAL], 100, 0))
    assert outcome == [Outcome(admitted=1, throttled=99)]
    assert create(quotas, (EXTERNAL, "192.168.2.0", 1, 0)) == [Outcome(admitted=1)]


def test_a_delay_is_at_most_one_window() -> None:
    quotas = quotas_with(max_connection_creation_rate=1)
    delays = [quotas.delay_ms(EXTERNAL, 0) for _ in range(5)]
    assert delays == [0, 1000, 1000, 1000, 1000]
    quotas.set_address_rates(AddressRates({}, 1))
    refusals = [quotas.try_admit(ADMIN, HOSTS[ADMIN], 0) for _ in range(3)]
    assert [refusal and refusal.delay_ms for refusal in refusals] == [None, 1000, 1000]


def test_the_rate_of_a_listener_changes() -> None:
    own = {EXTERNAL: ListenerLimits(UNLIMITED, 20)}
    quotas = quotas_with(own=own)
    quotas.set_limits(connection_limits())
    plan = (EXTERNAL, HOSTS[EXTERNAL], 1000, 0)
    assert create(quotas, plan) == [Outcome(admitted=1000)]
    quotas.set_limits(connection_limits(listeners={EXTERNAL: ListenerLimits(UNLIMITED, 10)}))
    (outcome,) = create(quotas, (EXTERNAL, HOSTS[EXTERNAL], 200, 5), start_ms=5_000)
    assert outcome.rate == pytest.approx(10, abs=3)


def test_the_rate_of_the_node_changes() -> None:
    quotas = quotas_with()
    quotas.set_limits(connection_limits(max_connection_creation_rate=50))
    (outcome,) = create(quotas, (EXTERNAL, HOSTS[EXTERNAL], 400, 5))
    assert outcome.delayed > 0
    assert outcome.rate == pytest.approx(50, abs=20)


def test_the_rate_of_an_address_precedes_the_default() -> None:
    rates = AddressRates({HOSTS[EXTERNAL]: 30}, 20)
    assert [rates.of(HOSTS[EXTERNAL]), rates.of(HOSTS[ADMIN]), AddressRates().of(HOSTS[ADMIN])] == [30, 20, None]


def test_the_rate_of_an_address_changes() -> None:
    quotas = quotas_with()
    plan = (EXTERNAL, HOSTS[EXTERNAL], 40, 0)
    quotas.set_address_rates(AddressRates({HOSTS[EXTERNAL]: 20}))
    assert create(quotas, plan) == [Outcome(admitted=20, throttled=20)]
    quotas.set_address_rates(AddressRates({HOSTS[EXTERNAL]: 30}))
    assert create(quotas, plan) == [Outcome(admitted=10, throttled=30)]
    quotas.set_address_rates(AddressRates())
    assert create(quotas, plan) == [Outcome(admitted=40)]
    quotas.set_address_rates(AddressRates({}, 20))
    assert create(quotas, (ADMIN, HOSTS[ADMIN], 40, 0)) == [Outcome(admitted=20, throttled=20)]


def test_a_rate_and_a_number_limit_the_same_connections() -> None:
    quotas = quotas_with(max_connections=350, max_connection_creation_rate=25)
    (outcome,) = create(quotas, (EXTERNAL, HOSTS[EXTERNAL], 350, 10))
    assert outcome.admitted == 350
    assert outcome.rate == pytest.approx(25, abs=8)
    (outcome,) = create(quotas, (EXTERNAL, HOSTS[EXTERNAL], 1, 10), start_ms=100_000)
    assert outcome.blocked
    quotas.release(EXTERNAL, HOSTS[EXTERNAL])
    assert quotas.has_slot(EXTERNAL)


# --- connections that are closed for others


def test_the_least_recently_used_connection_makes_room_for_one_between_brokers() -> None:
    quotas = quotas_with(listeners=(), max_connections=3)
    busy, old, new = Connection(1, idle=False), Connection(2), Connection(3)
    own = Connection(0)
    clients, brokers = Owner(EXTERNAL, [busy, old, new]), Owner(REPLICATION, [own])
    quotas.add_listener(clients)
    quotas.add_listener(brokers)
    for _ in clients.connections:
        assert quotas.try_admit(EXTERNAL, "a", 0) is None
    quotas.close_excess()
    assert quotas.try_admit(REPLICATION, "b", 0) is None
    quotas.close_excess()
    assert [c.closing for c in (busy, old, new, own)] == [False, True, False, False]
    quotas.close_excess()
    assert [c.closing for c in (busy, old, new, own)] == [False, True, False, False], "it is already closing"
    woken = clients.woken
    quotas.release(EXTERNAL, "a")
    assert clients.woken == woken + 1


def test_a_lower_limit_closes_the_connections_above_it() -> None:
    quotas = quotas_with(listeners=())
    connections = [Connection(age) for age in (5, 3, 4, 1)]
    quotas.add_listener(Owner(EXTERNAL, connections))
    for _ in connections:
        assert quotas.try_admit(EXTERNAL, "a", 0) is None
    quotas.set_limits(connection_limits(max_connections=2))
    assert [connection.closing for connection in connections] == [False, True, False, True]


def test_connections_that_wait_use_descriptors() -> None:
    quotas = ConnectionQuotas(connection_limits(), descriptors=DescriptorLimits(4, 100))
    quotas.add_listener(Owner(EXTERNAL))
    quotas.unadmitted = 3
    assert quotas.is_nearly_short_of_descriptors
    assert not quotas.is_short_of_descriptors(7)
    assert quotas.is_short_of_descriptors(100)
    quotas.unadmitted = 4
    assert quotas.is_short_of_descriptors(7)


def test_the_memory_for_the_rates_of_addresses_is_limited() -> None:
    quotas = quotas_with()
    quotas.set_address_rates(AddressRates({}, 1))
    for number in range(ADDRESSES_MAX + 10):
        quotas.try_admit(EXTERNAL, str(number), 0)
    assert len(quotas._rate_of_host) == ADDRESSES_MAX
