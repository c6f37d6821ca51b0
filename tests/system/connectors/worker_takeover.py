"""Two processes of `barnabas connect serve` on any Kafka: one is killed, and its connector continues on the other."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from barnabas.client.blocking import Admin
from barnabas.core.child_processes import start_child
from barnabas.core.properties import render_properties
from tests.progress import wait_until

PARTITIONS = 2
BROKER_SETTINGS = {"transaction.two.phase.commit.enable": "true", "group.min.session.timeout.ms": "1000"}
_READY = re.compile(r"barnabas connect ready: (http://\S+)")


@contextmanager
def worker(properties: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A worker's process, and the URL of its API."""
    command = [sys.executable, "-m", "barnabas", "connect", "serve", str(properties)]
    process = start_child(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if found := _READY.search(line):
                yield process, found[1]
                break
        else:
            pytest.fail("the worker ended before it was ready")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()


def call(url: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            text = response.read()
            return response.status, json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"null")


def produce(servers: str, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in numbers:
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(60) == 0


class Copied:
    """The committed values of a topic, read by librdkafka."""

    def __init__(self, servers: str, topic: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": servers, "group.id": "reader", "isolation.level": "read_committed"}
        )
        self._consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in range(PARTITIONS)])
        self.values: Counter[int] = Counter()

    def count(self) -> int:
        while messages := self._consumer.consume(1_000, 0.2):
            for message in messages:
                assert message.error() is None
                self.values[int(message.value() or b"")] += 1
        return self.values.total()

    def close(self) -> None:
        self._consumer.close()


def state(url: str, name: str) -> tuple[str, str]:
    """The state of a connector and its worker; empty texts before the first report."""
    status, document = call(url, "GET", f"/connectors/{name}/status")
    return (document["connector"]["state"], document["connector"]["worker_id"]) if status == 200 else ("", "")


def worker_properties(servers: str, folder: Path) -> dict[str, str]:
    return {
        "bootstrap.servers": servers,
        "group.id": "g",
        "config.storage.topic": "connect-configs",
        "status.storage.topic": "connect-status",
        "storage.location": (folder / "shared").as_uri(),
        "listeners": "http://127.0.0.1:0",
        "file.directories": str(folder),
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "1000",
        "spark.master": "local[2]",
    }


def copying(servers: str) -> dict[str, str]:
    """The config of a connector that copies the topic `from` into `to` in small micro-batches."""
    return {
        "connector.class": "SparkSink",
        "topics": "from",
        "maxOffsetsPerTrigger": "100",
        "trigger.interval.ms": "100",
        "spark.format": "barnabas",
        "spark.select": "value",
        "spark.option.topic": "to",
        "spark.option.kafka.bootstrap.servers": servers,
    }


def check_takeover(servers: str, folder: Path) -> None:
    """A killed worker is replaced, and every record is copied once. The other worker changes offsets, runs a source
    and ends.
    """
    with Admin(bootstrap_servers=servers) as admin:
        for topic in ("from", "to", "lines"):
            admin.create_topic(topic, PARTITIONS, 1)
    properties = folder / "worker.properties"
    properties.write_text(render_properties(worker_properties(servers, folder)))
    produce(servers, "from", range(2_000))
    copied = Copied(servers, "to")
    with worker(properties) as one, worker(properties) as two:
        assert call(one[1], "POST", "/connectors", {"name": "copy", "config": copying(servers)})[0] == 201
        wait_until(lambda: copied.count() >= 300, "some records are copied", progress=copied.count)
        owner = state(two[1], "copy")[1]
        (first, _), (second, url) = (one, two) if one[1].endswith(owner) else (two, one)
        first.send_signal(signal.SIGKILL)
        first.wait()
        produce(servers, "from", range(2_000, 2_500))
        wait_until(lambda: copied.count() >= 2_500, "all records are copied", progress=copied.count)
        assert state(url, "copy") == ("RUNNING", url.removeprefix("http://"))
        assert copied.values == Counter(range(2_500))

        check_offsets(url, copied)
        check_source(url, servers, folder)
        assert call(url, "DELETE", "/connectors/copy") == (204, None)
        second.send_signal(signal.SIGTERM)
        assert second.wait(120) == 0
    copied.close()


def check_offsets(url: str, copied: Copied) -> None:
    """The offsets of the stopped connector are shown and set back, and the records since then are copied again."""
    assert call(url, "PUT", "/connectors/copy/stop") == (204, None)
    wait_until(lambda: state(url, "copy")[0] == "STOPPED", "the connector is stopped")
    ends = [
        {"partition": {"kafka_topic": "from", "kafka_partition": n}, "offset": {"kafka_offset": 1_250}}
        for n in range(PARTITIONS)
    ]
    assert call(url, "GET", "/connectors/copy/offsets") == (200, {"offsets": ends})
    again = {**ends[1], "offset": {"kafka_offset": 1_200}}
    assert call(url, "PATCH", "/connectors/copy/offsets", {"offsets": [again]})[0] == 200
    assert call(url, "GET", "/connectors/copy/offsets") == (200, {"offsets": [ends[0], again]})
    assert call(url, "PUT", "/connectors/copy/resume") == (202, None)
    wait_until(lambda: copied.count() >= 2_550, "the records are copied again", progress=copied.count)
    assert copied.values == Counter(range(2_500)) + Counter(range(2_401, 2_501, 2))


def check_source(url: str, servers: str, folder: Path) -> None:
    """A source reads the lines of a file into a topic."""
    lines = folder / "lines.txt"
    lines.write_text("".join(f"{number}\n" for number in range(3_000, 3_010)))
    source = {"connector.class": "FileStreamSource", "file": str(lines), "topic": "lines"}
    assert call(url, "POST", "/connectors", {"name": "source", "config": source})[0] == 201
    copied = Copied(servers, "lines")
    wait_until(
        lambda: copied.count() >= 10,
        "the lines are in the topic",
        progress=lambda: (copied.count(), call(url, "GET", "/connectors/source/status")),
    )
    assert copied.values == Counter(range(3_000, 3_010))
    copied.close()
