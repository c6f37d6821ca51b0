"""Rows into SQLite and DuckDB without Spark: upserts, deletes, repeated micro-batches, created tables, bad values."""

from __future__ import annotations

import datetime
import multiprocessing
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from barnabas.spark.connectors.sinking.ports import AttemptId, BatchId, StagedPart
from barnabas.spark.connectors.sinking.writer import SinkPlan, stage_rows
from barnabas.spark.connectors.sql.sinks.errors import DatabaseSinkError, DatabaseUnreachableError
from barnabas.spark.connectors.sql.sinks.opening import duckdb_plan, sqlite_plan
from barnabas.spark.errors import DeliveryError, OptionError, SinkError

QUERY = "6f1e3c8a-0000-4000-8000-000000000001"
OTHER_QUERY = "6f1e3c8a-0000-4000-8000-000000000002"
UPSERT = {"insert_mode": "upsert", "pk_fields": "id", "dbtable": "t"}


class FileDatabase:
    """A database file, which is open during a statement only."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.kind = kind
        self.path = folder / f"shop.{kind}"
        self.run("CREATE TABLE unused (id integer)")

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        connect = sqlite3.connect if self.kind == "sqlite" else duckdb.connect
        with closing(connect(str(self.path))) as connection:
            found = connection.execute(sql).fetchall()
            connection.commit() if self.kind == "sqlite" else None
            return found

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.rows(statement)

    def stages(self) -> list[str]:
        return sorted(path.name for path in self.path.parent.glob("shop.*.stages/*"))

    def plan(self, **given: str) -> SinkPlan:
        options = {name.replace("_", "."): text for name, text in given.items()}
        options = {
            "connection.url": f"jdbc:{self.kind}:{self.path}",
            "retry.backoff.ms": "1",
            "max.retries": "1",
            "connection.attempts": "1",
        } | options
        return sqlite_plan(options) if self.kind == "sqlite" else duckdb_plan(options)


@pytest.fixture(params=["sqlite", "duckdb"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> FileDatabase:
    return FileDatabase(tmp_path, request.param)


def stage(plan: SinkPlan, number: int, *batches: Any, query: str = QUERY) -> list[StagedPart]:
    """Stage batches, with one task for each of them."""
    plan.target.prepare(query)
    return [
        part
        for task, one in enumerate(batches)
        for part in stage_rows(iter([one]), plan, AttemptId(query, "run", number, task, 0)).parts
    ]


def write(plan: SinkPlan, number: int, *batches: Any) -> None:
    plan.target.publish(BatchId(QUERY, number), stage(plan, number, *batches))


def batch(**columns: Any) -> Any:
    return pa.RecordBatch.from_pydict(columns)


def changes(*rows: tuple[int, str | None, str]) -> Any:
    """(id, name, op)"""
    ids, names, ops = zip(*rows, strict=True)
    return batch(id=pa.array(ids, pa.int32()), name=pa.array(names, pa.string()), __op=pa.array(ops))


def test_the_last_row_of_each_key_counts_across_tasks(database: FileDatabase) -> None:
    database.run("CREATE TABLE t (id integer PRIMARY KEY, name varchar(20), other integer DEFAULT 7)")
    plan = database.plan(**UPSERT, delete_enabled="true")
    write(plan, 0, changes((1, "a", "c"), (2, "b", "c"), (3, "c", "c"), (1, "a2", "u")), changes((2, "b2", "u")))
    assert database.rows("SELECT * FROM t ORDER BY id") == [(1, "a2", 7), (2, "b2", 7), (3, "c", 7)]
    database.run("UPDATE t SET other = 8")
    write(plan, 1, changes((1, None, "d"), (3, None, "d"), (3, "again", "c"), (4, "d", "c"), (2, "b3", "u")))
    assert database.rows("SELECT * FROM t ORDER BY id") == [(2, "b3", 8), (3, "again", 7), (4, "d", 7)]
    assert database.rows("SELECT query_id, batch_id FROM barnabas_ledger") == [(QUERY, 1)]
    assert database.stages() == []


def test_a_column_that_was_not_received_keeps_its_value(database: FileDatabase) -> None:
    database.run("CREATE TABLE t (id integer PRIMARY KEY, name varchar(20) NOT NULL, text varchar(40))")
    plan = database.plan(**UPSERT)
    lost = "__debezium_unavailable_value"
    write(plan, 0, batch(id=[1, 2, 1, 1, 2], name=["a", "b", lost, "a3", lost], text=["x", "y", "x2", lost, "y2"]))
    assert database.rows("SELECT * FROM t ORDER BY id") == [(1, "a3", "x2"), (2, "b", "y2")]
    with pytest.raises(SinkError, match="name"):
        write(plan, 1, batch(id=[9], name=[lost], text=["z"]))
    assert database.rows("SELECT count(*) FROM t") == [(2,)]


def test_update_changes_rows_and_insert_adds_them(database: FileDatabase) -> None:
    database.run("CREATE TABLE t (id integer, name varchar(20))")
    write(database.plan(dbtable="t"), 0, batch(id=[1, 1], name=["a", "b"]), batch(id=[2], name=["c"]))
    assert database.rows("SELECT * FROM t") == [(1, "a"), (1, "b"), (2, "c")]
    update = database.plan(dbtable="t", insert_mode="update", pk_fields="id")
    write(update, 1, batch(id=[2, 3, 2], name=["x", "y", "z"]))
    assert database.rows("SELECT * FROM t WHERE id > 1") == [(2, "z")]


def test_a_repeated_batch_is_not_written_again_and_an_old_one_is_refused(database: FileDatabase) -> None:
    database.run("CREATE TABLE t (id integer)")
    plan = database.plan(dbtable="t")
    write(plan, 0, batch(id=[1]))
    write(plan, 1, batch(id=[2]))
    write(plan, 1, batch(id=[3]), batch(id=[4]))  # the same micro-batch, with other rows in each task
    assert database.rows("SELECT id FROM t ORDER BY id") == [(1,), (2,)]
    with pytest.raises(DeliveryError, match="ledger has micro-batch 1"):
        write(plan, 0, batch(id=[5]))
    plan.target.prepare(QUERY)
    assert database.stages() == []


def test_stages_of_dead_attempts_are_dropped_and_those_of_other_queries_stay(database: FileDatabase) -> None:
    database.run("CREATE TABLE t (id integer)")
    plan = database.plan(dbtable="t")
    lost = stage(plan, 0, batch(id=[1]))  # a driver that died
    other = stage(plan, 0, batch(id=[2]), query=OTHER_QUERY)
    write(plan, 0, batch(id=[3]))
    assert len(database.stages()) == 1
    plan.target.publish(BatchId(OTHER_QUERY, 0), other)
    assert database.rows("SELECT id FROM t ORDER BY id") == [(2,), (3,)]
    with pytest.raises(DatabaseSinkError, match="two run at the same time"):
        plan.target.publish(BatchId(QUERY, 1), lost)


def test_a_failure_in_the_transaction_writes_nothing(database: FileDatabase) -> None:
    database.run("CREATE TABLE t (id integer, CHECK (id < 5))")
    plan = database.plan(dbtable="t")
    with pytest.raises(SinkError, match="CHECK"):
        write(plan, 0, batch(id=[1]), batch(id=[9]))
    assert database.rows("SELECT count(*) FROM t") == [(0,)]
    database.run("DROP TABLE t", "CREATE TABLE t (id integer)")
    write(plan, 0, batch(id=[1]), batch(id=[9]))
    assert database.rows("SELECT id FROM t ORDER BY id") == [(1,), (9,)]


def test_tables_are_created_and_get_new_columns(database: FileDatabase) -> None:
    rows = batch(id=[1], name=["a"])
    with pytest.raises(DatabaseSinkError, match=r"CREATE TABLE IF NOT EXISTS .*auto.create=true"):
        write(database.plan(**UPSERT), 0, rows)
    write(database.plan(**UPSERT, auto_create="true"), 0, rows, batch(id=[2], name=["b"]))
    more = batch(id=[2], name=["b2"], price=pa.array([1.5]))
    with pytest.raises(DatabaseSinkError, match=r"Run: ALTER TABLE .* ADD COLUMN .*price"):
        write(database.plan(**UPSERT), 1, more)
    write(database.plan(**UPSERT, auto_evolve="true"), 1, more, batch(id=[3], name=["c"]))
    assert database.rows("SELECT id, name, price FROM t ORDER BY id") == [
        (1, "a", None),
        (2, "b2", 1.5),
        (3, "c", None),
    ]


def test_the_file_is_created_if_tables_are(database: FileDatabase) -> None:
    database.path.unlink()
    with pytest.raises(DatabaseSinkError, match=r"there is no database file .*auto.create=true"):
        write(database.plan(**UPSERT), 0, batch(id=[1]))
    write(database.plan(**UPSERT, auto_create="true"), 0, batch(id=[1]))
    assert database.rows("SELECT id FROM t") == [(1,)]


def every_type() -> Any:
    at = datetime.datetime(2024, 1, 31, 12, 30, 0, 1)
    return batch(
        id=pa.array([1, 2], pa.int64()),
        flag=[True, None],
        small=pa.array([-5, None], pa.int16()),
        ratio=[0.25, None],
        price=pa.array([Decimal("12.50"), None], pa.decimal128(10, 2)),
        name=['a"b', None],
        data=[b"\0\xff", None],
        day=pa.array([at.date(), None]),
        clock=pa.array([at.time(), None], pa.time64("us")),
        local=pa.array([at, None], pa.timestamp("us")),
        moment=pa.array([at, None], pa.timestamp("us", "UTC")),
        names=[["a", "b,c"], None],
        nested=[{"a": 1}, None],
    )


def test_every_type_in_a_table_that_is_created(database: FileDatabase) -> None:
    plan = database.plan(**UPSERT, auto_create="true")
    write(plan, 0, every_type())
    first = database.rows("SELECT * FROM t ORDER BY id")
    write(plan, 1, every_type())  # into the table that exists now
    assert database.rows("SELECT * FROM t ORDER BY id") == first
    assert first[1] == (2, *[None] * 12)
    at = datetime.datetime(2024, 1, 31, 12, 30, 0, 1)
    row = first[0]
    if database.kind == "sqlite":
        text = "2024-01-31 12:30:00.000001"
        wanted: tuple[Any, ...] = (1, 1, -5, 0.25, "12.50", 'a"b', b"\0\xff", "2024-01-31", text[11:], text, text)
        assert row == (*wanted, '["a","b,c"]', '{"a":1}')
        return
    assert row[:10] == (1, True, -5, 0.25, Decimal("12.50"), 'a"b', b"\0\xff", at.date(), at.time(), at)
    assert row[10].astimezone(datetime.UTC) == at.replace(tzinfo=datetime.UTC)
    assert row[11:] == (["a", "b,c"], '{"a":1}')


def test_values_that_do_not_fit_are_named_or_left_out(database: FileDatabase) -> None:
    database.run("CREATE TABLE t (id bigint NOT NULL, name varchar(3), day date, price decimal(5, 2))")
    rows = batch(
        topic=["orders"] * 4,
        partition=pa.array([2] * 4, pa.int32()),
        offset=pa.array(range(10, 14), pa.int64()),
        id=[1, None, 5, 6],
        name=["abc", "a", "a", "a"],
        day=["2024-01-31", "2024-01-31", "2024-01-31", "2024-01-31"],
        price=[Decimal("1.5"), None, Decimal("1000.5"), Decimal("2.5")],
    )
    given = {"dbtable": "t", "fields_include": "id,name,day,price"}
    with pytest.raises(SinkError, match=r"orders-2 offset 11: .*column id is null"):
        write(database.plan(**given), 0, rows)
    write(database.plan(**given, errors_tolerance="all"), 0, rows)
    assert [row[0] for row in database.rows("SELECT * FROM t ORDER BY id")] == [1, 6]


def test_duckdb_refuses_a_value_while_its_record_is_known(tmp_path: Path) -> None:
    database = FileDatabase(tmp_path, "duckdb")
    database.run("CREATE TABLE t (id integer, day date, tags integer[])")
    rows = batch(id=[1, 2, 3], day=["2024-01-31", "never", "2024-02-01"], tags=[[1], [2], None])
    with pytest.raises(SinkError, match="never"):
        write(database.plan(dbtable="t"), 0, rows)
    write(database.plan(dbtable="t", errors_tolerance="all"), 0, rows)
    assert database.rows("SELECT id, tags FROM t ORDER BY id") == [(1, [1]), (3, None)]


def test_an_upsert_without_a_unique_key_and_a_view_are_refused(database: FileDatabase) -> None:
    database.run("CREATE TABLE t (id integer, name varchar(20))", "CREATE VIEW v AS SELECT * FROM t")
    with pytest.raises(SinkError, match="needs a unique key"):
        write(database.plan(**UPSERT), 0, batch(id=[1]))
    with pytest.raises(SinkError, match="it is a VIEW"):
        write(database.plan(dbtable="v"), 0, batch(id=[1]))
    database.run("CREATE UNIQUE INDEX i ON t (id)")
    write(database.plan(**UPSERT), 0, batch(id=[1]), batch(id=[1]))
    assert database.rows("SELECT id FROM t") == [(1,)]


def test_names_need_no_care(database: FileDatabase) -> None:
    write(database.plan(dbtable='"a.b%"', auto_create="true"), 0, batch(**{'x "y" %': [1], "select": [2]}))
    assert database.rows('SELECT * FROM "a.b%"') == [(1, 2)]


def test_options_that_files_do_not_have_are_refused(database: FileDatabase) -> None:
    with pytest.raises(OptionError, match="staged in files"):
        database.plan(dbtable="t", staging_schema="s")


def _hold(path: str, ready: Any, done: Any) -> None:
    with duckdb.connect(path):
        ready.set()
        done.wait()


@pytest.fixture
def held(tmp_path: Path) -> Iterator[FileDatabase]:
    """A DuckDB file that another process has open."""
    database = FileDatabase(tmp_path, "duckdb")
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    process = context.Process(target=_hold, args=(str(database.path), ready, done))
    process.start()
    ready.wait()
    yield database
    done.set()
    process.join()


def test_a_duckdb_file_that_another_process_has_open_is_named(held: FileDatabase) -> None:
    with pytest.raises(DatabaseUnreachableError, match="close the file in the other process"):
        held.plan(dbtable="t").target.prepare(QUERY)


def test_a_sqlite_file_that_is_locked_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.spark.connectors.sql.sinks.sqlite.BUSY_SECONDS", 0.01)
    database = FileDatabase(tmp_path, "sqlite")
    database.run("CREATE TABLE t (id integer)")
    plan = database.plan(dbtable="t")
    parts = stage(plan, 0, batch(id=[1]))
    with closing(sqlite3.connect(database.path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(SinkError, match="has one writer at a time"):
            plan.target.publish(BatchId(QUERY, 0), parts)
    plan.target.publish(BatchId(QUERY, 0), parts)
    assert database.rows("SELECT id FROM t") == [(1,)]


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_nested_json_is_stored_as_it_is_in_each_record(tmp_path: Path, kind: str) -> None:
    database = FileDatabase(tmp_path, kind)
    converters = {
        f"{part}.converter{more}": text for part in ("key", "value") for more, text in _WITHOUT_SCHEMAS.items()
    }
    plan = database.plan(**converters, auto_create="true", pk_mode="record_key", insert_mode="upsert")
    values = [b'{"x":{"a":1},"l":[{"a":1}]}', b'{"x":{"b":"z"},"l":[]}', b'{"x":{},"l":[{"b":2}]}']

    def part(first: int, found: list[bytes]) -> Any:
        return batch(
            topic=pa.array(["t"] * len(found)),
            partition=pa.array([0] * len(found), pa.int32()),
            offset=pa.array(range(first, first + len(found)), pa.int64()),
            key=pa.array([b'{"id":%d}' % (first + row) for row in range(len(found))], pa.binary()),
            value=pa.array(found, pa.binary()),
        )

    write(plan, 0, part(0, values[:2]), part(2, values[2:]))
    assert database.rows("SELECT x, l FROM t ORDER BY id") == [
        ('{"a":1}', '[{"a":1}]'),
        ('{"b":"z"}', "[]"),
        ("{}", '[{"b":2}]'),
    ]


_WITHOUT_SCHEMAS = {"": "JsonConverter", ".schemas.enable": "false"}
