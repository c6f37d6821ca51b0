"""Polling in Spark: a micro-batch that is repeated, and each kind of database once."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from barnabas.spark.connectors.capture.ports import Position
from barnabas.spark.connectors.polling.errors import PolledTableError
from barnabas.spark.connectors.polling.mysql import open_mysql_polling, parse_mysql_polling
from barnabas.spark.connectors.polling.postgres import open_postgres_polling, parse_postgres_polling
from barnabas.spark.connectors.polling.source import PollingSource
from barnabas.spark.errors import DataLossError
from barnabas.testing.databases import MariaDbServer, PostgresServer
from barnabas.testing.process import BrokerProcess
from tests.system.connectors.binlog_servers import FLAVOURS
from tests.system.connectors.mysql_sources import connect, run
from tests.system.pages import DOCS, run_page

pytestmark = pytest.mark.system

TIMES = {"mode": "timestamp+incrementing", "timestamp.column.name": "changed", "incrementing.column.name": "id"}
NUMBERS = {"mode": "incrementing", "incrementing.column.name": "id"}


@pytest.mark.spark
def test_a_query_that_dies_between_planning_and_commit_gives_each_row_once(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT, changed DATETIME NOT NULL)")
        database.executemany(
            "INSERT INTO orders VALUES (?, 'new', ?)",
            [(n, f"2024-01-01 00:{n // 60:02}:{n % 60:02}") for n in range(500)],
        )
        seen: dict[int, list[tuple[int, str]]] = {}
        dies_at = [1, 3]

        def write(batch: DataFrame, number: int) -> None:
            rows = [(row.id, row.state) for row in batch.collect()]
            assert number not in seen or seen[number] == rows, "a repeated micro-batch has other rows"
            seen[number] = rows
            if number in dies_at:
                dies_at.remove(number)
                database.execute("UPDATE orders SET state = 'paid', changed = '2024-01-02' WHERE id % 3 = 0")
                database.execute("DELETE FROM orders WHERE id % 7 = 0")
                raise RuntimeError("the query dies")

        deaths = 0
        while True:
            query = (
                spark.readStream.format("barnabas.sqlite")
                .options(**TIMES)
                .option("connection.url", f"jdbc:sqlite:{path}")
                .option("stagingLocation", str(tmp_path / "staging"))
                .option("output", "rows")
                .option("batch.max.rows", 150)
                .load()
                .writeStream.foreachBatch(write)
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            try:
                query.awaitTermination()
                break
            except StreamingQueryException:
                deaths += 1
        rows = [row for number in sorted(seen) for row in seen[number]]
        assert deaths == 2
        assert len(rows) == len(set(rows)), "a row is there twice"
        wanted = set(database.execute("SELECT id, state FROM orders"))
        assert wanted <= set(rows)
        assert {row for row in rows if row[1] == "paid"} == {row for row in wanted if row[1] == "paid"}


def poll(source: PollingSource, position: Position) -> tuple[list[dict[str, Any]], Position]:
    end = source.find_end(position, 1 << 20, None)
    return [row for one in source.read(position, end) for row in one.tables[0].changes.after.to_pylist()], end


def postgres_texts(server: PostgresServer, folder: Path, **more: str) -> dict[str, str]:
    return {
        "connection.url": f"jdbc:postgresql://127.0.0.1:{server.port}/postgres",
        "connection.user": "postgres",
        "stagingLocation": str(folder / "staging"),
        "poll.interval.ms": "0",
        "output": "rows",
    } | {name.replace("_", "."): value for name, value in more.items()}


@pytest.mark.parametrize("options", [TIMES, NUMBERS], ids=["timestamp", "incrementing"])
def test_postgres_misses_no_row_of_a_long_transaction(
    postgres: PostgresServer, tmp_path: Path, options: dict[str, str]
) -> None:
    table = f"late_{options['mode'][:2]}"
    texts = postgres_texts(postgres, tmp_path, table_whitelist=table) | options
    source = open_postgres_polling(parse_postgres_polling(texts))
    with psycopg.connect(postgres.conninfo, autocommit=True) as fast, psycopg.connect(postgres.conninfo) as slow:
        fast.execute(
            f"CREATE TABLE {table} (id SERIAL PRIMARY KEY, changed TIMESTAMPTZ NOT NULL DEFAULT now(), price DEC(8,2))"
        )
        fast.execute(f"INSERT INTO {table} (price) VALUES (1.5)")
        position = source.take_snapshot(Unused(), rows=True, follow=True)
        source.check(position, begun=False)
        rows, position = poll(source, position)
        assert [(row["id"], str(row["price"])) for row in rows] == [(1, "1.50")]
        slow.execute(f"INSERT INTO {table} (price) VALUES (2)")
        fast.execute(f"INSERT INTO {table} (price) VALUES (3)")
        assert poll(source, position) == ([], position)
        slow.commit()
        rows, position = poll(source, position)
        assert sorted(row["id"] for row in rows) == [2, 3]
        assert poll(source, position) == ([], position)
    source.close()


class Unused:
    """The stage of a source that has no snapshot."""

    def write(self, table: Any, batches: Iterator[Any]) -> None:
        raise AssertionError


def test_postgres_refuses_a_role_that_cannot_see_transactions(postgres: PostgresServer, tmp_path: Path) -> None:
    with psycopg.connect(postgres.conninfo, autocommit=True) as session:
        session.execute("CREATE ROLE watcher LOGIN")
        session.execute("CREATE TABLE watched (id SERIAL, changed TIMESTAMPTZ NOT NULL)")
        session.execute("GRANT SELECT ON watched TO watcher")
    texts = postgres_texts(postgres, tmp_path, connection_user="watcher") | TIMES
    with pytest.raises(PolledTableError, match='GRANT pg_read_all_stats TO "watcher";'):
        open_postgres_polling(parse_postgres_polling(texts)).read_tables()


def test_postgres_polls_a_query_with_all_its_types(postgres: PostgresServer, tmp_path: Path) -> None:
    query = (
        "SELECT n AS id, n % 2 AS odd, 'a%' AS text, ARRAY[n] AS list, 1.5::numeric(4,2) AS price, '{}'::jsonb AS json,"
        " 'ab'::bytea AS bytes, NULL::date AS day FROM generate_series(1, 2) AS n"
    )
    texts = postgres_texts(postgres, tmp_path, query=query) | NUMBERS
    source = open_postgres_polling(parse_postgres_polling(texts))
    rows, _ = poll(source, source.take_snapshot(Unused(), rows=True, follow=True))
    source.close()
    assert [str(row["price"]) for row in rows] == ["1.50", "1.50"]
    assert [row | {"price": None} for row in rows] == [
        {"id": n, "odd": n % 2, "text": "a%", "list": [n], "price": None, "json": "{}", "bytes": b"ab", "day": None}
        for n in (1, 2)
    ]


@pytest.mark.spark
def test_mode_on_the_format_of_postgres_polls(spark: SparkSession, postgres: PostgresServer, tmp_path: Path) -> None:
    with psycopg.connect(postgres.conninfo, autocommit=True) as session:
        session.execute("CREATE TABLE batches (id INT PRIMARY KEY, at TIMESTAMP)")
        session.execute("INSERT INTO batches SELECT n, '2024-01-01' FROM generate_series(1, 1000) AS n")
    texts = postgres_texts(postgres, tmp_path, mode="bulk", table_whitelist="batches")
    rows = spark.read.format("barnabas.postgres").options(**texts).load()
    assert rows.dtypes == [("id", "int"), ("at", "timestamp_ntz")]
    assert rows.selectExpr("count(*)", "sum(id)").collect() == [(1000, 500500)]


@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
def test_all_types_and_changes_are_polled(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    server: MariaDbServer = request.getfixturevalue(kind)
    flavour = FLAVOURS["MariaDB" if kind == "mariadb" else "MySQL"]
    with connect(server, "") as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE IF NOT EXISTS shop")
    run(server, "DROP TABLE IF EXISTS types", flavour.types)
    run(server, f"INSERT INTO types VALUES (1, {flavour.values.replace('20000000', '20')})")
    run(server, "ALTER TABLE types ADD COLUMN changed DATETIME(3) NOT NULL DEFAULT '2024-01-01'")
    texts = {
        "connection.url": f"jdbc:{kind}://127.0.0.1:{server.port}/shop",
        "connection.user": server.user,
        "connection.password": server.password,
        "stagingLocation": str(tmp_path / "staging"),
        "poll.interval.ms": "0",
        "output": "rows",
        "table.whitelist": "types",
        "numeric.mapping": "best_fit",
        **TIMES,
    }
    source = open_mysql_polling(parse_mysql_polling(texts))
    position = source.take_snapshot(Unused(), rows=True, follow=True)
    source.check(position, begun=False)
    (row,), position = poll(source, position)
    assert (row["a"], row["b"], str(row["d"]), row["q"], row["w"]) == (
        -128,
        65535,
        "18446744073709551615",
        "hé😀",
        "it's",
    )
    run(server, "UPDATE types SET q = 'new', changed = '2024-01-02' WHERE id = 1")
    (row,), position = poll(source, position)
    assert row["q"] == "new"
    run(server, "UPDATE types SET q = 'newer', changed = NOW() + INTERVAL 1 DAY WHERE id = 1")
    assert poll(source, position) == ([], position)
    source.close()


@pytest.mark.parametrize("change", ["replaced", "truncated", "rewritten"])
@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_a_position_in_a_table_that_is_not_what_it_was(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, change: str
) -> None:
    server: Any = request.getfixturevalue(kind)
    create = "CREATE TABLE positions (id INT PRIMARY KEY, note VARCHAR(20))"
    numbers = "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {1})"
    insert = f"INSERT INTO positions {numbers} SELECT n, concat('{{0}}', n) FROM s"
    if kind == "postgres":
        connection: Any = psycopg.connect(server.conninfo, autocommit=True)
        texts = postgres_texts(server, tmp_path, table_whitelist="positions") | NUMBERS
        rewrite = "VACUUM FULL positions"
        make, parse = open_postgres_polling, parse_postgres_polling
    else:
        with connect(server, "") as first, first.cursor() as cursor:
            cursor.execute("CREATE DATABASE IF NOT EXISTS shop")
        connection = connect(server, "shop")
        texts = {
            "connection.url": f"jdbc:mariadb://127.0.0.1:{server.port}/shop",
            "connection.user": server.user,
            "connection.password": server.password,
            "stagingLocation": str(tmp_path / "staging"),
            "poll.interval.ms": "0",
            "output": "rows",
            "table.whitelist": "positions",
            **NUMBERS,
        }
        rewrite = "ALTER TABLE positions FORCE"
        make, parse = open_mysql_polling, parse_mysql_polling

    def execute(*statements: str) -> None:
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        if kind == "mariadb":
            connection.commit()

    execute("DROP TABLE IF EXISTS positions", create, insert.format("old", 100))
    source = make(parse({**texts, "timestamp.delay.interval.ms": "0"}))
    read, position = poll(source, source.take_snapshot(Unused(), rows=True, follow=True))
    while len(read) < 100:  # numbers are final only after a while
        more, position = poll(source, position)
        read += more
    if change == "replaced":
        execute("DROP TABLE positions", create, insert.format("new", 150))
    elif change == "truncated":
        execute("TRUNCATE TABLE positions", insert.format("new", 150))
    else:
        execute(rewrite, "INSERT INTO positions VALUES (101, 'more')")
    if change == "rewritten":
        rows_after: list[Any] = []
        while not rows_after:
            rows_after, position = poll(source, position)
        assert [row["id"] for row in rows_after] == [101]
    else:
        with pytest.raises(DataLossError, match=r"the table .*positions was replaced"):
            poll(source, position)
        again = make(parse({**texts, "timestamp.delay.interval.ms": "0", "failOnDataLoss": "false"}))
        read = []
        while len(read) < 150:
            more, position = poll(again, position)
            read += more
        assert [row["note"] for row in read] == [f"new{n}" for n in range(1, 151)]
        again.close()
    source.close()
    connection.close()


@pytest.mark.spark
def test_the_sections_about_polling_and_about_files(spark: SparkSession, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        addresses = {
            "127.0.0.1:9092": broker.bootstrap_servers,
            "shop.db": str(tmp_path / "shop.db"),
            "report.duckdb": str(tmp_path / "report.duckdb"),
            '"staging/': f'"{tmp_path}/staging/',
            '"checkpoints/': f'"{tmp_path}/checkpoints/',
        }
        run_page(DOCS / "CONNECT.md", addresses, {"spark": spark}, section="### Polling tables")
        run_page(DOCS / "CONNECT.md", addresses, {"spark": spark}, section="## SQLite and DuckDB")
        (rows,) = (
            spark.read.format("barnabas")
            .option("kafka.bootstrap.servers", broker.bootstrap_servers)
            .option("subscribe", "shop-orders")
            .load()
            .selectExpr("count(*) AS number", "count(key) AS keys", "max(CAST(value AS STRING)) AS value")
            .collect()
        )
    assert (rows.number, rows.keys) == (2, 0)
    assert json.loads(rows.value)["payload"]["state"] == "new"
