"""Rows of a PostgreSQL table under concurrent writers, through Spark into a topic: the topic folded by key is the
table, whatever is killed. `capture_faults.py` does the same with events.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest

from barnabas.testing.databases import PostgresServer
from barnabas.testing.process import BrokerProcess
from tests.system.connectors.driver_process import Driver
from tests.system.connectors.postgres_sources import Writers, capture_texts
from tests.system.connectors.replays import Found, read_topic

AS_RECORDS = [
    "'out' AS topic",
    "CAST(id AS STRING) AS key",
    "IF(__deleted, NULL, to_json(struct(id, code, big, ratio, __unavailable), map('ignoreNullFields', 'false')))"
    " AS value",
    "array(struct('position' AS key, CAST(concat(__position, __op) AS BINARY) AS value)) AS headers",
]


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


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.spark
def test_the_topic_is_the_table_after_many_kills(tmp_path: Path) -> None:
    rng = random.Random(2)
    with PostgresServer() as server, BrokerProcess(tmp_path / "broker") as broker:
        with psycopg.connect(server.conninfo, autocommit=True) as admin:
            admin.execute("CREATE SCHEMA shop")
            admin.execute("CREATE TABLE shop.t (id int PRIMARY KEY, code int, big text, ratio float8)")
            admin.execute("ALTER TABLE shop.t ALTER big SET STORAGE EXTERNAL")
            admin.execute("INSERT INTO shop.t SELECT g, g, repeat('y', 3000), g FROM generate_series(1, 300) g")
        options = capture_texts(server, tmp_path, "shop", unavailable_value_handling_mode="list")
        write = {
            "format": "barnabas",
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "includeHeaders": "true",
        }
        read = {"format": "barnabas.postgres", **options}
        driver = Driver(tmp_path, [{"name": "rows", "read": read, "select": AS_RECORDS, "write": write}])
        writers = Writers(server, "shop.t", 2)
        writers.start(2)
        try:
            for number in range(10):
                driver.start("continuous")
                if number % 4 != 3:  # else it is killed while it starts
                    driver.wait_for_batches(2)
                time.sleep(rng.random() * 6)  # the moment of the kill is at random
                if number % 2 == 0:
                    server.kill()
                    server.start()
                    if number % 4 != 3:
                        driver.wait_for_batches(1)  # the query outlives the server
                    time.sleep(rng.random() * 6)  # the moment of the kill is at random
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
        rows, counts = fold_rows(read_topic(broker.bootstrap_servers, "out"))
    assert rows == table
    assert max(counts.values()) == 1, "a change is in the topic twice"
    assert writers.commits > 20
