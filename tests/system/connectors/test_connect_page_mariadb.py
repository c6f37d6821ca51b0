"""MariaDB in docs/CONNECT.md, whose block runs: the topic has the rows of the table, and then its changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from barnabas.testing.databases import MariaDbServer
from barnabas.testing.process import BrokerProcess
from tests.system.connectors.mysql_sources import run
from tests.system.connectors.replays import read_topic
from tests.system.pages import DOCS, run_page


@pytest.mark.system
@pytest.mark.spark
def test_the_section_about_mariadb(spark: SparkSession, tmp_path: Path) -> None:
    with MariaDbServer() as server, BrokerProcess(tmp_path / "broker") as broker:
        run(
            server,
            "CREATE TABLE orders (id INT PRIMARY KEY, state VARCHAR(20))",
            "INSERT INTO orders VALUES (1, 'new'), (2, 'paid')",
        )
        addresses = {
            "127.0.0.1:9092": broker.bootstrap_servers,
            '"3306"': f'"{server.port}"',
            '"staging/': f'"{tmp_path}/staging/',
            '"checkpoints/': f'"{tmp_path}/checkpoints/',
        }
        names = {"spark": spark}
        run_page(DOCS / "CONNECT.md", addresses, names, section="### MySQL and MariaDB")
        run(server, "UPDATE orders SET id = 3 WHERE id = 1", "DELETE FROM orders WHERE id = 2")
        run_page(DOCS / "CONNECT.md", addresses, names, section="### MySQL and MariaDB")
        folded = {}
        for record in read_topic(broker.bootstrap_servers, "inventory.shop.orders"):
            key = json.loads(record.key)["payload"]["id"]
            after = None if record.value is None else json.loads(record.value)["payload"]["after"]
            folded[key] = after
        assert {key: row for key, row in folded.items() if row} == {3: {"id": 3, "state": "new"}}
