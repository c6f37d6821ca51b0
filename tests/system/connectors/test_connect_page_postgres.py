"""The blocks about PostgreSQL in docs/CONNECT.md run, and print what stands under them."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from barnabas.testing.databases import PostgresServer
from barnabas.testing.process import BrokerProcess
from tests.system.pages import DOCS, run_page


@pytest.mark.system
@pytest.mark.spark
def test_the_section_about_postgresql(spark: SparkSession, tmp_path: Path) -> None:
    with PostgresServer() as server, BrokerProcess(tmp_path / "broker") as broker:
        with psycopg.connect(server.conninfo) as session:
            session.execute("CREATE TABLE orders (id int PRIMARY KEY, state text)")
            session.execute("INSERT INTO orders VALUES (1, 'new'), (2, 'paid')")
        addresses = {
            "127.0.0.1:9092": broker.bootstrap_servers,
            '"5432"': f'"{server.port}"',
            '"staging/': f'"{tmp_path}/staging/',
            '"checkpoints/': f'"{tmp_path}/checkpoints/',
        }
        run_page(DOCS / "CONNECT.md", addresses, {"spark": spark}, section="### PostgreSQL")
