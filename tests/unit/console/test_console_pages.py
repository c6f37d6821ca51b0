"""Every page and its JSON twin, and the changes that forms make, with an embedded broker."""

from __future__ import annotations

import pytest

from barnabas.client import Consumer, Producer
from barnabas.console.web.pages import NAVIGATION, PAGES
from barnabas.testing import EmbeddedBroker
from tests.progress import wait_until
from tests.unit.console.pages import Browser

NAMES = [entry.path for _, entries in NAVIGATION for entry in entries if not entry.needs]


def make_topic(browser: Browser, name: str, partitions: int = 2) -> str:
    browser.change("/topics/create", topic=name, partitions=partitions)
    return name


@pytest.mark.parametrize("path", NAMES)
def test_every_page_of_the_navigation_is_served(browser: Browser, path: str) -> None:
    text = browser.page(path)
    assert f'<a href="{path}" aria-current="page">' in text
    assert '<main id="content"' in text
    assert isinstance(browser.document("/overview" if path == "/" else path), dict)


def test_no_page_has_inline_script_or_style(browser: Browser) -> None:
    for path in NAMES:
        text = browser.page(path)
        assert text.count("<script") == 1
        assert '<script src="/static/console.js" defer></script>' in text
        assert " style=" not in text
        assert "<style" not in text
        assert " onclick=" not in text
    assert browser.client.get("/static/console.js").status_code == 200
    assert browser.client.get("/static/console.css").status_code == 200


def test_the_overview_counts_brokers_and_topics(browser: Browser) -> None:
    document = browser.document("/overview")
    assert document["brokers"] == 1
    assert document["controller"] == 1
    assert document["problems"] == []


def test_a_topic_is_created_described_and_deleted(browser: Browser) -> None:
    outcome = browser.change("/topics/create", topic="made", partitions=3, configs="cleanup.policy=compact\n")
    assert outcome["message"] == "The topic made was created."
    assert outcome["link"] == "/topics/made"
    described = browser.document("/topics/made")
    assert [row["leader"] for row in described["partitions"]] == [1, 1, 1]
    configs = {row["name"]: row for row in browser.document("/topics/made/configs")["configs"]}
    assert configs["cleanup.policy"]["value"] == "compact"
    assert configs["cleanup.policy"]["is_own"]
    browser.change("/topics/made/config", config="cleanup.policy", value="delete")
    browser.change("/topics/made/partitions", partitions=4)
    assert len(browser.document("/topics/made")["partitions"]) == 4
    for page in ("", "/configs", "/groups", "/producers", "/why", "/messages", "/produce"):
        assert "made" in browser.page(f"/topics/made{page}")
    assert browser.change("/topics/made/delete", 400, confirm="other")["error"] == "Type 'made' to confirm."
    browser.change("/topics/made/delete", confirm="made")
    assert browser.document("/topics/made", 404) == {"error": "The topic 'made' does not exist."}
    assert "Not found" in browser.page("/topics/made", 404)


def test_topics_are_searched_and_sorted(browser: Browser) -> None:
    for name, partitions in (("sorted-a", 3), ("sorted-b", 1), ("sorted-c", 2)):
        make_topic(browser, name, partitions)
    found = browser.document("/topics?q=SORTED&sort=-partitions")
    assert [row["topic"] for row in found["rows"]] == ["sorted-a", "sorted-c", "sorted-b"]
    assert found["found"] == 3
    assert browser.document("/topics?sort=color", 400)["error"].startswith("sort is one of topic, partitions")
    assert "No topic has “absent”" in browser.page("/topics?q=absent")


def test_a_name_with_markup_is_escaped(browser: Browser) -> None:
    text = browser.client.get('/topics?q="><script>alert(1)</script>').text
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text


def test_a_record_is_produced_and_read_back(browser: Browser) -> None:
    make_topic(browser, "produced")
    sent = browser.change(
        "/topics/produced/produce", key="k1", value='{"id": 7, "name": "<b>"}', headers="trace=abc", partition=1
    )
    assert (sent["partition"], sent["offset"]) == (1, 0)
    browser.change("/topics/produced/produce", value="00ff", value_format="hex", partition=0)
    browser.change("/topics/produced/produce", key="k1", value_format="null", partition=1)
    records = browser.document("/topics/produced/messages?start=oldest&partitions=1")["records"]
    assert [record["value"] for record in records] == [{"id": 7, "name": "<b>"}, None]
    assert records[0]["key"] == "k1"
    assert records[0]["headers"] == [{"name": "trace", "value": "abc"}]
    assert browser.document("/topics/produced/messages?partitions=0")["records"][0]["value"] == "00 ff"
    raw = browser.client.get("/topics/produced/messages").text
    assert '<b>"' not in raw
    assert "&lt;b&gt;" in raw
    assert browser.change("/topics/produced/produce", 400, value="xyz", value_format="hex")["error"].startswith(
        "The value is not hex"
    )


def fill(broker: EmbeddedBroker, topic: str, count: int, partitions: int = 2) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(count):
            producer.send(
                topic,
                b'{"n": %d}' % number,
                key=b"%d" % number,
                partition=number % partitions,
                timestamp=1_000 + number,
            )
        producer.flush()


def numbers(document: dict[str, list[dict[str, dict[str, int]]]]) -> list[int]:
    return [record["value"]["n"] for record in document["records"]]


@pytest.mark.parametrize("value", [b"1e999", b'{"a": "\\ud800"}', b'"\xed\xa0\x80"'])
def test_json_that_no_document_can_have_is_shown_as_it_is(
    browser: Browser, broker: EmbeddedBroker, value: bytes
) -> None:
    topic = make_topic(browser, f"odd-{value.hex()}", 1)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(topic, value).result()
    (record,) = browser.document(f"/topics/{topic}/messages")["records"]
    text = value.decode() if value.isascii() else value.hex(" ")
    assert record["value"] == text
    assert text in browser.page(f"/topics/{topic}/messages")
    assert browser.client.get(f"/topics/{topic}/download").status_code == 200


def test_newest_records_are_paged_backwards_without_gaps(browser: Browser, broker: EmbeddedBroker) -> None:
    fill(broker, make_topic(browser, "paged"), 50)
    seen, before = [], ""
    for _ in range(3):
        document = browser.document(f"/topics/paged/messages?limit=20&before={before}")
        seen += numbers(document)
        before = document["older"]
    assert seen == list(range(49, -1, -1))
    assert before == ""


def test_oldest_records_are_paged_forwards(browser: Browser, broker: EmbeddedBroker) -> None:
    fill(broker, make_topic(browser, "forwards", 1), 30, partitions=1)
    first = browser.document("/topics/forwards/messages?start=oldest&limit=20")
    assert numbers(first) == list(range(20))
    assert first["more"]
    rest = browser.document(f"/topics/forwards/messages?start=positions&positions={first['next']}&limit=20")
    assert numbers(rest) == list(range(20, 30))
    assert not rest["more"]


def test_records_are_found_by_offset_time_key_and_search(browser: Browser, broker: EmbeddedBroker) -> None:
    fill(broker, make_topic(browser, "found", 1), 300, partitions=1)
    assert numbers(browser.document("/topics/found/messages?start=offset&at=290")) == list(range(290, 300))
    at_time = browser.document("/topics/found/messages?start=time&at=1290&limit=2")
    assert numbers(at_time) == [290, 291]
    assert numbers(browser.document("/topics/found/messages?key=123")) == [123]
    searched = browser.document("/topics/found/messages?start=oldest&search=value.n%20%3C%203")
    assert numbers(searched) == [0, 1, 2]
    assert searched["scanned"] == 300
    assert browser.document("/topics/found/messages?search=value.n", 400)["error"].startswith("The search ends")
    assert browser.document("/topics/found/messages?partitions=9", 400)["error"].startswith("found has no partition 9")


def test_a_download_has_every_record_as_a_line(browser: Browser, broker: EmbeddedBroker) -> None:
    fill(broker, make_topic(browser, "saved", 1), 25, partitions=1)
    response = browser.client.get("/topics/saved/download?start=oldest")
    lines = response.text.splitlines()
    assert len(lines) == 25
    assert response.headers["content-disposition"] == 'attachment; filename="saved.jsonl"'
    assert browser.client.get("/topics/absent/download").status_code == 404


def test_a_group_is_described_and_its_offsets_are_reset(browser: Browser, broker: EmbeddedBroker) -> None:
    fill(broker, make_topic(browser, "grouped", 1), 10, partitions=1)
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="readers/a", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe(["grouped"])
        while not consumer.poll(1_000, max_records=4):
            pass
        consumer.commit()
        live = browser.document("/groups/readers%2Fa")
        assert live["state"] == "Stable"
        assert live["members"][0]["assignment"] == {"grouped": [0]}
        assert live["total_lag"] == 6
        assert browser.document("/groups/readers%2Fa/why")["answers"]["state"][0].startswith("readers/a is a")
        assert "has members" in browser.page("/groups/readers%2Fa/reset")
    plan = browser.document("/groups/readers%2Fa/reset?to=earliest")
    assert plan["plan"] == [{"topic": "grouped", "partition": 0, "old": 4, "new": 0, "moved": -4}]
    assert browser.document("/groups/readers%2Fa")["total_lag"] == 6  # planning has changed nothing
    assert browser.change("/groups/readers%2Fa/reset", to="earliest")["reset"] == 1
    assert browser.document("/groups/readers%2Fa")["total_lag"] == 10
    assert browser.document("/groups/readers%2Fa/reset?to=noon", 400)["error"].startswith("'noon' is not a position")
    wait_until(lambda: browser.document("/topics/grouped/groups")["groups"], "the console has sampled the groups")
    assert browser.document("/topics/grouped/groups")["groups"][0]["lag"] == 10
    assert "readers/a" in browser.page("/groups")
    browser.change("/groups/readers%2Fa/delete", confirm="readers/a")
    assert browser.document("/groups/readers%2Fa", 404)


def test_transactions_are_listed_and_fenced(browser: Browser, broker: EmbeddedBroker) -> None:
    make_topic(browser, "paid", 1)
    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="billing") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("paid", b"1").result()
        assert browser.document("/transactions?q=billing")["rows"][0]["state"] == "Ongoing"
        described = browser.document("/transactions/billing")
        assert described["partitions"] == [{"topic": "paid", "partition": 0}]
        why = browser.document("/topics/paid/why")["partitions"][0]
        assert why["held"] == 1
        assert why["open_transactions"][0]["transactional_id"] == "billing"
        assert "1 record held back" in browser.page("/topics/paid/why")
        assert browser.document("/topics/paid/producers")["producers"][0]["open_since"] == 0
        producer.abort_transaction()
    assert browser.change("/transactions/billing/fence")["message"] == "The producer of billing is fenced."
    assert browser.document("/transactions?hanging=1")["hanging"] == []
    assert browser.document("/transactions/absent", 404)
    assert "billing" in browser.page("/transactions/billing")


def test_users_and_quotas_are_set_and_removed(browser: Browser) -> None:
    short = browser.change("/users/password", 400, user="carol", mechanism="SCRAM-SHA-256", password="short")
    assert short["error"] == "The password must have at least 8 characters."
    browser.change("/users/password", user="carol", mechanism="SCRAM-SHA-256", password="long enough")
    assert browser.document("/users")["rows"] == [{"user": "carol", "mechanisms": {"SCRAM-SHA-256": 4096}}]
    assert "carol" in browser.page("/users")
    browser.change("/users/carol/delete", confirm="carol")
    browser.change("/quotas/set", user="carol", quota="producer_byte_rate", value=1024)
    assert browser.document("/quotas")["rows"][0]["quotas"] == {"producer_byte_rate": 1024.0}
    assert "1.0 KiB/s" in browser.page("/quotas")
    browser.change("/quotas/set", user="carol", quota="producer_byte_rate", value="")
    assert browser.document("/quotas")["rows"] == []
    assert browser.change("/quotas/set", 400, quota="producer_byte_rate", value=1)["error"].startswith("Name a user")


def test_a_broker_has_directories_and_configs(browser: Browser) -> None:
    described = browser.document("/brokers/1")
    assert described["dirs"][0]["error"] == ""
    assert any(row["name"] == "log.retention.ms" for row in described["configs"])
    assert "Broker 1" in browser.page("/brokers/1")
    assert browser.document("/brokers/9", 404) == {"error": "Broker 9 is not registered."}
    assert browser.document("/brokers/x", 400)
    assert browser.document("/quorum")["replicas"][0]["role"] == "leader"
    assert browser.change("/brokers/elect")["message"].startswith("0 partitions")


def test_clusters_without_an_authorizer_say_so(browser: Browser) -> None:
    assert browser.document("/acls")["enabled"] is False
    assert "no authorizer" in browser.page("/acls")


def test_pages_without_a_registry_or_connect_say_how_to_get_one(browser: Browser) -> None:
    assert browser.document("/schemas", 404)["error"].endswith("start it with --registry URL.")
    assert browser.document("/connectors", 404)["error"].endswith("start it with --connect URL.")
    assert 'href="/schemas"' not in browser.page("/")


def test_an_unknown_path_is_not_found(browser: Browser) -> None:
    assert "There is no page '/nowhere'." in browser.page("/nowhere", 404)
    assert browser.document("/nowhere", 404)


def test_every_page_has_a_template_and_a_twin() -> None:
    assert len({page.path for page in PAGES}) == len(PAGES)
    assert all(page.template.endswith(".html") for page in PAGES)
