"""The metrics of the most active clients and partitions."""

from __future__ import annotations

from msgspec import Struct

from barnabas.core.ids import TopicPartition
from barnabas.core.telemetry import Counter, Metrics
from barnabas.core.telemetry.exposition import Exposition, building
from barnabas.protocol.transport.ports import Peer
from barnabas.server.broker.client_usage.tables import ClientUsage
from barnabas.server.monitoring.clients import ClientMonitor


class Place(Struct, eq=False):
    """A partition of a broker."""

    name: TopicPartition


def page_of(clients: ClientUsage, now: float) -> dict[str, float]:
    metrics, page = Metrics(), Exposition()
    metrics.collectors.append(ClientMonitor(clients, lambda: now).collect)
    for _ in building(metrics, page):
        pass
    lines = [line for family in page.families() for line in family.lines]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_what_clients_have_used_is_summed_up_by_each_of_their_names() -> None:
    clients, received = ClientUsage(), Counter()
    peer = Peer(1, "L", "PLAINTEXT", "10.0.0.1", 1, usage=clients.new_usage(received, Counter()))
    peer.usage.client_id = 'a "quoted"\nname'
    for now in (1.0, 2.5):
        clients.on_due(peer, now)
        peer.usage.bytes_in += 1000
        peer.usage.requests += 2
        peer.usage.seconds += 0.25
        peer.usage.start(peer, Place(TopicPartition("orders", 3))).records_in += 7
        page = page_of(clients, now)
    name = '{by="client_id",name="a \\"quoted\\"?name"}'
    assert page[f"barnabas_client_received_bytes_total{name}"] == 2000
    assert page[f"barnabas_client_requests_total{name}"] == 4
    assert page[f"barnabas_client_loop_seconds_total{name}"] == 0.5
    assert page[f"barnabas_client_records_total{name}"] == 14
    assert page['barnabas_client_requests_total{by="address",name="10.0.0.1"}'] == 4
    assert page['barnabas_client_requests_total{by="principal",name="User:ANONYMOUS"}'] == 4
    assert page['barnabas_partition_messages_in_total{topic="orders",partition="3"}'] == 14
    assert page['barnabas_client_requests_total{by="client_id",name=""}'] == 0
    assert received.value == 2000, "the bytes of the listener are those of its connections"


def test_the_page_has_series_of_at_most_a_hundred_names_of_each_kind() -> None:
    clients = ClientUsage()
    for number in range(300):
        peer = Peer(number, "L", "PLAINTEXT", f"10.0.{number // 256}.{number % 256}", 1, usage=clients.new_usage())
        peer.usage.client_id = f"c{number}"
        clients.on_due(peer, 1.0)
        peer.usage.requests += 1
    page = page_of(clients, 1.0)
    requests = {name: value for name, value in page.items() if name.startswith("barnabas_client_requests_total")}
    assert sum('by="client_id"' in name for name in requests) == 101
    assert sum('by="address"' in name for name in requests) == 101
    assert requests['barnabas_client_requests_total{by="client_id",name=""}'] == 200
    assert sum(value for name, value in requests.items() if 'by="client_id"' in name) == 300
