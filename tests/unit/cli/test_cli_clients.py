"""`barnabas clients`: tables and JSON, of known rates and of a broker."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from barnabas import Producer
from barnabas.cli.app import build_app
from barnabas.cli.watch.clients import AMOUNTS_OF, By, Sort, select, show
from barnabas.client.admin.clients import ClientUse, ClientUses, add_up
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.messages.describe_clients import ClientRow
from barnabas.testing import EmbeddedBroker
from tests.progress import wait_until

NOBODY = ClientUse(None, None, None, None, -1, -1, 0.0, 0.0, 0.0, 0.0, 0.0)


def rows_of(*brokers: list[ClientRow]) -> ClientUses:
    clients, others = add_up(row for rows in brokers for row in rows)
    return ClientUses(clients, others, {})


def test_the_shares_of_brokers_are_added_up() -> None:
    found = rows_of(
        [
            ClientRow(client_id="quiet", bytes_in=10, requests=1, seconds=0.001),
            ClientRow(client_id="noisy", bytes_in=100, requests=50, seconds=0.2, producer_id=4),
            ClientRow(is_others=True, bytes_in=3),
        ],
        [
            ClientRow(client_id="noisy", bytes_in=200, bytes_out=7, requests=150, seconds=0.5, records_in=9),
            ClientRow(is_others=True, bytes_in=4, seconds=0.5),
        ],
    )
    assert found.clients == (
        ClientUse("noisy", None, None, None, -1, 4, 300, 7, 200, 0.7, 9),
        ClientUse("quiet", None, None, None, -1, -1, 10, 0, 1, 0.001, 0),
    )
    assert found.others == ClientUse(None, None, None, None, -1, -1, 7, 0, 0, 0.5, 0)


TABLE = """\
CLIENT ID      COST  REQUESTS/S        IN/S     OUT/S  RECORDS/S
load-test     61.2%       9,120    11.4 MiB  90.0 KiB    118,000
orders         3.0%        40.5  1023.4 KiB       0 B        1.2
(all others)   0.1%         0.5         1 B       0 B        0.0
and 1 more: --limit 3 shows all
"""
PRODUCERS = """\
CLIENT ID  ADDRESS   PRINCIPAL   PARTITION  PRODUCER ID     IN/S  RECORDS/S
load-test  10.0.0.9  User:perf   orders-0   7001         9.5 MiB     90,000
orders     10.0.0.1  User:alice  orders-0   -            1.0 KiB        4.0
"""


def test_the_busiest_clients_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    found = ClientUses(
        (
            ClientUse("orders", None, None, None, -1, -1, 1_048_000, 0, 40.5, 0.03, 1.2),
            ClientUse("idle", None, None, None, -1, -1, 0, 0, 0.01, 0.0001, 0),
            ClientUse("load-test", None, None, None, -1, -1, 12_000_000, 92_160, 9_120, 0.612, 118_000),
        ),
        ClientUse(None, None, None, None, -1, -1, 1, 0, 0.5, 0.001, 0),
        {},
    )
    show(found, select(found, By.CLIENT, Sort.COST), By.CLIENT, limit=2)
    assert capsys.readouterr().out == TABLE
    assert [use.client_id for use in select(found, By.CLIENT, Sort.NAME)] == ["idle", "load-test", "orders"]


def test_producers_have_all_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    found = ClientUses(
        (
            ClientUse("orders", "10.0.0.1", "User:alice", "orders", 0, -1, 1_024, 0, 0, 0, 4),
            ClientUse("load-test", "10.0.0.9", "User:perf", "orders", 0, 7001, 10_000_000, 0, 0, 0, 90_000),
            ClientUse("reader", "10.0.0.2", "User:bob", "orders", 0, -1, 0, 5_000, 0, 0, 0),
        ),
        NOBODY,
        {},
    )
    show(found, select(found, By.PRODUCER, Sort.IN), By.PRODUCER, limit=20)
    assert capsys.readouterr().out == PRODUCERS
    assert [use.client_id for use in select(found, By.CONSUMER, Sort.OUT)] == ["reader"]
    assert set(AMOUNTS_OF) == set(By)


def test_a_broker_is_asked() -> None:
    app = build_app(("clients",))
    with EmbeddedBroker() as broker:

        def run(*words: str) -> str:
            result = CliRunner().invoke(app, ["clients", *words, "--bootstrap-server", broker.bootstrap_servers])
            assert result.exit_code == 0, result.output
            return result.output

        with Producer(bootstrap_servers=broker.bootstrap_servers, client_id="shop") as producer:
            producer.send("orders", b"x" * 10_000).result()
            wait_until(lambda: "shop" in run(), what="the producer is shown")
            assert "User:ANONYMOUS" in run("--by", "principal")
            assert "orders-0" in run("--by", "partition", "--sort", "name")
            [use] = json.loads(run("--by", "producer", "--json"))["clients"]
        assert (use["client_id"], use["address"], use["topic"], use["partition"]) == ("shop", "127.0.0.1", "orders", 0)
        assert use["producer_id"] >= 0
        assert use["bytes_in"] > 0
        refused = CliRunner().invoke(app, ["clients", "--json", "--watch"])
        assert refused.exit_code == 2
        assert "leave --json out" in refused.output


def test_a_broker_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from barnabas.client.admin import AsyncAdmin

    async def describe_clients(self: AsyncAdmin, view: object) -> ClientUses:
        gone = KafkaError(ErrorCode.NETWORK_EXCEPTION, "127.0.0.1:1 refused the connection")
        return ClientUses((), NOBODY, {2: gone})

    monkeypatch.setattr(AsyncAdmin, "describe_clients", describe_clients)
    with EmbeddedBroker() as broker:
        result = CliRunner().invoke(
            build_app(("clients",)), ["clients", "--bootstrap-server", broker.bootstrap_servers]
        )
    assert result.exit_code == 1
    assert "broker 2 did not answer, and its share is missing: 127.0.0.1:1 refused" in result.output
