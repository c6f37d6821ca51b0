"""Concurrent writers in PostgreSQL, Spark, and a topic: the topic folded by key is the table, whatever is killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from barnabas.core.child_processes import start_child
from barnabas.testing.databases import PostgresServer
from barnabas.testing.process import BrokerProcess
from tests.progress import wait_until
from tests.system.connectors.postgres_sources import Writers, capture_texts

ROOT = Path(__file__).parents[3]
FIRST_BATCH_S = 600.0
"""A driver that has just started compiles its decoders in the first micro-batch, which a busy machine makes long."""


class Driver:
    """The process of `postgres_driver`, which can be killed with its JVM."""

    def __init__(self, folder: Path, servers: str, options: dict[str, str]) -> None:
        self._arguments = [str(folder), servers, json.dumps(options)]
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, mode: str) -> None:
        command = [sys.executable, "-m", "tests.system.connectors.postgres_driver", *self._arguments, mode]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
        with (self._folder / "driver.log").open("a") as log:
            self._process = start_child(command, start_new_session=True, stdout=log, stderr=log, env=environment)

    def batches(self) -> int:
        return len(list((self._folder / "checkpoint" / "commits").glob("[0-9]*")))

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def finish(self) -> None:
        """Read all that the database has, and end."""
        self.kill()
        self.start("once")
        assert self._process is not None
        wait_until(lambda: not self.is_running(), "the last run ends", progress=self.batches, patience_s=FIRST_BATCH_S)
        assert self._process.returncode == 0, (self._folder / "driver.log").read_text()[-5000:]


@dataclass(frozen=True)
class Found:
    """A record of a topic."""

    key: str
    value: str | None
    headers: dict[str, str]


def read_topic(servers: str, topic: str) -> list[Found]:
    """All records that are committed, of a topic with one partition."""
    settings = {"bootstrap.servers": servers, "group.id": "reader", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[Found] = []
    while True:
        message = consumer.poll(30)
        assert message is not None
        if message.error() is not None:
            break
        value = message.value()
        headers = {name: text.decode() for name, text in message.headers() or ()}
        found.append(Found(message.key().decode(), None if value is None else value.decode(), headers))
    consumer.close()
    return found


def fold_events(records: list[Found]) -> tuple[dict[int, dict[str, Any]], Counter[Any]]:
    """The table that Debezium's events give, and how often each event is there."""
    rows: dict[int, dict[str, Any]] = {}
    moved: dict[str, dict[str, Any]] = {}
    counts: Counter[Any] = Counter()
    for record in records:
        key = json.loads(record.key)["id"]
        if record.value is None:
            rows.pop(key, None)
            continue
        event = json.loads(record.value)
        counts[key, event["op"], event["source"]["lsn"]] += 1
        if event["op"] == "d":
            old = rows.pop(key, None)
            if "__debezium.newkey" in record.headers and old is not None:
                moved[record.key] = old
            continue
        row = event["after"]
        known = moved.get(record.headers.get("__debezium.oldkey", "")) or rows.get(key, {})
        rows[key] = {n: known[n] if value == "__debezium_unavailable_value" else value for n, value in row.items()}
    return rows, counts


def fold_rows(records: list[Found]) -> tuple[dict[int, dict[str, Any]], Counter[Any]]:
    """The table that rows give, and how often each change is there."""
    rows: dict[int, dict[str, Any]] = {}
    moved: dict[str, dict[str, Any]] = {}
    counts: Counter[Any] = Counter()
    for record in records:
        key, value, position = record.key, record.value, record.headers["position"]
        counts[key, position] += 1
        if value is None:
            old = rows.pop(int(key), None)
            if old is not None:
                moved[position[:-1]] = old  # the create that follows from a changed key has the same position
            continue
        row = json.loads(value)
        known = moved.get(position[:-1]) if position.endswith("c") else None
        known = known or rows.get(int(key), {})
        for name in row.pop("__unavailable") or ():
            row[name] = known[name]
        rows[int(key)] = row
    return rows, counts


def _wait_for_batches(driver: Driver, number: int) -> None:
    wait_until(
        lambda: driver.batches() >= number or not driver.is_running(),
        "micro-batches are committed",
        progress=driver.batches,
        patience_s=FIRST_BATCH_S,
    )


def run(folder: Path, output: str, seed: int, kills: int, seconds_between: float) -> None:
    rng = random.Random(seed)
    with PostgresServer() as server, BrokerProcess(folder / "broker") as broker:
        with psycopg.connect(server.conninfo, autocommit=True) as admin:
            admin.execute("CREATE SCHEMA shop")
            admin.execute("CREATE TABLE shop.t (id int PRIMARY KEY, code int, big text, ratio float8)")
            admin.execute("ALTER TABLE shop.t ALTER big SET STORAGE EXTERNAL")
            admin.execute("INSERT INTO shop.t SELECT g, g, repeat('y', 3000), g FROM generate_series(1, 300) g")
        more = {"unavailable.value.handling.mode": "list"}
        if output == "records":
            more = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
        options = capture_texts(server, folder, "shop", output=output, **more)
        writers = Writers(server, "shop.t", seed)
        driver = Driver(folder, broker.bootstrap_servers, options)
        writers.start(2)
        try:
            for number in range(kills):
                driver.start("continuous")
                if number % 4 != 3:  # else it is killed while it starts
                    _wait_for_batches(driver, driver.batches() + 2)
                time.sleep(rng.random() * seconds_between)  # the moment of the kill is at random
                if number % 2 == 0:
                    server.kill()
                    server.start()
                    if number % 4 != 3:
                        _wait_for_batches(driver, driver.batches() + 1)  # the query outlives the server
                        assert driver.is_running()
                    time.sleep(rng.random() * seconds_between)
                driver.kill()
            writers.stop()
            driver.finish()
        finally:
            writers.stop()
            driver.kill()
        with psycopg.connect(server.conninfo) as admin:
            table = {
                row[0]: dict(zip(("id", "code", "big", "ratio"), row, strict=True))
                for row in admin.execute("SELECT id, code, big, ratio FROM shop.t")
            }
        records = read_topic(broker.bootstrap_servers, "out" if output == "rows" else "shop.shop.t")
    rows, counts = fold_rows(records) if output == "rows" else fold_events(records)
    assert rows == table
    assert max(counts.values()) == 1, "a change is in the topic twice"
    assert writers.commits > 20


@pytest.mark.system
@pytest.mark.spark
def test_the_topic_is_the_table_after_a_kill_of_the_database_and_of_the_driver(tmp_path: Path) -> None:
    run(tmp_path, "records", seed=1, kills=1, seconds_between=1.0)


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.spark
@pytest.mark.parametrize(("output", "seed"), [("rows", 2), ("records", 3)])
def test_the_topic_is_the_table_after_many_kills(tmp_path: Path, output: str, seed: int) -> None:
    run(tmp_path, output, seed=seed, kills=10, seconds_between=6.0)
