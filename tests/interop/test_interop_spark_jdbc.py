"""A database without a sink of ours, by Spark's own JDBC writer: PostgreSQL, through a driver whose URLs are unknown to
us (pgjdbc-ng).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from confluent_kafka import Producer

from barnabas.spark.connectors.connect.cluster.ports import ConnectorPlaces
from barnabas.spark.connectors.connect.plans.planner import WorkerPlanner
from barnabas.testing.databases import PostgresServer
from barnabas.testing.process import BrokerProcess
from tests.interop.jars import resolve
from tests.interop.spark_connector import running_session
from tests.progress import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DRIVER = "com.impossibl.pgjdbc-ng:pgjdbc-ng:0.8.9"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with running_session(sorted(resolve(DRIVER).glob("*.jar"))) as session:
        yield session


def test_rows_of_a_topic_reach_a_database_by_any_jdbc_driver(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    with PostgresServer() as server, psycopg.connect(server.conninfo, autocommit=True) as session:
        # With this driver, Spark reads no columns of the type text, and writes no nulls into columns of texts.
        session.execute("CREATE TABLE orders (id bigint, state varchar(50), price numeric(10, 2))")
        config = {
            "name": "any-database",
            "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
            "topics": "jdbc-orders",
            "connection.url": f"jdbc:pgsql://127.0.0.1:{server.port}/postgres",
            "connection.user": "postgres",
            "connection.password": "any",
            "connection.driver": "com.impossibl.postgres.jdbc.PGDriver",
            "table.name.format": "orders",
            "batch.size": "500",
            "valueFormat": "json",
            "valueSchema": "id BIGINT, state STRING, price DECIMAL(10, 2)",
            "spark.select": "value.id AS id, value.state AS state, value.price AS price",
        }

        def send(first: int, last: int) -> None:
            for number in range(first, last):
                row = {"id": number, "state": f"it's {number}", "price": number / 4}
                producer.produce("jdbc-orders", json.dumps(row).encode())
            assert producer.flush(60) == 0

        def found() -> int:
            row = session.execute("SELECT count(DISTINCT id) FROM orders").fetchone()
            return 0 if row is None else int(row[0])

        send(0, 1000)
        for wanted in (1000, 1500):  # the second time, the query goes on where it stopped
            plan = WorkerPlanner({"bootstrap.servers": broker.bootstrap_servers}, {}).plan(config)
            query = plan.start(0, spark, ConnectorPlaces(str(tmp_path / "checkpoint"), str(tmp_path / "staging")))
            wait_until(
                lambda wanted=wanted, query=query: found() >= wanted or not query.isActive,
                "the rows are there",
                progress=found,
            )
            failure = query.exception()
            assert failure is None, str(failure)
            query.stop()
            send(wanted, wanted + 500)
        # At least once: a query that is stopped in a micro-batch writes it again.
        rows = session.execute("SELECT DISTINCT id, state, price FROM orders ORDER BY id").fetchall()
        assert [(row[0], row[1], float(row[2])) for row in rows] == [
            (number, f"it's {number}", round(number / 4, 2)) for number in range(1500)
        ]
