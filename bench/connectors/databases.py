"""Shell: the databases of `bench.connectors`: tables with the same columns and rows, and configurations.

A configuration of ours is a format of Spark and its options; one of the peer is that of a connector in Kafka Connect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import psycopg
import pymysql

from barnabas.testing.databases import MariaDbServer, PostgresServer

TRANSACTION_ROWS: Final = 100
"""Rows of one transaction of the changes."""
NOTE: Final = "x" * 40


@dataclass(frozen=True)
class Ours:
    """A source or sink of ours: the format's name, and its options."""

    format: str
    options: Mapping[str, str]


@dataclass(frozen=True)
class Theirs:
    """A connector in Kafka Connect: the key of `kafka_connect.DEBEZIUM`, and its configuration."""

    connector: str
    config: Mapping[str, str]


class Database(Protocol):
    """A running server, and what the measurements do with its tables."""

    name: str

    def connect(self) -> Any:
        """A connection of the database's driver (DB-API 2), in autocommit mode."""

    def create(self, table: str) -> list[str]:
        """The statements that create a table."""

    def fill(self, table: str, rows: int) -> list[str]:
        """The statements that insert `rows` rows, with ascending ids from 1 on."""

    def change(self, table: str, rows: int) -> list[str]:
        """The statements that update the first half of so many rows and insert the other half, in transactions."""

    def forget_readers(self) -> list[str]:
        """The statements that remove what stopped sources leave in the server."""

    def topic(self, prefix: str, table: str) -> str: ...

    def our_source(self, table: str, staging: Path) -> Ours: ...

    def our_sink(self, table: str) -> Ours: ...

    def their_source(self, table: str, servers: str) -> Theirs: ...

    def their_sink(self, table: str) -> Theirs: ...


_SINK: Final = {"insert.mode": "upsert", "pk.mode": "record_value", "pk.fields": "id"}
_THEIR_SINK: Final = {
    "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
    "insert.mode": "upsert",
    "primary.key.mode": "record_value",
    "primary.key.fields": "id",
    "batch.size": "3000",
    "consumer.override.max.poll.records": "3000",
}
"""Debezium's batches have 500 rows by default; larger ones are faster, so its best is measured."""


class Postgres:
    """PostgreSQL."""

    name = "PostgreSQL"

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._login = {
            "database.hostname": "127.0.0.1",
            "database.port": str(server.port),
            "database.user": "postgres",
            "database.dbname": "postgres",
        }

    def connect(self) -> Any:
        return psycopg.connect(self._server.conninfo, autocommit=True)

    def create(self, table: str) -> list[str]:
        return [
            f"CREATE TABLE {table} (id bigserial PRIMARY KEY, name text NOT NULL, price numeric(10,2),"
            " made timestamptz, sold boolean, note text)"
        ]

    def fill(self, table: str, rows: int) -> list[str]:
        return [self._insert(table, f"generate_series(1, {rows}) i")]

    def change(self, table: str, rows: int) -> list[str]:
        half, step = rows // 2, TRANSACTION_ROWS
        return [
            f"DO $$ BEGIN FOR n IN 0 .. {half // step - 1} LOOP UPDATE {table} SET price = price + 1"
            f" WHERE id BETWEEN n * {step} + 1 AND n * {step} + {step}; COMMIT; END LOOP; END $$",
            f"DO $$ BEGIN FOR n IN 0 .. {half // step - 1} LOOP"
            f" {self._insert(table, f'generate_series(1, {step}) i')}; COMMIT; END LOOP; END $$",
        ]

    def forget_readers(self) -> list[str]:
        return ["SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active"]

    def topic(self, prefix: str, table: str) -> str:
        return f"{prefix}.public.{table}"

    def our_source(self, table: str, staging: Path) -> Ours:
        return Ours("barnabas.postgres", {**self._login, **self._slot("ours", table), "stagingLocation": str(staging)})

    def our_sink(self, table: str) -> Ours:
        url = f"jdbc:postgresql://127.0.0.1:{self._server.port}/postgres"
        return Ours(
            "barnabas.postgres",
            {**_SINK, "connection.url": url, "connection.user": "postgres", "table.name.format": table},
        )

    def their_source(self, table: str, servers: str) -> Theirs:
        return Theirs(
            "postgres",
            {
                **self._login,
                **self._slot("theirs", table),
                "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
                "database.password": "any",
                "plugin.name": "pgoutput",
            },
        )

    def their_sink(self, table: str) -> Theirs:
        url = f"jdbc:postgresql://127.0.0.1:{self._server.port}/postgres"
        login = {"connection.username": "postgres", "connection.password": "any"}
        return Theirs("jdbc", {**_THEIR_SINK, **login, "connection.url": url, "collection.name.format": table})

    def _slot(self, prefix: str, table: str) -> dict[str, str]:
        return {
            "topic.prefix": prefix,
            "table.include.list": f"public.{table}",
            "slot.name": f"{prefix}_{table}",
            "publication.name": f"{prefix}_{table}",
            "publication.autocreate.mode": "filtered",
        }

    def _insert(self, table: str, numbers: str) -> str:
        return (
            f"INSERT INTO {table} (name, price, made, sold, note) SELECT 'item ' || i, (i % 10000) / 100.0,"
            f" timestamptz '2026-01-01' + i * interval '1 second', i % 3 = 0, '{NOTE}' FROM {numbers}"
        )


class MariaDb:
    """MariaDB."""

    name = "MariaDB"

    def __init__(self, server: MariaDbServer) -> None:
        self._server = server
        self._login = {
            "database.hostname": "127.0.0.1",
            "database.port": str(server.port),
            "database.user": server.user,
            "database.password": server.password,
        }

    def connect(self) -> Any:
        server = self._server
        return pymysql.connect(
            host="127.0.0.1",
            port=server.port,
            user=server.user,
            password=server.password,
            database=server.database,
            autocommit=True,
        )

    def create(self, table: str) -> list[str]:
        return [
            f"CREATE TABLE {table} (id bigint AUTO_INCREMENT PRIMARY KEY, name varchar(200) NOT NULL,"
            " price decimal(10,2), made timestamp(6) NULL, sold boolean, note text)"
        ]

    def fill(self, table: str, rows: int) -> list[str]:
        return [self._insert(table, rows)]

    def change(self, table: str, rows: int) -> list[str]:
        half, step = rows // 2, TRANSACTION_ROWS
        return [
            f"BEGIN NOT ATOMIC FOR n IN 0 .. {half // step - 1} DO UPDATE {table} SET price = price + 1"
            f" WHERE id BETWEEN n * {step} + 1 AND n * {step} + {step}; END FOR; END",
            f"BEGIN NOT ATOMIC FOR n IN 0 .. {half // step - 1} DO {self._insert(table, step)}; END FOR; END",
        ]

    def forget_readers(self) -> list[str]:
        return []

    def topic(self, prefix: str, table: str) -> str:
        return f"{prefix}.{self._server.database}.{table}"

    def our_source(self, table: str, staging: Path) -> Ours:
        options = {**self._login, "topic.prefix": "ours", "table.include.list": f"{self._server.database}.{table}"}
        return Ours("barnabas.mariadb", {**options, "stagingLocation": str(staging)})

    def our_sink(self, table: str) -> Ours:
        return Ours("barnabas.mariadb", {**_SINK, **self._sink_login("connection.user"), "table.name.format": table})

    def their_source(self, table: str, servers: str) -> Theirs:
        return Theirs(
            "mariadb",
            {
                **self._login,
                "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
                "database.server.id": "4711",
                "database.ssl.mode": "disable",
                "topic.prefix": "theirs",
                "table.include.list": f"{self._server.database}.{table}",
                "include.schema.changes": "false",
                "schema.history.internal.kafka.bootstrap.servers": servers,
                "schema.history.internal.kafka.topic": f"history.{table}",
            },
        )

    def their_sink(self, table: str) -> Theirs:
        login = self._sink_login("connection.username")
        return Theirs("jdbc", {**_THEIR_SINK, **login, "collection.name.format": table})

    def _sink_login(self, user_key: str) -> dict[str, str]:
        server = self._server
        return {
            "connection.url": f"jdbc:mariadb://127.0.0.1:{server.port}/{server.database}",
            user_key: server.user,
            "connection.password": server.password,
        }

    def _insert(self, table: str, rows: int) -> str:
        return (
            f"INSERT INTO {table} (name, price, made, sold, note) SELECT concat('item ', seq), (seq % 10000) / 100,"
            f" timestamp '2026-01-01 00:00:00' + INTERVAL seq SECOND, seq % 3 = 0, '{NOTE}' FROM seq_1_to_{rows}"
        )
