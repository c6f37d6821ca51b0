"""What clients use, by client id, address, principal and partition: sums, rates, bounds, and names that do no harm."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.security.principals import KafkaPrincipal
from barnabas.protocol.transport.ports import Peer, Usage
from barnabas.protocol.wire.messages import produce
from barnabas.protocol.wire.messages.describe_clients import ClientView
from barnabas.server.broker.client_usage.series import NEW_NAMES_PER_HOUR, NOTHING, SERIES_MAX, Amounts, Series
from barnabas.server.broker.client_usage.tables import (
    IDLE_S,
    NAME_LENGTH_MAX,
    NOT_PENDING,
    TICK_S,
    WINDOW_S,
    ClientUsage,
    PartitionClient,
    UsageEntry,
    UsageTable,
    clean,
    weight_of,
)
from tests.unit.server.replication.brokers import Cluster, in_virtual_time


class Place(Struct, eq=False):
    """A partition of a broker."""

    name: TopicPartition


ORDERS = Place(TopicPartition("orders", 0))


def connect(clients: ClientUsage, client_id: str | None, host: str = "10.0.0.1", user: str = "alice") -> Peer:
    peer = Peer(1, "L", "PLAINTEXT", host, 1, KafkaPrincipal("User", user), usage=clients.new_usage())
    peer.usage.client_id = client_id
    return peer


def use(
    clients: ClientUsage, peer: Peer, now: float, *, bytes_in: int = 0, requests: int = 1, seconds: float = 0.0
) -> None:
    """As the transport does it."""
    if now >= peer.usage.due:
        clients.on_due(peer, now)
    peer.usage.bytes_in += bytes_in
    peer.usage.requests += requests
    peer.usage.seconds += seconds


def names(table: UsageTable[Any], now: float) -> list[Any]:
    return [entry.key for entry in table.most_active(now)]


def test_a_noisy_client_is_found_by_each_of_its_names() -> None:
    clients = ClientUsage()
    quiet, noisy = connect(clients, "quiet"), connect(clients, "noisy", "10.0.0.2", "mallory")
    for second in range(100, 120):
        use(clients, quiet, second, bytes_in=100, seconds=0.001)
        for part in range(10):
            use(clients, noisy, second + part / 10, bytes_in=50_000, seconds=0.05)
    now = 120.0
    clients.collect(now)
    assert names(clients.by_client_id, now) == ["noisy", "quiet"]
    assert names(clients.by_address, now) == ["10.0.0.2", "10.0.0.1"]
    assert names(clients.by_principal, now) == ["User:mallory", "User:alice"]
    found = clients.by_client_id.get("noisy")
    assert found is not None
    bytes_in, bytes_out, requests, seconds, records = found.rates(now)
    assert bytes_in == pytest.approx(500_000, rel=0.06)
    assert (bytes_out, records) == (0, 0)
    assert requests == pytest.approx(10, rel=0.06)
    assert seconds == pytest.approx(0.5, rel=0.06)


def test_producers_and_partitions_are_counted_with_their_clients() -> None:
    clients = ClientUsage()
    peer = connect(clients, "shop")
    use(clients, peer, 5.0)
    written = peer.usage.start(peer, ORDERS, 77)
    written.bytes_in, written.records_in = 1000, 10
    clients.collect(6.0)
    key = PartitionClient("shop", "10.0.0.1", "User:alice", ORDERS.name)
    [entry] = clients.by_partition_client.most_active(6.0)
    assert (entry.key, entry.producer_id) == (key, 77)
    [partition] = clients.by_partition.most_active(6.0)
    assert partition.sums == entry.sums
    assert entry.sums[0] == 1000
    assert entry.sums[4] == 10
    client = clients.by_client_id.get("shop")
    assert client is not None
    assert list(client.sums) == [0, 0, 1, 0, 10], "the records of a client are those of its partitions"
    assert not peer.usage.partitions
    assert peer.usage.due == NOT_PENDING


def test_a_repeated_batch_is_not_counted_again() -> None:
    batch = build_batch([SimpleRecord(None, b"v", 1)] * 3, producer_id=9, producer_epoch=0, base_sequence=0)
    data = produce.PartitionProduceData(index=0, records=batch)
    request = produce.ProduceRequest(
        acks=1, timeout_ms=1_000, topic_data=[produce.TopicProduceData(name="t", partition_data=[data])]
    )

    async def main(cluster: Cluster) -> None:
        cluster.create("t", [[1]])
        await cluster.until(lambda: len(cluster.brokers[1].partitions) == 1)
        usage = Usage()
        for _ in range(2):
            answer: Any = await cluster.brokers[1].serve(request, 9, usage)
            [partition] = answer.responses[0].partition_responses
            assert (partition.error_code, partition.base_offset) == (0, 0)
        [used] = usage.partitions.values()
        assert (used.records_in, used.bytes_in, used.producer_id) == (3, len(batch), 9)

    in_virtual_time(main, brokers=1)


def test_a_connection_that_changes_its_client_id_does_not_charge_the_next_one() -> None:
    clients = ClientUsage()
    peer = connect(clients, "a")
    use(clients, peer, 1.0, bytes_in=10)
    clients.on_client_id(peer, "b", 1.5)
    use(clients, peer, 1.5, bytes_in=1)
    clients.collect(2.0)
    assert {entry.key: entry.sums[0] for entry in clients.by_client_id.most_active(2.0)} == {
        "a": pytest.approx(10 * math.exp(-0.0), rel=0.1),
        "b": 1,
    }


def test_what_a_closed_connection_has_used_is_counted() -> None:
    clients = ClientUsage()
    peer = connect(clients, "short")
    use(clients, peer, 1.0, bytes_in=10)
    clients.collect(2.5)
    peer.usage.bytes_out += 7  # a response that was written after the others were counted
    clients.on_closed(peer, 3.0)
    clients.collect(3.5)
    found = clients.by_client_id.get("short")
    assert found is not None
    assert found.sums[1] == 7


def test_a_pause_does_not_make_old_use_look_new() -> None:
    clients = ClientUsage()
    peer = connect(clients, "early")
    use(clients, peer, 10.0, bytes_in=1_000_000)
    clients.collect(10.0 + 5 * WINDOW_S)  # nobody has used anything since
    found = clients.by_client_id.get("early")
    assert found is not None
    assert found.rates(10.0 + 5 * WINDOW_S)[0] < 1_000_000 / WINDOW_S * 0.01
    assert names(clients.by_client_id, 11.0 + IDLE_S + TICK_S) == [], "a client that is idle is forgotten"


def test_many_connections_are_counted_in_pieces() -> None:
    clients = ClientUsage(pending_max=10)
    for number in range(25):
        use(clients, connect(clients, f"c{number}"), 1.0)
    assert len(clients.by_client_id) == 20
    clients.collect(1.0)
    assert len(clients.by_client_id) == 25


def test_a_request_that_waits_is_counted_in_pieces_too() -> None:
    """Its connection has been counted while it waited, and its response has very many partitions."""
    clients = ClientUsage(pending_max=10)
    peer, other = connect(clients, "waits"), connect(clients, "other")
    use(clients, peer, 1.0)
    use(clients, other, 3.0)
    assert peer.usage.due == NOT_PENDING
    for number in range(25):
        peer.usage.start(peer, Place(TopicPartition("t", number))).bytes_out += 1
        assert len(peer.usage.partitions) <= 10
    clients.collect(3.5)
    assert len(clients.by_partition) == 25
    assert names(clients.by_partition_client, 3.5)[0].client_id == "waits"


def test_many_partitions_are_counted_in_pieces() -> None:
    clients = ClientUsage(pending_max=10)
    peer = connect(clients, "wide")
    use(clients, peer, 1.0)
    for number in range(25):
        peer.usage.start(peer, Place(TopicPartition("t", number))).bytes_in += 1
        assert len(peer.usage.partitions) <= 10
    clients.collect(1.0)
    assert len(clients.by_partition) == 25


@given(st.floats(0.1, 1e6), st.integers(2, 80))
def test_a_steady_rate_is_measured_from_the_first_seconds_on(rate: float, seconds: int) -> None:
    entry: UsageEntry[str] = UsageEntry("k", 50.0)
    for second in range(seconds):
        entry.add((rate, 0, 0, 0, 0), 51.0 + second)
    assert entry.rates(50.0 + seconds)[0] == pytest.approx(rate, rel=0.06)


AMOUNTS = st.tuples(*[st.floats(0, 1e6, allow_subnormal=False)] * 3, st.floats(0, 1), st.floats(0, 1e6))
USES = st.lists(st.tuples(st.integers(0, 40), AMOUNTS, st.floats(0, 3)), max_size=120)


@given(USES, st.integers(1, 16))
def test_a_table_is_bounded_and_loses_nothing(uses: list[tuple[int, Amounts, float]], entries_max: int) -> None:
    table: UsageTable[int] = UsageTable(entries_max)
    everything: UsageEntry[int] = UsageEntry(None, 0.0)
    now = 0.0
    for key, amounts, pause in uses:
        now += min(pause, 3.0)
        table.add(key, amounts, now, now)
        everything.add(amounts, now)
        assert len(table) <= entries_max
    parts: UsageEntry[int] = UsageEntry(None, now)
    for entry in [*table.most_active(now), table.others]:
        entry.add(NOTHING, now)
        parts.add(entry.sums, now)
    everything.add(NOTHING, now)
    assert parts.sums == pytest.approx(everything.sums, rel=1e-6, abs=1e-6)


@given(USES.filter(bool), st.integers(8, 24))
def test_what_uses_much_is_never_displaced(uses: list[tuple[int, Amounts, float]], entries_max: int) -> None:
    """An entry whose weight is above the sum of all weights divided by seven eighths of the entries stays, since so
    many others cannot be heavier."""
    table: UsageTable[int] = UsageTable(entries_max)
    total: UsageEntry[int] = UsageEntry(None, 0.0)
    kept = entries_max - max(entries_max // 8, 1)
    now = 0.0
    for key, amounts, pause in uses:
        now += pause
        heavy = {entry.key for entry in table.most_active(now) if entry.weight(now) > total.weight(now) / kept * 1.001}
        table.add(key, amounts, now, now)
        total.add(amounts, now)
        assert heavy <= {entry.key for entry in table.most_active(now)}


@pytest.mark.parametrize("spread", [0, 1_000])
def test_thousands_of_partitions_seldom_displace_each_other(spread: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 partitions, each about as active as the others, used to sort the tables 100 times a second."""
    displaced: list[float] = []
    displace = UsageTable._displace

    def count(table: UsageTable[Any], now: float) -> None:
        displaced.append(now)
        displace(table, now)

    monkeypatch.setattr(UsageTable, "_displace", count)
    clients = ClientUsage()
    peer = connect(clients, "wide")
    for second in range(4):
        use(clients, peer, second)
        for number in range(10_000):
            used = peer.usage.start(peer, Place(TopicPartition("t", number)), 5)
            used.bytes_in += 1_000 + number * 7919 % (spread + 1)
        clients.collect(second + 0.9)
    assert 0 < len(displaced) <= 2 * 3 * 4
    assert clients.by_partition.others.producer_id == clients.by_partition_client.others.producer_id == -1


def test_a_partition_that_is_much_more_active_has_a_row_at_once() -> None:
    table: UsageTable[int] = UsageTable(16)
    for number in range(100):
        table.add(number, (100, 0, 0, 0, 0), 1.0, 1.0)
    assert table.add(100, (150, 0, 0, 0, 0), 1.1, 1.1) is table.others
    assert table.add(101, (300, 0, 0, 0, 0), 1.1, 1.1).key == 101
    assert table.most_active(1.1)[0].key == 101


def test_invented_client_ids_displace_each_other() -> None:
    clients = ClientUsage(names_max=64)
    honest = connect(clients, "honest")
    for number in range(5_000):
        now = number / 100
        use(clients, connect(clients, f"invented-{number}", "10.0.0.66", "mallory"), now, bytes_in=1_000)
        if number % 100 == 0:
            use(clients, honest, now, bytes_in=10_000)
    clients.collect(50.0)
    assert names(clients.by_client_id, 50.0)[0] == "honest"
    assert names(clients.by_address, 50.0) == ["10.0.0.66", "10.0.0.1"], "who invents them is found by the address"
    assert len(clients.by_client_id) <= 64
    assert weight_of(clients.by_client_id.others.sums) > 0


@given(st.lists(st.tuples(st.integers(0, 400), st.floats(0, 50)), max_size=300))
def test_the_names_of_series_are_bounded_at_every_time_and_over_time(uses: list[tuple[int, float]]) -> None:
    series = Series(series_max=5, new_per_hour=10)
    now, seen = 0.0, set[object]()
    for place, (name, pause) in enumerate(uses):
        now += pause
        series.add(name, (1, 0, 0, 0, 0), now)
        if place % 10 == 0:
            series.choose([(name, 100.0), (name + 1, 50.0)], now)
        seen |= set(series.by_name)
        assert len(series.by_name) <= 5
        assert len(seen) <= 10 + now / 3600 * 10 + 1


def test_a_busy_name_takes_the_series_of_an_idle_one() -> None:
    series = Series()
    for number in range(SERIES_MAX + 1):
        series.add(f"c{number}", (1, 0, 0, 0, 0), 1.0)
    assert f"c{SERIES_MAX}" not in series.by_name
    assert series.others.amounts[0] == 1
    assert NEW_NAMES_PER_HOUR >= SERIES_MAX
    hour = 3600.0
    series.choose([(f"c{SERIES_MAX}", 9.0), *((f"c{number}", 1.0) for number in range(1, SERIES_MAX))], hour)
    assert f"c{SERIES_MAX}" in series.by_name
    assert "c0" not in series.by_name
    series.add(f"c{SERIES_MAX}", (5, 0, 0, 0, 0), hour)
    assert series.by_name[f"c{SERIES_MAX}"].amounts[0] == 5
    assert series.others.amounts[0] == 1, "the sum of all others does not decrease"


@given(st.text(max_size=300))
def test_a_name_is_one_printable_line(text: str) -> None:
    name = clean(text)
    assert name.isprintable()
    assert 0 < len(name) <= NAME_LENGTH_MAX


def test_hostile_names() -> None:
    assert clean(None) == clean("") == "(none)"
    assert clean("a\x1b[2Jb\n\u202e") == "a?[2Jb??"
    assert clean("orders-service") == "orders-service"


def test_every_view_has_a_table() -> None:
    clients = ClientUsage()
    assert len({id(clients.table(view)) for view in ClientView}) == len(ClientView)


def test_an_ipv6_address_counts_as_its_network() -> None:
    clients = ClientUsage()
    for host in ("2001:db8::1", "2001:db8::2"):
        use(clients, connect(clients, "c", host), 1.0)
    clients.collect(1.0)
    assert names(clients.by_address, 1.0) == ["2001:db8::"]
