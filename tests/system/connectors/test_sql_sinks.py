"""Rows into databases without Spark: upserts, deletes, repeated micro-batches, lost answers, refused values."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from barnabas.core.errors import BarnabasError
from barnabas.spark.connectors.sinking.ports import BatchId
from barnabas.spark.connectors.sinking.writer import SinkPlan
from barnabas.spark.connectors.sql.sinks.errors import DatabaseSinkError
from barnabas.spark.errors import BatchConflictError, DeliveryError, SinkError
from tests.checkpoint_files import QueryCheckpoint
from tests.system.connectors.sql_databases import (
    QUERY,
    MariaDbSinkDatabase,
    PostgresSinkDatabase,
    SinkDatabase,
    losing_proxy,
    stage,
    write,
)

pytestmark = pytest.mark.system

OTHER_QUERY = "6f1e3c8a-0000-4000-8000-000000000002"
UPSERT = {"insert_mode": "upsert", "pk_fields": "id", "dbtable": "t"}


DATABASES = {"postgres": PostgresSinkDatabase, "mariadb": MariaDbSinkDatabase}


@pytest.fixture(params=list(DATABASES))
def database(request: pytest.FixtureRequest) -> Iterator[SinkDatabase]:
    opened = DATABASES[request.param](request.getfixturevalue(request.param))
    opened.open()
    yield opened
    opened.connection.close()


def batch(**columns: Any) -> Any:
    return pa.RecordBatch.from_pydict(columns)


def changes(*rows: tuple[int, str | None, str]) -> Any:
    """(id, name, op)"""
    ids, names, ops = zip(*rows, strict=True)
    return batch(id=pa.array(ids, pa.int32()), name=pa.array(names, pa.string()), __op=pa.array(ops))


def test_the_last_row_of_each_key_counts_across_tasks(database: SinkDatabase) -> None:
    database.run("CREATE TABLE t (id integer PRIMARY KEY, name varchar(20), other integer DEFAULT 7)")
    plan = database.plan(**UPSERT, delete_enabled="true")
    write(plan, 0, changes((1, "a", "c"), (2, "b", "c"), (3, "c", "c"), (1, "a2", "u")), changes((2, "b2", "u")))
    assert database.rows("SELECT * FROM t ORDER BY id") == [(1, "a2", 7), (2, "b2", 7), (3, "c", 7)]
    database.run("UPDATE t SET other = 8")
    # A row that is deleted and inserted again has no values of columns that the rows do not have.
    write(plan, 1, changes((1, None, "d"), (3, None, "d"), (3, "again", "c"), (4, "d", "c"), (2, "b3", "u")))
    assert database.rows("SELECT * FROM t ORDER BY id") == [(2, "b3", 8), (3, "again", 7), (4, "d", 7)]
    assert database.rows("SELECT query_id, batch_id FROM barnabas_ledger") == [(QUERY, 1)]
    assert database.stages() == []


def test_a_column_that_was_not_received_keeps_its_value(database: SinkDatabase) -> None:
    database.run("CREATE TABLE t (id integer PRIMARY KEY, name varchar(20) NOT NULL, text varchar(40))")
    plan = database.plan(**UPSERT)
    lost = "__debezium_unavailable_value"
    rows = batch(id=[1, 2, 1, 1, 2], name=["a", "b", lost, "a3", lost], text=["x", "y", "x2", lost, "y2"])
    write(plan, 0, rows)
    assert database.rows("SELECT * FROM t ORDER BY id") == [(1, "a3", "x2"), (2, "b", "y2")]
    # A row without a value for a column that needs one can change a row, and cannot become one.
    write(plan, 1, batch(id=[2], name=[lost], text=["y3"]))
    assert database.rows("SELECT text FROM t WHERE id = 2") == [("y3",)]
    with pytest.raises(
        SinkError, match=r"key \(9,\) is new to the table, and its source did not send its value of name"
    ):
        write(plan, 2, batch(id=[9], name=[lost], text=["z"]))
    with pytest.raises(SinkError, match=r"key \(9,\) is new, and has no value for the column name.*Run: ALTER TABLE"):
        write(plan, 2, batch(id=[9], text=["z"]))
    assert database.rows("SELECT count(*) FROM t") == [(2,)]


def test_update_changes_rows_and_insert_adds_them(database: SinkDatabase) -> None:
    database.run("CREATE TABLE t (id integer, name varchar(20))")
    write(database.plan(dbtable="t"), 0, batch(id=[1, 1], name=["a", "b"]), batch(id=[2], name=["c"]))
    assert database.rows("SELECT * FROM t") == [(1, "a"), (1, "b"), (2, "c")]
    update = database.plan(dbtable="t", insert_mode="update", pk_fields="id")
    write(update, 1, batch(id=[2, 3, 2], name=["x", "y", "z"]))
    assert database.rows("SELECT * FROM t WHERE id > 1") == [(2, "z")]


def test_a_repeated_batch_is_not_written_again_and_an_old_one_is_refused(database: SinkDatabase) -> None:
    database.run("CREATE TABLE t (id integer)")
    plan = database.plan(dbtable="t")
    write(plan, 0, batch(id=[1]))
    write(plan, 1, batch(id=[2]))
    write(plan, 1, batch(id=[3]), batch(id=[4]))  # the same micro-batch, with other rows in each task
    assert database.rows("SELECT id FROM t ORDER BY id") == [(1,), (2,)]
    with pytest.raises(DeliveryError, match="ledger has micro-batch 1"):
        write(plan, 0, batch(id=[5]))
    assert database.rows("SELECT count(*) FROM t") == [(2,)]
    plan.target.prepare(QUERY)
    assert database.stages() == []


def test_the_number_of_a_restored_checkpoint_stands_for_other_rows(database: SinkDatabase, tmp_path: Path) -> None:
    database.run("CREATE TABLE t (id integer)")
    # The ledger of an earlier release has no identities.
    database.run(
        "CREATE TABLE barnabas_ledger (query_id varchar(200) NOT NULL PRIMARY KEY, batch_id bigint NOT NULL,"
        f" published_at {'timestamptz' if database.format == 'barnabas.postgres' else 'datetime(6)'} NOT NULL)"
    )
    plan = database.plan(dbtable="t")
    checkpoint = QueryCheckpoint(tmp_path / "checkpoint")
    for number in (0, 1):
        checkpoint.plan(number, number + 1)
        write(plan, number, batch(id=[number + 1]), history=checkpoint.history())
    write(plan, 1, batch(id=[2]), history=checkpoint.history())  # repeated
    checkpoint.plan(1, 4, run=1)
    with pytest.raises(BatchConflictError, match="pipelines repair"):
        write(plan, 1, batch(id=[2, 3, 4]), history=checkpoint.history())
    assert database.rows("SELECT id FROM t ORDER BY id") == [(1,), (2,)]
    checkpoint.history().apply_again()
    write(plan, 1, batch(id=[2, 3, 4]), history=checkpoint.history())
    write(plan, 1, batch(id=[2, 3, 4]), history=checkpoint.history())
    assert database.rows("SELECT id FROM t ORDER BY id") == [(1,), (2,), (2,), (3,), (4,)]


def test_a_lost_answer_to_the_commit_does_not_write_twice(database: SinkDatabase) -> None:
    database.run("CREATE TABLE t (id integer)")
    with losing_proxy(database.server.port) as proxy:
        plan = database.plan(proxy.port, dbtable="t")
        parts = stage(plan, 0, [[batch(id=[1, 2])]])
        proxy.arm()
        plan.target.publish(BatchId(QUERY, 0), parts)
        assert proxy.lost == 1
    assert database.rows("SELECT id FROM t ORDER BY id") == [(1,), (2,)]
    assert database.stages() == []


def test_drivers_that_publish_at_the_same_time_write_once(database: SinkDatabase) -> None:
    database.run("CREATE TABLE t (id integer)")
    plan = database.plan(dbtable="t")
    plan.target.prepare(QUERY)
    staged = stage(plan, 0, [[batch(id=[1])]])
    second = [part for number in (1, 2) for part in _stage_only(plan, number)]
    threads = [
        threading.Thread(target=plan.target.publish, args=(BatchId(QUERY, 0), parts)) for parts in (staged, second)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert database.rows("SELECT count(*) FROM t") in ([(1,)], [(2,)])
    assert len(set(database.rows("SELECT id FROM t"))) == 1


def _stage_only(plan: SinkPlan, task: int) -> list[Any]:
    from barnabas.spark.connectors.sinking.ports import AttemptId
    from barnabas.spark.connectors.sinking.writer import stage_rows

    return list(stage_rows(iter([batch(id=[7])]), plan, AttemptId(QUERY, "other", 0, task, 0)).parts)


def test_queries_that_begin_at_the_same_time_share_a_ledger(database: SinkDatabase) -> None:
    plan = database.plan(dbtable="t")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(plan.target.prepare, [QUERY, OTHER_QUERY, None, None]))
    assert database.rows("SELECT count(*) FROM barnabas_ledger") == [(0,)]


def test_stages_of_dead_attempts_are_dropped_and_those_of_other_queries_stay(database: SinkDatabase) -> None:
    database.run("CREATE TABLE t (id integer)")
    plan = database.plan(dbtable="t")
    stage(plan, 0, [[batch(id=[1])]])  # a driver that died
    other = stage(plan, 0, [[batch(id=[2])]], OTHER_QUERY)
    old = f"barnabas_j_{'0' * 32}_0000000100000000"
    database.run(f"CREATE TABLE {old} (id integer)")
    database.run(f"CREATE TABLE barnabas_j_{'0' * 32}_fffffff000000000 (id integer)")  # a job that runs
    assert len(database.stages()) == 4
    write(plan, 0, batch(id=[3]))
    assert len(database.stages()) == 2
    plan.target.publish(BatchId(OTHER_QUERY, 0), other)
    assert database.rows("SELECT id FROM t ORDER BY id") == [(2,), (3,)]


def test_a_stage_that_was_dropped_or_has_lost_rows_is_an_error(database: SinkDatabase) -> None:
    database.run("CREATE TABLE t (id integer)")
    plan = database.plan(dbtable="t")
    parts = stage(plan, 0, [[batch(id=[1])], [batch(id=[2])]])
    database.run(f"DELETE FROM {database.stages()[0]}")
    with pytest.raises(DatabaseSinkError, match="0 of 1 rows"):
        plan.target.publish(BatchId(QUERY, 0), parts)
    plan.target.discard(parts)
    with pytest.raises(DatabaseSinkError, match="two run at the same time"):
        plan.target.publish(BatchId(QUERY, 0), parts)
    assert database.rows("SELECT count(*) FROM t") == [(0,)]


def test_tables_are_created_and_get_new_columns(database: SinkDatabase) -> None:
    rows = batch(id=[1], name=["a"])
    with pytest.raises(DatabaseSinkError, match="CREATE TABLE IF NOT EXISTS") as caught:
        write(database.plan(**UPSERT), 0, rows)
    assert "auto.create=true" in str(caught.value)
    create = database.plan(**UPSERT, auto_create="true")
    write(create, 0, rows, batch(id=[2], name=["b"]))
    more = batch(id=[2], name=["b2"], price=pa.array([Decimal("1.50")], pa.decimal128(10, 2)))
    with pytest.raises(DatabaseSinkError, match=r"Run: ALTER TABLE .* ADD COLUMN .*price") as caught:
        write(create, 1, more)
    evolve = database.plan(**UPSERT, auto_evolve="true")
    write(evolve, 1, more, batch(id=[3], name=["c"]))
    found = database.rows("SELECT id, name, price FROM t ORDER BY id")
    assert found == [(1, "a", None), (2, "b2", Decimal("1.50")), (3, "c", None)]


def test_values_that_do_not_fit_are_named_or_left_out(database: SinkDatabase) -> None:
    database.run("CREATE TABLE t (id smallint NOT NULL, name varchar(3), day date, price decimal(5, 2))")
    rows = batch(
        topic=["orders"] * 6,
        partition=pa.array([2] * 6, pa.int32()),
        offset=pa.array(range(10, 16), pa.int64()),
        id=[1, 2, 70000, None, 5, 6],
        name=["abc", "abcd", "a", "a", "a", "a"],
        day=["2024-01-31", "2024-01-31", "2024-01-31", "2024-01-31", "never", "2024-01-31"],
        price=[Decimal("1.5"), None, None, None, None, Decimal("1000.5")],
    )
    given = {"dbtable": "t", "fields_include": "id,name,day,price"}
    with pytest.raises(SinkError, match=r"orders-2 offset 11: .*column name .*more than 3 characters"):
        write(database.plan(**given), 0, rows)
    write(database.plan(**given, errors_tolerance="all"), 0, rows)
    assert database.rows("SELECT * FROM t") == [(1, "abc", datetime.date(2024, 1, 31), Decimal("1.50"))]


def test_an_upsert_without_a_unique_key_is_refused(database: SinkDatabase) -> None:
    database.run("CREATE TABLE t (id integer, code integer PRIMARY KEY)")
    with pytest.raises(DatabaseSinkError, match=r"needs a unique key on \(id\).*ADD UNIQUE"):
        write(database.plan(**UPSERT), 0, batch(id=[1], code=[1]))
    with pytest.raises(DatabaseSinkError, match=r"code.*is NOT NULL and has no default"):
        write(database.plan(dbtable="t"), 0, batch(id=[1]))


def test_rows_that_break_a_constraint_name_it(database: SinkDatabase) -> None:
    database.run("CREATE TABLE t (id integer PRIMARY KEY)")
    plan = database.plan(dbtable="t")
    with pytest.raises(BarnabasError, match=r"insert.mode=upsert"):
        write(plan, 0, batch(id=[1, 1]))
    assert database.rows("SELECT count(*) FROM t") == [(0,)]


def test_names_need_no_care(database: SinkDatabase) -> None:
    plan = database.plan(dbtable="odd % name", pk_fields="Key%s", insert_mode="upsert", auto_create="true")
    odd = pa.RecordBatch.from_arrays([pa.array([1]), pa.array(["%s it's"])], ["Key%s", 'a "b` c'])
    write(plan, 0, odd)
    write(plan, 1, odd)
    (count,) = database.rows("SELECT count(*) FROM information_schema.tables WHERE table_name = 'odd % name'")
    assert count == (1,)
