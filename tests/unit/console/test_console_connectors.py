"""The pages of connectors, with a Connect worker that answers from a table."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from barnabas.client import Producer
from barnabas.testing import EmbeddedBroker
from tests.unit.console.pages import Browser, console

TASK = {"id": 0, "state": "FAILED", "worker_id": "w:1", "trace": "no such table"}
ORDERS = {"kafka_topic": "sunk", "kafka_partition": 0}
ANSWERS = {
    "/connectors?expand=status&expand=info": {
        "lake": {"status": {"type": "sink", "connector": {"state": "RUNNING", "worker_id": "w:1"}, "tasks": [TASK]}},
    },
    "/connectors/lake/status": {
        "type": "sink",
        "connector": {"state": "RUNNING", "worker_id": "w:1"},
        "tasks": [TASK],
    },
    "/connectors/lake/config": {
        "connector.class": "Lake",
        "lake.password": "hush",
        "producer.override.ssl.keystore.key": "hush",
        "value.converter.basic.auth.user.info": "user:hush",
    },
    "/connectors/lake/offsets": {"offsets": [{"partition": ORDERS, "offset": {"kafka_offset": 4}}]},
    "/connectors/shop/status": {"type": "source", "connector": {"state": "PAUSED", "worker_id": "w:1"}, "tasks": []},
    "/connectors/shop/config": {},
    "/connectors/shop/offsets": {"offsets": [{"partition": {"server": "shop"}, "offset": {"lsn": 12}}]},
    "/connectors/old/status": {"type": "source", "connector": {"state": "RUNNING", "worker_id": "w:1"}, "tasks": []},
    "/connectors/old/config": {},
}


class Worker(BaseHTTPRequestHandler):
    """Answers GET from the table, and 404 to everything else, as a worker does."""

    def do_GET(self) -> None:
        answer = ANSWERS.get(self.path)
        body = json.dumps(answer or {"error_code": 404, "message": "not found"}).encode()
        self.send_response(200 if answer is not None else 404)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the test's output is not a log."""


@pytest.fixture(scope="module")
def connected(broker: EmbeddedBroker) -> Iterator[Browser]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Worker) as worker:
        thread = threading.Thread(target=worker.serve_forever, daemon=True)
        thread.start()
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(9):
                producer.send("sunk", b"%d" % number, partition=0).result(10)
        with console(broker.bootstrap_servers, connect_url=f"http://127.0.0.1:{worker.server_port}") as browser:
            browser.document("/overview")  # answers when the cluster was measured, so that ends are known
            yield browser
        worker.shutdown()
        thread.join()


def test_connectors_are_listed_with_their_tasks(connected: Browser) -> None:
    (row,) = connected.document("/connectors")["rows"]
    assert (row["connector"], row["state"], row["task_states"]) == ("lake", "RUNNING", {"FAILED": 1})
    assert '<a class="mono" href="/connectors/lake">lake</a>' in connected.page("/connectors")


def test_a_sink_shows_its_lag_and_hides_passwords(connected: Browser) -> None:
    document = connected.document("/connectors/lake")
    assert document["positions"] == [{"topic": "sunk", "partition": "sunk-0", "position": "4", "end": 9, "lag": 5}]
    assert document["lag"] == 5
    assert document["config"] == {
        "connector.class": "Lake",
        "lake.password": "[hidden]",
        "producer.override.ssl.keystore.key": "[hidden]",
        "value.converter.basic.auth.user.info": "[hidden]",
    }
    text = connected.page("/connectors/lake")
    assert "5 records behind its topics." in text
    assert "no such table" in text
    assert "hush" not in text


def test_a_source_shows_its_position_as_it_is(connected: Browser) -> None:
    document = connected.document("/connectors/shop")
    (position,) = document["positions"]
    assert (position["partition"], position["position"], position["lag"]) == ('{"server": "shop"}', '{"lsn": 12}', None)
    assert document["lag"] is None


def test_a_worker_without_offsets_and_a_connector_that_is_not_there(connected: Browser) -> None:
    assert connected.document("/connectors/old")["positions"] == []
    assert "The connector has no positions yet." in connected.page("/connectors/old")
    assert connected.document("/connectors/gone", 404) == {"error": "The connector 'gone' does not exist."}
