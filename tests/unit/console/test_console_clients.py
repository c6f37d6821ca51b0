"""The page of client activity: who uses what, by each of its names."""

from __future__ import annotations

from barnabas.client import Producer
from barnabas.testing import EmbeddedBroker
from tests.progress import wait_until
from tests.unit.console.pages import Browser


def test_clients_are_shown_by_each_of_their_names(browser: Browser, broker: EmbeddedBroker) -> None:
    browser.change("/topics/create", topic="active", partitions=1)
    with Producer(bootstrap_servers=broker.bootstrap_servers, client_id="<b>shop</b>") as producer:

        def is_shown() -> bool:
            producer.send("active", b"x" * 1000)
            producer.flush()
            return any(row["name"] == "<b>shop</b>" for row in browser.document("/clients")["rows"])

        wait_until(is_shown, what="the producer is among the clients")
    rows = {row["name"]: row for row in browser.document("/clients")["rows"]}
    assert rows["<b>shop</b>"]["bytes_in"] > 0
    assert rows["<b>shop</b>"]["seconds"] > 0
    assert rows["barnabas-console"]["requests"] > 0
    assert [row["name"] for row in browser.document("/clients?by=address")["rows"]] == ["127.0.0.1"]
    assert [row["name"] for row in browser.document("/clients?by=principal")["rows"]] == ["User:ANONYMOUS"]
    assert "active-0" in [row["name"] for row in browser.document("/clients?by=partition&sort=name")["rows"]]
    producers = browser.document("/clients?by=producer&q=shop")["rows"]
    assert [(row["name"], row["address"], row["partition"]) for row in producers] == [
        ("<b>shop</b>", "127.0.0.1", "active-0")
    ]
    assert producers[0]["producer_id"] >= 0
    assert "<b>shop</b>" not in browser.client.get("/clients").text
    for by in ("client", "address", "principal", "partition", "producer", "consumer"):
        assert "Client activity" in browser.page(f"/clients?by={by}")
    assert browser.document("/clients?by=color", 400)["error"].startswith("by is one of client, address")
