"""The section of docs/CONNECT.md about databases as sinks, whose blocks run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pymysql
import pytest
from confluent_kafka import Producer

from barnabas.testing.databases import MariaDbServer, PostgresServer
from barnabas.testing.process import BrokerProcess
from tests.system.pages import DOCS, run_page


@pytest.mark.system
@pytest.mark.spark
def test_the_section_about_databases(
    spark: Any, postgres: PostgresServer, mariadb: MariaDbServer, tmp_path: Path
) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for topic in ("orders", "customers"):
            for number in range(6):
                key = json.dumps({"id": number % 3}).encode()
                value = {"name": f"{topic} {number}", "places": [number]} | ({"vip": True} if number == 4 else {})
                producer.produce(topic, None if number == 5 else json.dumps(value).encode(), key, partition=0)
        assert producer.flush(60) == 0
        addresses = {
            "127.0.0.1:5432": f"127.0.0.1:{postgres.port}",
            "127.0.0.1:3306": f"127.0.0.1:{mariadb.port}",
            "127.0.0.1:9092": broker.bootstrap_servers,
            '"checkpoints/': f'"{tmp_path}/checkpoints/',
        }
        run_page(DOCS / "CONNECT.md", addresses, {"spark": spark}, section="## Databases")
    with (
        pymysql.connect(
            host="127.0.0.1",
            port=mariadb.port,
            user=mariadb.user,
            password=mariadb.password,
            database=mariadb.database,
        ) as session,
        session.cursor() as cursor,
    ):
        for topic in ("orders", "customers"):
            cursor.execute(f"SELECT id, name, places, vip FROM copy_of_{topic} ORDER BY id")
            expected = [(0, f"{topic} 3", "[3]", None), (1, f"{topic} 4", "[4]", 1)]
            assert list(cursor.fetchall()) == expected
