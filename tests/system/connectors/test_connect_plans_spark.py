"""Configurations of connectors, run on Spark: PostgreSQL to a topic, and a topic to a Delta table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from barnabas.client.blocking import Admin
from barnabas.spark.connectors.connect.cluster.ports import ConnectorPlaces
from barnabas.spark.connectors.connect.plans.planner import WorkerPlanner
from barnabas.testing.databases import PostgresServer
from barnabas.testing.embedded import EmbeddedBroker
from tests.progress import wait_until

pytestmark = [pytest.mark.system, pytest.mark.spark]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedBroker({"transaction.two.phase.commit.enable": "true"}) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            for topic in ("shop.public.orders", "orders"):
                admin.create_topic(topic, 1, 1)
        yield broker.bootstrap_servers


def run(spark: SparkSession, servers: str, tmp_path: Path, config: Mapping[str, str], done: Callable[[], Any]) -> None:
    """Run a connector until `done()` is true."""
    converters = {"key.converter": "JsonConverter", "value.converter": "JsonConverter"}
    plan = WorkerPlanner({"bootstrap.servers": servers}, converters).plan(config)
    query = plan.start(0, spark, ConnectorPlaces(str(tmp_path / "checkpoint"), str(tmp_path / "staging")))
    try:
        wait_until(
            lambda: bool(done()) or not query.isActive, f"{config['name']} is done", progress=lambda: query.lastProgress
        )
        assert query.exception() is None
    finally:
        query.stop()


def test_debeziums_configuration_captures_postgresql(
    spark: SparkSession, servers: str, postgres: PostgresServer, tmp_path: Path
) -> None:
    with psycopg.connect(postgres.conninfo, autocommit=True) as session:
        session.execute("CREATE TABLE orders (id int PRIMARY KEY, state text)")
        session.execute("INSERT INTO orders VALUES (1, 'new'), (2, 'paid')")
        config = {
            "name": "shop",
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(postgres.port),
            "database.user": "postgres",
            "database.dbname": "postgres",
            "topic.prefix": "shop",
            "table.include.list": "public.orders",
            "slot.name": "connect_plans",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "key.converter.schemas.enable": "false",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
        }
        consumer = Consumer({"bootstrap.servers": servers, "group.id": "r", "isolation.level": "read_committed"})
        consumer.assign([TopicPartition("shop.public.orders", 0, OFFSET_BEGINNING)])
        events: list[tuple[Any, Any]] = []

        def captured() -> bool:
            for message in consumer.consume(10, 0.2):
                assert message.error() is None
                events.append((json.loads(message.key() or b"null"), json.loads(message.value() or b"null")))
            return len(events) >= 2

        run(spark, servers, tmp_path, config, captured)
        consumer.close()
        session.execute("SELECT pg_drop_replication_slot('connect_plans')")
    assert [(key, value["op"], value["after"]) for key, value in events] == [
        ({"id": 1}, "r", {"id": 1, "state": "new"}),
        ({"id": 2}, "r", {"id": 2, "state": "paid"}),
    ]


TYPED = {"keyFormat": "json", "keySchema": "id BIGINT", "valueFormat": "json", "valueSchema": "id BIGINT, state STRING"}
CONVERTED = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
"""The converter is the worker's."""


@pytest.mark.parametrize("more", [{**TYPED, "pk.fields": "id"}, {**CONVERTED, "pk.mode": "record_key"}])
def test_a_delta_sink_upserts_by_keys_and_deletes_by_tombstones(
    spark: SparkSession, servers: str, tmp_path: Path, more: Mapping[str, str]
) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(1, 4):
        key, value = {"id": number}, {"id": number, "state": "new"}
        producer.produce("orders", json.dumps(value).encode(), json.dumps(key).encode())
    producer.produce("orders", None, b'{"id": 2}')
    producer.produce("orders", b'{"id": 3, "state": "paid"}', b'{"id": 3}')
    assert producer.flush(60) == 0
    table = tmp_path / "table"
    config = {
        "name": "lake",
        "connector.class": "DeltaSink",
        "topics": "orders",
        "path": str(table),
        "insert.mode": "upsert",
        "delete.enabled": "true",
        **more,
    }

    def rows() -> list[tuple[Any, ...]]:
        found = DeltaTable(str(table)).to_pyarrow_table() if DeltaTable.is_deltatable(str(table)) else None
        return [] if found is None else sorted((row["id"], row["state"]) for row in found.to_pylist())

    expected = [(1, "new"), (3, "paid")]
    run(spark, servers, tmp_path, config, lambda: rows() == expected)
    assert rows() == expected


def test_the_jdbc_connectors_of_confluent_and_debezium(
    spark: SparkSession, servers: str, postgres: PostgresServer, tmp_path: Path
) -> None:
    url = f"jdbc:postgresql://127.0.0.1:{postgres.port}/postgres?user=postgres"
    with psycopg.connect(postgres.conninfo, autocommit=True) as session:
        session.execute("CREATE TABLE polled (id serial PRIMARY KEY, state text)")
        session.execute("INSERT INTO polled (state) VALUES ('new'), ('paid')")
        source = {
            "name": "poll",
            "connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector",
            "connection.url": url,
            "mode": "incrementing",
            "incrementing.column.name": "id",
            "table.whitelist": "polled",
            "topic.prefix": "jdbc.",
            "poll.interval.ms": "100",
        }
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topic("jdbc.polled", 1, 1)
        consumer = Consumer({"bootstrap.servers": servers, "group.id": "p", "isolation.level": "read_committed"})
        consumer.assign([TopicPartition("jdbc.polled", 0, OFFSET_BEGINNING)])
        payloads: list[Any] = []

        def polled() -> bool:
            payloads.extend(json.loads(message.value())["payload"] for message in consumer.consume(10, 0.2))
            return len(payloads) >= 2

        run(spark, servers, tmp_path / "source", source, polled)
        consumer.close()
        assert payloads == [{"id": 1, "state": "new"}, {"id": 2, "state": "paid"}]

        row = {
            "type": "struct",
            "optional": True,
            "name": "s.V",
            "fields": [
                {"type": "int32", "optional": False, "field": "id"},
                {"type": "string", "optional": True, "field": "state"},
            ],
        }
        key = {"type": "struct", "optional": False, "name": "s.K", "fields": row["fields"][:1]}
        envelope = {
            "type": "struct",
            "optional": False,
            "name": "s.Envelope",
            "version": 2,
            "fields": [
                {**row, "field": "before"},
                {**row, "field": "after"},
                {**key, "name": "s.Source", "field": "source"},
                {"type": "string", "optional": False, "field": "op"},
            ],
        }
        changes = [
            (1, {"before": None, "after": {"id": 1, "state": "new"}, "op": "c"}),
            (2, {"before": None, "after": {"id": 2, "state": "new"}, "op": "r"}),
            (1, {"before": None, "after": {"id": 1, "state": "paid"}, "op": "u"}),
            (2, {"before": {"id": 2, "state": "new"}, "after": None, "op": "d"}),
            (2, None),
        ]  # fmt: skip
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topic("db.s.changed", 1, 1)
        producer = Producer({"bootstrap.servers": servers})
        for number, change in changes:
            payload = None if change is None else {**change, "source": {"id": 0}}
            value = None if payload is None else json.dumps({"schema": envelope, "payload": payload})
            producer.produce("db.s.changed", value, json.dumps({"schema": key, "payload": {"id": number}}))
        producer.flush()
        sink = {
            "name": "sink",
            "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
            "topics": "db.s.changed",
            "connection.url": url,
            "insert.mode": "upsert",
            "delete.enabled": "true",
            "primary.key.mode": "record_key",
            "schema.evolution": "basic",
        }

        def rows() -> list[Any]:
            known = session.execute("SELECT to_regclass('db_s_changed')").fetchone()
            assert known is not None
            return [] if known[0] is None else session.execute("SELECT to_jsonb(t) FROM db_s_changed t").fetchall()

        run(spark, servers, tmp_path / "sink", sink, lambda: rows() == [({"id": 1, "state": "paid"},)])
