"""Records of a topic to a web service that refuses some of them: the others arrive, and those are dead letters."""

from __future__ import annotations

import http.server
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from barnabas.spark.environment import prepare_environment
from barnabas.testing.process import BrokerProcess

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
def spark() -> Iterator[Any]:
    """The session of the process; one that this module has started ends with it."""
    prepare_environment()
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    session = running or SparkSession.builder.master("local[2]").config("spark.ui.enabled", False).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    if running is None:
        session.stop()


def dead_letters(servers: str) -> list[tuple[int, dict[str, bytes]]]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "letters", "enable.partition.eof": True})
    consumer.assign([TopicPartition("letters", 0, OFFSET_BEGINNING)])
    found = []
    while (message := consumer.poll(30)) is not None and not message.error():
        found.append((int(message.value()), dict(message.headers() or ())))
    consumer.close()
    return found


@pytest.mark.spark
def test_refused_records_are_dead_letters_and_the_others_arrive(spark: Any, service: Service, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in range(RECORDS):
            producer.produce("hooks", str(number).encode(), partition=0)
        assert producer.flush(60) == 0
        query = (
            spark.readStream.format("barnabas")
            .option("kafka.bootstrap.servers", broker.bootstrap_servers)
            .option("subscribe", "hooks")
            .option("startingOffsets", "earliest")
            .load()
            .writeStream.format("barnabas.http")
            .option("http.url", service.url)
            .option("retry.backoff.ms", 1)
            .option("errors.tolerance", "all")
            .option("errors.deadletterqueue.topic.name", "letters")
            .option("errors.deadletterqueue.topic.replication.factor", 1)
            .option("kafka.bootstrap.servers", broker.bootstrap_servers)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(240)
        refused = [number for number in range(RECORDS) if number % 10 == 3]
        letters = dead_letters(broker.bootstrap_servers)
    assert service.accepted == {f"hooks-0-{n} {n}": 1 for n in range(RECORDS) if n not in refused}
    assert [number for number, _ in letters] == refused
    headers = letters[0][1]
    assert headers["__connect.errors.offset"] == b"3"
    assert headers["__connect.errors.stage"] == b"TASK_PUT"
    assert b"answered 422" in headers["__connect.errors.exception.message"]
