"""Polling of SQLite and DuckDB by the readers that Spark calls: polls, replays, triggers, what is refused."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from barnabas.spark.connectors.capture.options import CaptureOptions, Output
from barnabas.spark.connectors.capture.output import CaptureOutput
from barnabas.spark.connectors.capture.ports import Connector
from barnabas.spark.connectors.capture.reader import CaptureBatchReader, CaptureStreamReader, parse
from barnabas.spark.connectors.events.envelope import HEADERS_TYPE
from barnabas.spark.connectors.polling.duckdb import DUCKDB
from barnabas.spark.connectors.polling.output import make_polled_output
from barnabas.spark.connectors.polling.postgres import MARKS, timeline_gap
from barnabas.spark.connectors.polling.sqlite import SQLITE, SqliteDatabase
from barnabas.spark.connectors.postgres.statements import SERVER, TIMELINE
from barnabas.spark.connectors.sql.polling import PolledTable
from barnabas.spark.errors import DataLossError, SparkSourceError
from barnabas.spark.identities import Marks
from barnabas.spark.records.types import spark_arrow

TIMES = {"mode": "timestamp+incrementing", "timestamp.column.name": "updated", "incrementing.column.name": "id"}
NUMBERS = {"mode": "incrementing", "incrementing.column.name": "id"}
CREATE = "CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT NOT NULL, updated TIMESTAMP NOT NULL)"
RECORDS = pa.schema(
    {
        "topic": pa.string(),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": HEADERS_TYPE,
        "timestamp": pa.timestamp("us", "UTC"),
    }
)


class Database:
    """A table of orders in a file."""

    def __init__(self, folder: Path, connector: Connector) -> None:
        self.connector = connector
        self.folder = folder
        self.path = folder / f"shop.{connector.name}"
        self.run(CREATE)

    def run(self, *statements: str) -> None:
        if self.connector is SQLITE:
            with closing(sqlite3.connect(self.path)) as session, session:
                for statement in statements:
                    session.execute(statement)
            return
        with duckdb.connect(str(self.path)) as connection:
            for statement in statements:
                connection.execute(statement)

    def insert(self, *ids: int, second: int = 0) -> None:
        rows = ", ".join(f"({one}, 'new', '2024-01-01 00:00:{second:02}.000')" for one in ids)
        self.run(f"INSERT INTO orders VALUES {rows}")

    def texts(self, options: dict[str, str]) -> dict[str, str]:
        return {
            "connection.url": f"jdbc:{self.connector.name}:{self.path}",
            "stagingLocation": str(self.folder / "staging"),
            "topic.prefix": "shop-",
            "poll.interval.ms": "0",
            "connection.attempts": "1",
            "output": "rows",
            **options,
        }


@pytest.fixture(params=[SQLITE, DUCKDB], ids=lambda connector: connector.name)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    return Database(tmp_path, request.param)


def readable(texts: dict[str, str], connector: Connector) -> tuple[CaptureOptions, CaptureOutput, Connector]:
    """The options of a query, and its output with the columns that the query has."""
    options = parse(texts, connector)
    if options.output is Output.RECORDS:
        return options, make_polled_output(options, RECORDS), connector
    source = connector.open(options)
    (table,) = source.read_tables()
    source.close()
    schema = pa.schema([pa.field(column.name, spark_arrow(column.type)) for column in table.columns])
    return options, make_polled_output(options, schema), connector


class Query:
    """What Spark does with a reader: offsets in a log, and the rows of each micro-batch."""

    def __init__(self, database: Database, **options: str) -> None:
        self._database = database
        self._texts = database.texts({name.replace("__", "."): value for name, value in options.items()})
        self.offsets: list[dict[str, Any]] = []
        self.restart()

    def restart(self) -> None:
        self.reader = CaptureStreamReader(*readable(self._texts, self._database.connector))

    @property
    def start(self) -> dict[str, Any]:
        return self.offsets[-1] if self.offsets else self.reader.initialOffset()

    def plan(self, limit: Any = None) -> dict[str, Any]:
        if not self.offsets:
            self.offsets.append(self.reader.latestOffset(self.start, limit or self.reader.getDefaultReadLimit()))
        return self.reader.latestOffset(self.start, limit or self.reader.getDefaultReadLimit())

    def rows(self, end: dict[str, Any]) -> list[dict[str, Any]]:
        tasks = self.reader.partitions(self.start, end)
        return [row for task in tasks for batch in self.reader.read(task) for row in batch.to_pylist()]

    def batch(self, limit: Any = None) -> list[dict[str, Any]]:
        end = self.plan(limit)
        rows = self.rows(end)
        self.offsets.append(end)
        return rows


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return [row["id"] for row in rows]


def test_new_and_changed_rows_come_once(database: Database) -> None:
    database.insert(1, 2)
    query = Query(database, **_named(TIMES))
    assert ids(query.batch()) == [1, 2]
    database.run("UPDATE orders SET state = 'paid', updated = '2024-01-01 00:00:05' WHERE id = 1")
    database.insert(3, second=4)
    assert [(row["id"], row["state"]) for row in query.batch()] == [(3, "new"), (1, "paid")]
    assert query.plan() == query.start


def test_a_planned_batch_is_replayed_with_the_rows_that_it_had(database: Database) -> None:
    database.insert(1, 2)
    query = Query(database, **_named(TIMES))
    end = query.plan()
    rows = query.rows(end)
    database.run(
        "UPDATE orders SET state = 'paid', updated = '2024-01-01 00:00:05' WHERE id = 1",
        "DELETE FROM orders WHERE id = 2",
    )
    query.restart()
    assert query.rows(end) == rows
    query.offsets.append(end)
    assert [(row["id"], row["state"]) for row in query.batch()] == [(1, "paid")]


def test_a_poll_that_was_not_planned_is_repeated(database: Database) -> None:
    database.insert(1)
    query = Query(database, **_named(NUMBERS))
    query.plan()
    database.insert(2)
    query.restart()
    assert ids(query.batch()) == [1, 2]
    query.plan()
    assert not list(database.folder.glob("staging/polls/*/*.arrow"))


def test_polls_have_batch_max_rows_and_trigger_available_now_reads_to_the_end(database: Database) -> None:
    database.insert(*range(10))
    query = Query(database, **_named(NUMBERS), batch__max__rows="4")
    assert [ids(query.batch()), ids(query.batch())] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    query.reader.prepareForTriggerAvailableNow()
    assert ids(query.batch()) == [8, 9]
    database.insert(11)
    assert query.batch() == []
    query.restart()
    assert ids(query.batch(ReadAllAvailable())) == [11]


def test_bulk_reads_everything_in_each_poll_and_micro_batches_divide_it(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.spark.connectors.capture.staging.STAGED_FILE_BYTES_MAX", 1)
    monkeypatch.setattr(f"barnabas.spark.connectors.polling.{database.connector.name}.ROWS_AT_ONCE", 2)
    database.insert(1, 2)
    database.run("CREATE TABLE more (id INTEGER)", "INSERT INTO more VALUES (3)")
    query = Query(database, mode="bulk", maxBytesPerTrigger="1", output="records")
    found = [query.batch(), query.batch()]
    assert [[record["topic"] for record in records] for records in found] == [["shop-more"], ["shop-orders"] * 2]
    assert len(query.batch()) == 1
    query.reader.prepareForTriggerAvailableNow()
    assert [len(query.batch()), len(query.batch()), len(query.batch()), len(query.batch())] == [2, 1, 2, 0]


def test_records_have_the_form_of_the_jdbc_source(database: Database) -> None:
    database.insert(1)
    query = Query(database, **_named(TIMES), output="records", table__whitelist="orders")
    (record,) = query.batch()
    assert (record["topic"], record["key"]) == ("shop-orders", None)
    value = json.loads(record["value"])
    assert value["payload"] == {"id": 1, "state": "new", "updated": 1_704_067_200_000}
    assert [(field["field"], field["optional"], field.get("name")) for field in value["schema"]["fields"]] == [
        ("id", False, None),
        ("state", False, None),
        ("updated", False, "org.apache.kafka.connect.data.Timestamp"),
    ]
    assert value["schema"]["name"] == "orders"


def test_a_query_is_polled_like_a_table(database: Database) -> None:
    database.insert(1, 2, 3)
    select = "SELECT id, id * 10 AS tens FROM orders WHERE id <> 2"
    query = Query(database, **_named(NUMBERS), query=select, output="records")
    records = query.batch()
    assert [record["topic"] for record in records] == ["shop-"] * 2
    assert [json.loads(record["value"])["payload"] for record in records] == [
        {"id": 1, "tens": 10},
        {"id": 3, "tens": 30},
    ]


def test_a_batch_query_reads_all_rows(database: Database) -> None:
    database.insert(1, 2)
    texts = database.texts({"mode": "bulk"})
    reader = CaptureBatchReader(*readable(texts, database.connector))
    rows = [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
    assert ids(rows) == [1, 2]


def test_rows_before_the_initial_time_are_left_out(database: Database) -> None:
    database.insert(1, second=1)
    database.insert(2, second=3)
    query = Query(database, **_named(TIMES), timestamp__initial="1704067202000")
    assert ids(query.batch()) == [2]
    query = Query(database, **_named(TIMES), timestamp__initial="-1", stagingLocation=str(database.folder / "other"))
    assert query.batch() == []
    database.run("INSERT INTO orders VALUES (4, 'new', '2999-01-01')")
    assert query.batch() == []  # rows of the future come when their time has passed


def test_a_table_that_is_created_later_is_found(database: Database) -> None:
    database.insert(1)
    query = Query(database, **_named(NUMBERS), table__poll__interval__ms="0", output="records")
    assert len(query.batch()) == 1
    database.run("CREATE TABLE later (id INTEGER PRIMARY KEY)", "INSERT INTO later VALUES (7)")
    assert [record["topic"] for record in query.batch()] == ["shop-later"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "incrementing"}, "mode=incrementing needs incrementing.column.name"),
        (NUMBERS | {"incrementing.column.name": "nr"}, "has no column nr, which incrementing.column.name names"),
        (NUMBERS | {"incrementing.column.name": "state"}, "whose values cannot increment"),
        (NUMBERS | {"table.whitelist": "order"}, "there is no table order, which table.whitelist names"),
        (NUMBERS | {"table.include.list": "x.*"}, "no table is selected: the database has"),
        (NUMBERS | {"timestamp.initial": "5"}, "does not use timestamp.initial"),
        (NUMBERS | {"poll.intervall.ms": "5"}, "did you mean poll.interval.ms?"),
        (NUMBERS | {"slot.name": "s"}, "polling needs no slot"),
        (NUMBERS | {"query": "SELECT 1", "table.whitelist": "orders"}, "leave table.whitelist out"),
        (NUMBERS | {"query": "SELECT nothing FROM orders"}, "reading "),
        (NUMBERS | {"connection.url": "jdbc:mysql://localhost/shop"}, "use the format of the database"),
        (NUMBERS | {"db.timezone": "Mars"}, "must be the name of a time zone"),
    ],
)
def test_what_cannot_be_polled_is_refused_with_what_to_do(
    database: Database, options: dict[str, str], message: str
) -> None:
    with pytest.raises(SparkSourceError, match=re.escape(message)):
        Query(database, **_named(options)).batch()


def test_a_column_that_allows_null_is_refused(database: Database) -> None:
    database.run("CREATE TABLE loose (id BIGINT, state TEXT)")
    with pytest.raises(SparkSourceError, match=r"the column id of (main\.)?loose allows null"):
        Query(database, **_named(NUMBERS), table__whitelist="loose").batch()
    database.run("INSERT INTO loose VALUES (1, 'a')")
    query = Query(database, **_named(NUMBERS), table__whitelist="loose", validate__non__null="false")
    assert ids(query.batch()) == [1]


def test_the_mode_of_a_query_cannot_change(database: Database) -> None:
    database.insert(1)
    query = Query(database, **_named(NUMBERS))
    query.batch()
    other = Query(database, **_named(TIMES))
    other.offsets = query.offsets
    with pytest.raises(SparkSourceError, match="was started with mode=incrementing"):
        other.plan()


@pytest.fixture
def locked(database: Database) -> Iterator[Database]:
    """A database that another connection is writing to."""
    if database.connector is SQLITE:
        with closing(sqlite3.connect(database.path, isolation_level=None)) as session:
            session.execute("BEGIN EXCLUSIVE")
            yield database
    else:
        with duckdb.connect(str(database.path)):
            yield database


def test_a_locked_file_is_reported_with_what_to_do(locked: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.spark.connectors.polling.sqlite.BUSY_SECONDS", 0.01)
    with pytest.raises(SparkSourceError, match=r"(journal_mode=WAL|lets one process write)"):
        Query(locked, **_named(NUMBERS))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    database = Database(tmp_path, SQLITE)
    database.path.unlink()
    with pytest.raises(SparkSourceError, match="there is no database file"):
        Query(database, **_named(NUMBERS))


def test_a_new_column_stops_a_query_of_rows_and_is_a_field_of_records(database: Database) -> None:
    database.insert(1)
    rows = Query(database, **_named(NUMBERS))
    records = Query(database, **_named(NUMBERS), output="records", stagingLocation=str(database.folder / "other"))
    rows.batch()
    records.batch()
    database.run("ALTER TABLE orders ADD COLUMN note TEXT", "INSERT INTO orders VALUES (2, 'new', '2024-01-01', 'x')")
    with pytest.raises(SparkSourceError, match="has a column note"):
        rows.batch()
    assert json.loads(records.batch()[0]["value"])["payload"]["note"] == "x"


def _named(options: dict[str, str]) -> dict[str, str]:
    return {name.replace(".", "__"): value for name, value in options.items()}


def test_rows_of_a_second_that_is_not_over_wait_for_the_next_poll(tmp_path: Path) -> None:
    database = Database(tmp_path, SQLITE)
    query = Query(database, **_named(TIMES))
    query.plan()
    database.run("INSERT INTO orders VALUES (2, 'new', datetime('now', '+1 second'))")
    found: list[int] = []
    while not found:
        found = ids(query.batch())
    ((is_over,),) = (
        sqlite3.connect(database.path).execute("SELECT max(updated) < datetime('now') FROM orders").fetchall()
    )
    assert (found, is_over) == ([2], 1)


# -- tables that are not what they were


def replace(database: Database) -> None:
    """Another table of the name; in DuckDB, another file, since nothing tells its tables apart."""
    if database.connector is DUCKDB:
        database.path.rename(database.path.with_suffix(".old"))
        database.run(CREATE)
    else:
        database.run("DROP TABLE orders", CREATE)
    database.insert(*range(1, 151), second=5)


def test_a_table_that_was_replaced_is_an_error_that_names_both(database: Database) -> None:
    query = Query(database, **_named(NUMBERS))
    database.insert(*range(1, 101))
    assert len(query.batch()) == 100
    replace(database)
    query.restart()
    with pytest.raises(DataLossError, match=r"the table .*orders was replaced: the position belongs to the one with"):
        query.plan()
    query = Query(database, **_named(NUMBERS), failOnDataLoss="false")
    query.offsets = [json.loads(json.dumps(offset)) for offset in _after(database)]
    assert len(query.batch()) == 150
    database.insert(151)
    assert ids(query.batch()) == [151]


def _after(database: Database) -> list[dict[str, Any]]:
    """The offsets of a query that has read the table that was replaced."""
    marks = {"file": "1-1", "schema": "0", "oid": "0", "row": json.dumps({"id": "ab", "state": "cd"})}
    name = "orders" if database.connector is SQLITE else "main.orders"
    position = {"mode": "incrementing", "number": 1, "tables": {name: {"incrementing": 100}}, "marks": {name: marks}}
    return [{"snapshot": {"id": "s", "read": 0, "left": 0}, "position": position}]


def test_a_table_that_was_rewritten_is_read_on(database: Database) -> None:
    query = Query(database, **_named(NUMBERS))
    database.insert(*range(1, 101))
    query.batch()
    database.run("CREATE TABLE other (id INTEGER)", "DROP TABLE other")
    copy = database.path.with_name("copy")
    shutil.copy(database.path, copy)
    copy.replace(database.path)  # another file with the same rows
    database.insert(101, 102)
    query.restart()
    assert ids(query.batch()) == [101, 102]


def test_an_emptied_table_whose_numbers_go_on_is_read_on(database: Database) -> None:
    query = Query(database, **_named(NUMBERS))
    database.insert(*range(1, 101))
    query.batch()
    database.run("DROP TABLE orders", CREATE)
    query.restart()
    assert query.batch() == []
    database.insert(101)
    assert ids(query.batch()) == [101]


def test_marks_are_adopted_once(database: Database) -> None:
    query = Query(database, **_named(NUMBERS))
    database.insert(1)
    query.batch()
    position = query.offsets[-1]["position"]
    query.offsets[-1] = {**query.offsets[-1], "position": {k: v for k, v in position.items() if k != "marks"}}
    query.restart()
    assert query.batch() == []
    (marks,) = query.offsets[-1]["position"]["marks"].values()
    assert set(marks) - {"schema"} == {"file", "row", "count"}
    assert query.plan() == query.offsets[-1]


def test_a_file_that_was_replaced_while_the_query_runs_is_an_error(database: Database) -> None:
    query = Query(database, **_named(NUMBERS))
    database.insert(*range(1, 101))
    query.batch()
    database.path.rename(database.path.with_suffix(".old"))
    database.run(CREATE)
    database.insert(*range(1, 151), second=5)
    with pytest.raises(DataLossError, match=r"orders was replaced: the position belongs to the one with file "):
        query.plan()


@pytest.mark.parametrize("options", [{}, {"query": "SELECT * FROM orders WHERE id > 0"}], ids=["table", "query"])
def test_an_older_copy_of_the_file_with_other_rows_is_an_error(database: Database, options: dict[str, str]) -> None:
    query = Query(database, **_named(NUMBERS), **options)
    database.insert(*range(1, 51))
    copy = database.path.read_bytes()
    database.insert(*range(51, 101))
    assert len(query.batch()) == 100
    database.insert(101)
    assert len(query.batch()) == 1
    database.path.write_bytes(copy)  # the same file, as far as its directory knows
    database.insert(*range(51, 121), second=5)
    query.restart()
    with pytest.raises(DataLossError, match=r"orders|the query .* an older copy"):
        query.plan()


def test_a_query_over_a_file_that_was_replaced_is_an_error(database: Database) -> None:
    query = Query(database, **_named(NUMBERS), query="SELECT * FROM orders WHERE id > 0")
    database.insert(*range(1, 101))
    query.batch()
    database.path.rename(database.path.with_suffix(".old"))
    database.run(CREATE)
    database.insert(*range(1, 151), second=5)
    query.restart()
    with pytest.raises(DataLossError, match=r"was replaced: the position belongs to the one with file "):
        query.plan()


def test_a_mark_of_postgresql_has_the_timeline_that_capture_has() -> None:
    """That of the last checkpoint would be the old one for minutes after a promotion."""
    assert TIMELINE in SERVER.sql
    assert f"ELSE {TIMELINE} END::text" in MARKS


class LoggedDatabase(SqliteDatabase):
    """SQLite with the marks of a table of PostgreSQL, whose server is on `timeline`, which left 1 at 0/2000."""

    timeline, lsn = "1", "0/2000"

    def marks(self, table: PolledTable) -> Marks:
        return {"timeline": self.timeline, "oid": "1", "file": "1"}

    def moment(self, table: PolledTable) -> Marks:
        return {"lsn": self.lsn}

    def gap(self, stored: Marks, found: Marks) -> str | None:
        return timeline_gap(stored, found, lambda timeline: ((1, 0x2000),), lambda: "0/4000", "reader")


@pytest.mark.parametrize(("lsn", "goes_on"), [("0/2000", True), ("0/2001", False)])
def test_a_promoted_standby_with_all_that_was_read_is_read_on_whatever_became_of_the_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lsn: str, goes_on: bool
) -> None:
    monkeypatch.setattr("barnabas.spark.connectors.polling.sqlite.SqliteDatabase", LoggedDatabase)
    monkeypatch.setattr(LoggedDatabase, "lsn", lsn)
    database = Database(tmp_path, SQLITE)
    query = Query(database, **_named(NUMBERS))
    database.insert(1, 2)
    assert ids(query.batch()) == [1, 2]
    monkeypatch.setattr(LoggedDatabase, "timeline", "2")
    monkeypatch.setattr(LoggedDatabase, "lsn", "0/3000")
    database.run("UPDATE orders SET state = 'sent' WHERE id = 2")
    database.insert(3)
    query.restart()
    if not goes_on:
        with pytest.raises(DataLossError, match=r"has read up to 0/2001 .* the server left that timeline at 0/2000"):
            query.plan()
        return
    assert ids(query.batch()) == [3]
    (marks,) = query.offsets[-1]["position"]["marks"].values()
    assert (marks["timeline"], marks["lsn"]) == ("2", "0/3000")
