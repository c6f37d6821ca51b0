"""PostgreSQL in docs/CONNECT.md, whose blocks run, and in a connector's configuration."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from barnabas.spark.connectors.connect.cluster.ports import ConnectorPlaces
from barnabas.spark.connectors.connect.plans.planner import WorkerPlanner
from barnabas.testing.databases import PostgresServer
from barnabas.testing.process import BrokerProcess
from tests.progress import wait_until
from tests.system.connectors.replays import read_topic
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


@pytest.mark.system
@pytest.mark.spark
def test_a_configuration_of_debeziums_connector_fills_a_topic(spark: SparkSession, tmp_path: Path) -> None:
    with PostgresServer() as server, BrokerProcess(tmp_path / "broker") as broker:
        with psycopg.connect(server.conninfo) as session:
            session.execute("CREATE TABLE orders (id int PRIMARY KEY, state text)")
            session.execute("INSERT INTO orders VALUES (1, 'new')")
        config = {
            "name": "inventory",
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(server.port),
            "database.user": "postgres",
            "database.dbname": "postgres",
            "topic.prefix": "shop",
            "table.include.list": "public.orders",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "transforms": "unwrap,route",
            "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
            "transforms.unwrap.add.fields": "op",
            "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
            "transforms.route.regex": ".*",
            "transforms.route.replacement": "flat",
        }
        places = ConnectorPlaces(str(tmp_path / "checkpoint"), str(tmp_path / "staging"))
        planner = WorkerPlanner({"bootstrap.servers": broker.bootstrap_servers})
        query = planner.plan(config).start(0, spark, places)
        commits = tmp_path / "checkpoint" / "commits"
        try:
            wait_until(lambda: (commits / "0").exists(), "the snapshot is written")
            with psycopg.connect(server.conninfo, autocommit=True) as session:
                session.execute("UPDATE orders SET state = 'paid'")
                session.execute("DELETE FROM orders")

            def records() -> list[tuple[str, str | None]]:
                return [(one.key, one.value) for one in read_topic(broker.bootstrap_servers, "flat")]

            wait_until(lambda: len(records()) == 3, "the changes are written", progress=lambda: len(records()))
        finally:
            query.stop()
        key = '{"id":1}'
        assert records() == [
            (key, '{"id":1,"state":"new","__op":"r"}'),
            (key, '{"id":1,"state":"paid","__op":"u"}'),
            (key, None),
        ]
