"""What is particular to MySQL and MariaDB as sinks: all types, unique keys, collations, engines, privileges."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pymysql
import pytest

from barnabas.spark.connectors.sinking.ports import BatchId
from barnabas.spark.connectors.sql.sinks.errors import DatabaseSinkError
from barnabas.spark.errors import SinkError
from barnabas.testing.databases import MariaDbServer, MySqlServer
from tests.system.connectors.sql_databases import QUERY, MariaDbSinkDatabase, stage, write
from tests.system.connectors.test_sql_sink_postgres import NOON, every_type

pytestmark = pytest.mark.system

UPSERT = {"dbtable": "t", "pk_fields": "id", "insert_mode": "upsert"}


@pytest.fixture(params=["mariadb", "mysql"])
def database(request: pytest.FixtureRequest) -> Iterator[MariaDbSinkDatabase]:
    opened = MariaDbSinkDatabase(request.getfixturevalue(request.param))
    opened.open()
    yield opened
    opened.connection.close()


WRITTEN = (
    1, 1, -128, -32768, 2**31 - 1, -(2**63), 2**64 - 1, 0.1, 1e300, Decimal("0.0000000012"), str(10**75),
    'a\n"b",\\.\tü', "", bytes(range(256)), datetime.date(2024, 2, 29),
    datetime.timedelta(hours=23, minutes=59, seconds=59, microseconds=999999), NOON, NOON,
    '["a",null,"q\\"\\\\ ,{}","NULL",""]', "[]", '{"a":1,"b":[1.5]}', '{"k":1}',
)  # fmt: skip


def test_every_type_in_a_table_that_is_created(database: MariaDbSinkDatabase) -> None:
    rows = every_type()
    write(database.plan(**UPSERT, auto_create="true"), 0, rows)
    names = ", ".join(f"`{name}`" for name in rows.schema.names)
    found = database.rows(f"SELECT {names} FROM t ORDER BY id")
    if isinstance(database.server, MySqlServer):  # its JSON is no text
        found[0] = (*found[0][:-4], *(json.dumps(json.loads(text), separators=(",", ":")) for text in found[0][-4:]))
    assert found == [WRITTEN, (2, *[None] * (len(WRITTEN) - 1))]


def test_values_become_what_the_columns_of_a_table_hold(database: MariaDbSinkDatabase) -> None:
    database.run(
        "CREATE TABLE t (flag int, amount decimal(10,2), label varchar(10) CHARACTER SET latin1, day date,"
        " local datetime(6), instant timestamp(6) NULL, mood enum('good','bad'), bits bit(1), raw varbinary(4),"
        " tiny tinyint unsigned)"
    )
    row = {
        "flag": True,
        "amount": "12.50",
        "label": "ü'\\",
        "day": "2024-02-29",
        "local": "2024-07-01T12:00:00+02:00",
        "instant": "2024-07-01T12:00:00.5",
        "mood": "bad",
        "bits": True,
        "raw": "text",
        "tiny": 255,
    }
    plan = database.plan(dbtable="t", db_timezone="Europe/Berlin")
    write(plan, 0, pa.RecordBatch.from_pylist([row]))
    database.run("SET time_zone = '+00:00'")
    assert database.rows("SELECT * FROM t") == [
        (1, Decimal("12.50"), "ü'\\", datetime.date(2024, 2, 29), datetime.datetime(2024, 7, 1, 12),
         datetime.datetime(2024, 7, 1, 10, 0, 0, 500000), "bad", b"\x01", b"text", 255)
    ]  # fmt: skip
    for name, value, reason in (
        ("tiny", -1, "not from 0 to 255"),
        ("label", "日", "staging rows failed"),
        ("raw", "five!", "more than 4 bytes"),
        ("day", "2024-02-30", "staging rows failed"),
        ("mood", "awful", "staging rows failed"),
    ):
        with pytest.raises(SinkError, match=reason):
            write(plan, 1, pa.RecordBatch.from_pydict({name: [value]}))
    assert database.rows("SELECT count(*) FROM t") == [(1,)]


def test_an_upsert_matches_only_the_key_of_the_rows(database: MariaDbSinkDatabase) -> None:
    database.run("CREATE TABLE t (id int PRIMARY KEY, code int UNIQUE, n int)")
    database.run("INSERT INTO t VALUES (1, 10, 0)")
    plan = database.plan(**UPSERT)
    write(plan, 0, pa.RecordBatch.from_pydict({"id": [1, 2], "code": [11, 12], "n": [1, 2]}))
    assert database.rows("SELECT * FROM t ORDER BY id") == [(1, 11, 1), (2, 12, 2)]
    # ON DUPLICATE KEY UPDATE would change the row of id 1, whose code is the same.
    with pytest.raises(SinkError, match=r"Duplicate entry '11' for key '(t\.)?code'"):
        write(plan, 1, pa.RecordBatch.from_pydict({"id": [3], "code": [11], "n": [3]}))
    assert database.rows("SELECT count(*) FROM t") == [(2,)]


def test_keys_of_created_tables_are_equal_only_if_their_bytes_are(database: MariaDbSinkDatabase) -> None:
    plan = database.plan(**UPSERT, auto_create="true", delete_enabled="true")
    keys = ["a", "A", "a ", "ä", "a\t", ""]
    write(plan, 0, pa.RecordBatch.from_pydict({"id": keys, "n": list(range(6))}))
    write(plan, 1, pa.RecordBatch.from_pydict({"id": ["A", "a "], "n": [7, 8], "__op": ["d", "u"]}))
    expected = {"a": 0, "a ": 8, "ä": 3, "a\t": 4, "": 5}
    assert dict(database.rows("SELECT id, n FROM t")) == expected
    with pytest.raises(SinkError, match="more than 255 characters"):
        write(plan, 2, pa.RecordBatch.from_pydict({"id": ["x" * 256], "n": [1]}))


def test_names_of_columns_have_the_case_of_the_table(database: MariaDbSinkDatabase) -> None:
    database.run("CREATE TABLE t (Id int PRIMARY KEY, Name varchar(9) NOT NULL)")
    write(database.plan(**UPSERT), 0, pa.RecordBatch.from_pydict({"id": [1], "name": ["a"]}))
    assert database.rows("SELECT * FROM t") == [(1, "a")]


def test_a_table_without_transactions_is_refused(database: MariaDbSinkDatabase) -> None:
    database.run("CREATE TABLE t (id int PRIMARY KEY) ENGINE=MyISAM")
    plan = database.plan(**UPSERT)
    rows = pa.RecordBatch.from_pydict({"id": [1]})
    with pytest.raises(DatabaseSinkError, match="Run: ALTER TABLE `t` ENGINE=InnoDB"):
        write(plan, 0, rows)
    database.run("ALTER TABLE `t` ENGINE=InnoDB")
    write(plan, 0, rows)
    assert database.rows("SELECT id FROM t") == [(1,)]


def test_a_missing_privilege_is_named_with_the_statement(database: MariaDbSinkDatabase) -> None:
    database.run("CREATE TABLE t (id int)")
    database.run("DROP USER IF EXISTS clerk@'%'")
    database.run("CREATE USER clerk@'%' IDENTIFIED BY 'x'")
    database.run(f"GRANT SELECT ON {database.schema}.t TO clerk@'%'")
    options = {"connection.url": database.url(), "connection.user": "clerk", "connection.password": "x"}
    plan = database.make({**options, "dbtable": "t"})
    with pytest.raises(DatabaseSinkError, match="Run as an administrator: GRANT") as caught:
        write(plan, 0, pa.RecordBatch.from_pydict({"id": [1]}))
    database.run(str(caught.value).partition("administrator: ")[2].partition(";")[0])
    write(plan, 0, pa.RecordBatch.from_pydict({"id": [1]}))
    assert database.rows("SELECT id FROM t") == [(1,)]
    with pytest.raises(DatabaseSinkError, match=r"connection\.password"):
        database.make({**options, "connection.password": "y", "dbtable": "t"}).target.prepare(None)


def test_long_rows_are_several_statements(database: MariaDbSinkDatabase) -> None:
    database.run("CREATE TABLE t (id int, text longtext)")
    text = "'\\" * 1_000_000
    write(database.plan(dbtable="t"), 0, pa.RecordBatch.from_pydict({"id": list(range(6)), "text": [text] * 6}))
    assert database.rows("SELECT count(*), min(length(text)) FROM t") == [(6, 2_000_000)]
    with pytest.raises(SinkError, match="SET GLOBAL max_allowed_packet"):
        write(database.plan(dbtable="t"), 1, pa.RecordBatch.from_pydict({"id": [1], "text": ["x" * 68_000_000]}))


def test_a_server_that_dies_after_the_tasks_loses_no_rows() -> None:
    with MariaDbServer() as server:
        database = MariaDbSinkDatabase(server)
        database.open()
        database.run("CREATE TABLE t (id int)")
        plan = database.plan(dbtable="t", connection_backoff_ms="100")
        rows = pa.RecordBatch.from_pydict({"id": [1, 2]})
        parts: Any = stage(plan, 0, [[rows]])
        server.kill()
        server.start()
        plan.target.publish(BatchId(QUERY, 0), parts)  # stages of InnoDB survive
        write(plan, 0, rows)
        with pymysql.connect(
            host="127.0.0.1", port=server.port, user=server.user, password=server.password, database=database.schema
        ) as session, session.cursor() as cursor:  # fmt: skip
            cursor.execute("SELECT id FROM t ORDER BY id")
            assert list(cursor.fetchall()) == [(1,), (2,)]
