"""What is particular to PostgreSQL as a sink: all types, privileges, and a server that dies."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from barnabas.spark.connectors.sinking.ports import AttemptId, BatchId
from barnabas.spark.connectors.sinking.writer import stage_rows
from barnabas.spark.connectors.sql.sinks.errors import DatabaseSinkError
from barnabas.spark.errors import OptionError, SinkError
from barnabas.testing.databases import PostgresServer
from tests.system.connectors.sql_databases import QUERY, PostgresSinkDatabase, stage, write

pytestmark = pytest.mark.system

UTC = datetime.UTC
NOON = datetime.datetime(2024, 7, 1, 12, 0, 0, 123456)


@pytest.fixture
def database(postgres: PostgresServer) -> Any:
    opened = PostgresSinkDatabase(postgres)
    opened.open()
    yield opened
    opened.connection.close()


def every_type() -> Any:
    """Two rows, the second of which is null except for its key."""

    def column(value: Any, kind: Any) -> Any:
        return pa.array([value, None], kind)

    arrays = {
        "id": pa.array([1, 2], pa.int64()),
        "flag": column(True, pa.bool_()),
        "i8": column(-128, pa.int8()),
        "i16": column(-32768, pa.int16()),
        "i32": column(2**31 - 1, pa.int32()),
        "i64": column(-(2**63), pa.int64()),
        "u64": column(2**64 - 1, pa.uint64()),
        "f32": column(0.1, pa.float32()),
        "f64": column(1e300, pa.float64()),
        "small": column(Decimal("0.0000000012"), pa.decimal128(20, 10)),
        "wide": column(Decimal(10**75), pa.decimal256(76, 0)),
        "text": column('a\n"b",\\.\tü', pa.string()),
        "empty": column("", pa.string()),
        "bytes": column(bytes(range(256)), pa.binary()),
        "day": column(datetime.date(2024, 2, 29), pa.date32()),
        "time": column(datetime.time(23, 59, 59, 999999), pa.time64("us")),
        "local": column(NOON, pa.timestamp("us")),
        "instant": column(NOON, pa.timestamp("us", "UTC")),
        "texts": column(["a", None, 'q"\\ ,{}', "NULL", ""], pa.list_(pa.string())),
        "numbers": column([], pa.list_(pa.int32())),
        "struct": column({"a": 1, "b": [1.5]}, pa.struct({"a": pa.int32(), "b": pa.list_(pa.float64())})),
        "map": column([("k", 1)], pa.map_(pa.string(), pa.int32())),
    }
    return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))


WRITTEN = (
    1, True, -128, -32768, 2**31 - 1, -(2**63), Decimal(2**64 - 1), 0.1, 1e300, Decimal("0.0000000012"),
    Decimal(10**75), 'a\n"b",\\.\tü', "", bytes(range(256)), datetime.date(2024, 2, 29),
    datetime.time(23, 59, 59, 999999), NOON, NOON.replace(tzinfo=UTC), ["a", None, 'q"\\ ,{}', "NULL", ""], [],
    {"a": 1, "b": [1.5]}, {"k": 1},
)  # fmt: skip


def test_every_type_in_a_table_that_is_created(database: PostgresSinkDatabase) -> None:
    rows = every_type()
    write(database.plan(dbtable="t", auto_create="true", pk_fields="id", insert_mode="upsert"), 0, rows)
    names = ", ".join(f'"{name}"' for name in rows.schema.names)
    found = database.rows(f"SELECT {names} FROM t ORDER BY id")
    assert found[0] == WRITTEN
    assert found[1] == (2, *[None] * (len(WRITTEN) - 1))


def test_values_become_what_the_columns_of_a_table_hold(database: PostgresSinkDatabase) -> None:
    database.run(
        "CREATE TYPE mood AS ENUM ('good', 'bad'); CREATE DOMAIN short AS varchar(5);"
        " CREATE TABLE t (flag int, number bigint, amount numeric, label text, day date, local timestamp,"
        " instant timestamptz, document jsonb, uid uuid, address inet, mood mood, short short, many int[],"
        " raw bytea, span tstzrange)"
    )
    uid = "6f1e3c8a-0000-4000-8000-000000000001"
    rows = {
        "flag": True,
        "number": 3.0,
        "amount": "12.50",
        "label": 7,
        "day": "2024-02-29",
        "local": "2024-07-01T12:00:00+02:00",
        "instant": "2024-07-01T12:00:00.5",
        "document": '{"a": [1]}',
        "uid": uid,
        "address": "10.0.0.1",
        "mood": "bad",
        "short": "abc",
        "many": [1, 2],
        "raw": "text",
    }
    batch = pa.RecordBatch.from_pylist([rows])
    write(database.plan(dbtable="t", db_timezone="Europe/Berlin"), 0, batch)
    (found,) = database.rows("SELECT *, pg_typeof(short)::text FROM t")
    assert found[:8] == (
        1, 3, Decimal("12.50"), "7", datetime.date(2024, 2, 29), datetime.datetime(2024, 7, 1, 12),
        datetime.datetime(2024, 7, 1, 10, 0, 0, 500000, UTC), {"a": [1]},
    )  # fmt: skip
    assert [str(one) for one in found[8:12]] == [uid, "10.0.0.1", "bad", "abc"]
    assert found[12:14] == ([1, 2], b"text")
    with pytest.raises(SinkError, match="column day is date, and the rows have int64"):
        write(database.plan(dbtable="t"), 1, pa.RecordBatch.from_pydict({"day": [1]}))
    with pytest.raises(SinkError, match="invalid input value for enum mood"):
        write(database.plan(dbtable="t"), 1, pa.RecordBatch.from_pydict({"mood": ["bad"] * 50 + ["awful"]}))


def test_a_missing_privilege_is_named_with_the_statement(database: PostgresSinkDatabase) -> None:
    schema = database.schema
    database.run("DROP ROLE IF EXISTS clerk; CREATE ROLE clerk LOGIN; CREATE TABLE t (id int)")
    database.run(f"GRANT USAGE ON SCHEMA {schema} TO clerk")
    plan = database.make({"connection.url": database.url(), "connection.user": "clerk", "dbtable": "t"})
    rows = pa.RecordBatch.from_pydict({"id": [1]})
    for _ in range(5):
        try:
            write(plan, 0, rows)
            break
        except DatabaseSinkError as error:
            (statement,) = [part for part in str(error).split(": ") if part.startswith("GRANT")]
            database.run(statement.partition("; ")[0])
    assert database.rows("SELECT id FROM t") == [(1,)]
    database.run(f"DROP OWNED BY clerk; DROP ROLE clerk; DROP SCHEMA {schema} CASCADE; CREATE SCHEMA {schema}")


def test_a_server_that_dies_after_the_tasks_loses_no_rows() -> None:
    with PostgresServer() as server:
        database = PostgresSinkDatabase(server)
        database.open()
        database.run("CREATE TABLE t (id int)")
        plan = database.plan(dbtable="t")
        rows = pa.RecordBatch.from_pydict({"id": [1, 2]})
        parts = stage(plan, 0, [[rows]])
        server.kill()
        server.start()
        with pytest.raises(DatabaseSinkError, match="0 of 2 rows: the server was restarted"):
            plan.target.publish(BatchId(QUERY, 0), parts)
        write(plan, 0, rows)  # Spark repeats the micro-batch
        with psycopg.connect(server.conninfo) as session:
            assert session.execute(f"SELECT id FROM {database.schema}.t ORDER BY id").fetchall() == [(1,), (2,)]


def test_a_server_that_is_killed_while_a_task_stages_rows_starts_again() -> None:
    """If its sessions roll back CREATE UNLOGGED TABLE after its main process died, PostgreSQL finds a file too many."""
    rows = pa.RecordBatch.from_pydict({"id": [1]})
    with PostgresServer() as server:
        database = PostgresSinkDatabase(server)
        database.open()
        database.run("CREATE TABLE t (id int)")
        plan = database.plan(dbtable="t")

        def rows_and_a_kill() -> Iterator[Any]:
            yield rows
            database.run("INSERT INTO t VALUES (0)")  # brings the log to the disk
            server.kill()

        with pytest.raises(DatabaseSinkError):
            stage_rows(rows_and_a_kill(), plan, AttemptId(QUERY, "run", 0, 0, 0))
        server.start()
        database.connection = psycopg.connect(server.conninfo, autocommit=True)
        write(plan, 0, rows)
        assert database.rows(f"SELECT id FROM {database.schema}.t ORDER BY id") == [(0,), (1,)]
        assert database.stages() == []


def test_a_name_that_the_server_shortens_is_refused(database: PostgresSinkDatabase) -> None:
    rows = pa.RecordBatch.from_pydict({"id": [1], "x" * 64: [1]})
    with pytest.raises(DatabaseSinkError, match="too long for the database"):
        write(database.plan(dbtable="t", auto_create="true"), 0, rows)


def test_names_in_capitals_are_those_of_the_table_or_folded(database: PostgresSinkDatabase) -> None:
    database.run("CREATE TABLE t (id int)")
    rows = pa.RecordBatch.from_pydict({"ID": [1]})
    with pytest.raises(DatabaseSinkError, match=r"differ only in case.*quote\.sql\.identifiers=never"):
        write(database.plan(dbtable="T".lower()), 0, rows)
    write(database.plan(dbtable="T", quote_sql_identifiers="never"), 0, rows)
    assert database.rows("SELECT id FROM t") == [(1,)]


def test_a_job_leaves_nothing_behind(database: PostgresSinkDatabase) -> None:
    database.run("CREATE TABLE t (id int)")
    plan = database.plan(dbtable="t")
    plan.target.prepare(None)
    database.run("INSERT INTO barnabas_ledger VALUES ('job-old', 0, '2000-01-01'), ('job-new', 0, now())")
    rows = pa.RecordBatch.from_pydict({"id": [1]})
    parts = stage_rows(iter([rows]), plan, AttemptId("job-mine", "run", 0, 0, 0, is_job=True)).parts
    plan.target.publish(BatchId("job-mine", 0, is_job=True), parts)
    assert database.rows("SELECT id FROM t") == [(1,)]
    assert database.rows("SELECT query_id FROM barnabas_ledger") == [("job-new",)]
    assert database.stages() == []


def test_a_url_of_another_database_is_refused(database: PostgresSinkDatabase) -> None:
    with pytest.raises(OptionError, match=r"format\('barnabas.mysql or barnabas.mariadb'\)"):
        database.make({"connection.url": "jdbc:mysql://localhost/shop", "dbtable": "t"})
