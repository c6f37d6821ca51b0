"""Records of topics into a web service that refuses some of them, and into Delta tables by their keys."""

from __future__ import annotations

import http.server
import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from barnabas.testing.process import BrokerProcess

pytestmark = pytest.mark.system

RECORDS = 60


class Service:
    """Refuses every tenth record, and is busy at every seventh request."""

    def __init__(self) -> None:
        self.accepted: Counter[str] = Counter()
        self.requests = 0
        lock = threading.Lock()
        service = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with lock:
                    service.requests += 1
                    busy = service.requests % 7 == 0
                    status = 503 if busy else 422 if int(body) % 10 == 3 else 200
                    if status == 200:
                        service.accepted[f"{self.headers['Idempotency-Key']} {body.decode()}"] += 1
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.send_header("Retry-After", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"


@pytest.fixture
def service() -> Iterator[Service]:
    running = Service()
    thread = threading.Thread(target=running.server.serve_forever, args=(0.05,))
    thread.start()
    yield running
    running.server.shutdown()
    running.server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker.bootstrap_servers


def produce(servers: str, topic: str, records: list[tuple[bytes | None, bytes | None]]) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for key, value in records:
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(60) == 0


def run(spark: Any, servers: str, topics: str, format_: str, options: dict[str, object], checkpoint: Path) -> None:
    """Write all records of the topics, and end."""
    query = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topics)
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.format(format_)
        .options(**options)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(240)


def dead_letters(servers: str) -> list[tuple[int, dict[str, bytes]]]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "letters", "enable.partition.eof": True})
    consumer.assign([TopicPartition("letters", 0, OFFSET_BEGINNING)])
    found = []
    while (message := consumer.poll(30)) is not None and not message.error():
        found.append((int(message.value()), dict(message.headers() or ())))
    consumer.close()
    return found


@pytest.mark.spark
def test_refused_records_are_dead_letters_and_the_others_arrive(
    spark: Any, servers: str, service: Service, tmp_path: Path
) -> None:
    produce(servers, "hooks", [(None, str(number).encode()) for number in range(RECORDS)])
    options: dict[str, object] = {
        "http.url": service.url,
        "retry.backoff.ms": 1,
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "letters",
        "errors.deadletterqueue.topic.replication.factor": 1,
        "kafka.bootstrap.servers": servers,
    }
    run(spark, servers, "hooks", "barnabas.http", options, tmp_path / "checkpoint")
    refused = [number for number in range(RECORDS) if number % 10 == 3]
    letters = dead_letters(servers)
    assert service.accepted == {f"hooks-0-{n} {n}": 1 for n in range(RECORDS) if n not in refused}
    assert [number for number, _ in letters] == refused
    headers = letters[0][1]
    assert headers["__connect.errors.offset"] == b"3"
    assert headers["__connect.errors.stage"] == b"TASK_PUT"
    assert b"answered 422" in headers["__connect.errors.exception.message"]


@pytest.mark.spark
def test_records_of_two_topics_are_two_tables_with_a_row_for_each_key(spark: Any, servers: str, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    def key(number: int) -> bytes:
        return json.dumps({"id": number}).encode()

    options: dict[str, object] = {
        "path": f"{tmp_path}/${{topic}}",
        "key.converter": "JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter": "JsonConverter",
        "value.converter.schemas.enable": "false",
        "insert.mode": "upsert",
        "pk.mode": "record_key",
        "delete.enabled": "true",
        "transforms": "drop",
        "transforms.drop.type": "ReplaceField$Value",
        "transforms.drop.exclude": "secret",
    }
    for topic in ("orders", "items"):
        produce(servers, topic, [(key(n), b'{"n": 1, "secret": 2}') for n in range(20)])
    run(spark, servers, "orders,items", "barnabas.delta", options, tmp_path / "checkpoint")
    produce(servers, "orders", [(key(n), None if n % 2 else b'{"n": 7}') for n in range(10)])
    run(spark, servers, "orders,items", "barnabas.delta", options, tmp_path / "checkpoint")

    def rows(topic: str) -> list[tuple[int, int]]:
        found = DeltaTable(str(tmp_path / topic)).to_pyarrow_table()
        assert found.column_names == ["id", "n"]
        return sorted(zip(found["id"].to_pylist(), found["n"].to_pylist(), strict=True))

    assert rows("orders") == [(n, 7 if n < 10 else 1) for n in range(20) if n >= 10 or n % 2 == 0]
    assert rows("items") == [(n, 1) for n in range(20)]
