"""Polling: the SQL of each database, and its rows on those that run inside the test."""

from __future__ import annotations

import sqlite3
from typing import Any

import duckdb
import msgspec
import pytest

from barnabas.spark.connectors.sql.dialects import Dialect, Statement, quote_for_display, quote_identifier
from barnabas.spark.connectors.sql.polling import (
    START,
    IncrementingLimit,
    Observation,
    PolledTable,
    PollingMode,
    Position,
    TimeForm,
    check_table,
    count_nulls,
    end_position,
    read_all,
    read_end,
    read_largest,
    read_limit,
    read_rows,
)
from barnabas.spark.errors import OptionError

INCREMENTING = PollingMode.INCREMENTING
TIMESTAMP = PollingMode.TIMESTAMP
BOTH = PollingMode.TIMESTAMP_INCREMENTING
FORMS = {
    Dialect.POSTGRES: TimeForm.NATIVE,
    Dialect.MYSQL: TimeForm.NATIVE,
    Dialect.SQLITE: TimeForm.ISO_TEXT,
    Dialect.DUCKDB: TimeForm.TIMESTAMP,
}


def table(dialect: Dialect, mode: PollingMode, name: str = "t", **options: Any) -> PolledTable:
    number = None if mode is TIMESTAMP else "id"
    times = () if mode is INCREMENTING else ("at",)
    one = PolledTable(dialect, ("main", name), mode, number, times, FORMS[dialect])
    one = msgspec.structs.replace(one, **options)
    check_table(one)
    return one


@pytest.mark.parametrize(
    ("dialect", "name", "display", "in_statement"),
    [
        (Dialect.POSTGRES, 'a"b%', '"a""b%"', '"a""b%%"'),
        (Dialect.MYSQL, "a`b%", "`a``b%`", "`a``b%%`"),
        (Dialect.SQLITE, 'a"b%', '"a""b%"', '"a""b%"'),
        (Dialect.DUCKDB, "select", '"select"', '"select"'),
    ],
)
def test_an_identifier_is_quoted_as_the_database_and_its_driver_read_it(
    dialect: Dialect, name: str, display: str, in_statement: str
) -> None:
    assert quote_for_display(dialect, name) == display
    assert quote_identifier(dialect, name) == in_statement


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_a_name_that_no_object_can_have_is_refused(name: str) -> None:
    with pytest.raises(OptionError):
        quote_identifier(Dialect.SQLITE, name)


def test_the_rows_of_incrementing_are_those_between_two_numbers() -> None:
    mysql = table(Dialect.MYSQL, INCREMENTING)
    assert read_rows(mysql, START, Position(None, 9)) == Statement(
        "SELECT * FROM `main`.`t` WHERE `id` <= %s ORDER BY `id`", (9,)
    )
    assert read_rows(mysql, Position(None, 5), Position(None, 9), "`id`, `50%%`") == Statement(
        "SELECT `id`, `50%%` FROM `main`.`t` WHERE `id` > %s AND `id` <= %s ORDER BY `id`", (5, 9)
    )
    assert read_end(mysql, Position(None, 5), 20, 100) == Statement(
        "SELECT c0 FROM (SELECT `id` AS c0 FROM `main`.`t` WHERE `id` > %s AND `id` <= %s ORDER BY `id` LIMIT 100)"
        " AS b ORDER BY c0 DESC LIMIT 1",
        (5, 20),
    )


def test_a_query_is_read_as_a_table_is() -> None:
    mysql = table(Dialect.MYSQL, INCREMENTING, path=(), query="SELECT id % 2 AS id FROM t; ")
    assert read_rows(mysql, START, Position(None, 9)) == Statement(
        "SELECT * FROM (SELECT id %% 2 AS id FROM t\n) AS polled WHERE `id` <= %s ORDER BY `id`", (9,)
    )
    assert read_all(mysql, "`id`") == Statement("SELECT `id` FROM (SELECT id %% 2 AS id FROM t\n) AS polled")


def test_the_rows_of_timestamp_and_incrementing_are_those_between_two_pairs() -> None:
    postgres = table(Dialect.POSTGRES, BOTH, timestamp_columns=("updated", "created"))
    statement = read_rows(postgres, Position("t1", 1), Position("t2", 2))
    time = 'COALESCE("updated", "created")'
    assert statement == Statement(
        f'SELECT * FROM "main"."t" WHERE ({time} > %s OR ({time} = %s AND "id" > %s))'
        f' AND ({time} < %s OR ({time} = %s AND "id" <= %s)) ORDER BY {time}, "id"',
        ("t1", "t1", 1, "t2", "t2", 2),
    )
    assert read_end(postgres, START, "limit", 7) == Statement(
        f'SELECT c0::text, c1 FROM (SELECT {time} AS c0, "id" AS c1 FROM "main"."t" WHERE {time} < %s'
        f' ORDER BY {time}, "id" LIMIT 7) AS b ORDER BY c0 DESC, c1 DESC LIMIT 1',
        ("limit",),
    )


def test_the_limit_of_postgresql_is_below_the_oldest_transaction() -> None:
    statement = read_limit(table(Dialect.POSTGRES, TIMESTAMP, delay_ms=500))
    assert "min(xact_start)" in statement.sql
    assert statement.parameters == (500,)
    assert "pg_snapshot_xmin" in read_largest(table(Dialect.POSTGRES, INCREMENTING)).sql
    assert read_limit(table(Dialect.MYSQL, TIMESTAMP, delay_ms=500)).parameters == (500_000,)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"incrementing_column": None}, "needs incrementing.column.name"),
        ({"mode": TIMESTAMP}, "does not use incrementing.column.name"),
        ({"timestamp_columns": ()}, "needs timestamp.column.name"),
        ({"mode": INCREMENTING}, "does not use timestamp.column.name"),
        ({"time_form": TimeForm.NATIVE}, "times of sqlite are stored as text, seconds, milliseconds"),
        ({"delay_ms": -1}, "it cannot be negative"),
    ],
)
def test_columns_that_do_not_fit_the_mode_are_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        check_table(msgspec.structs.replace(table(Dialect.SQLITE, BOTH), **changes))


def test_a_position_of_another_mode_is_refused() -> None:
    with pytest.raises(OptionError, match="does not belong to mode=incrementing"):
        read_rows(table(Dialect.SQLITE, INCREMENTING), Position("t", None), Position(None, 1))
    with pytest.raises(OptionError, match=r"batch.max.rows is 0"):
        read_end(table(Dialect.SQLITE, INCREMENTING), START, 1, 0)


def test_a_position_survives_json() -> None:
    for position in (START, Position("2024-01-01 00:00:00.5", 7), Position(12, None), Position(None, 1 << 60)):
        assert msgspec.json.decode(msgspec.json.encode(position), type=Position) == position


class Database:
    """SQLite or DuckDB in memory, with a table whose columns have awkward names."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self._connection: Any = sqlite3.connect(":memory:") if dialect is Dialect.SQLITE else duckdb.connect()
        self._schema = "main"
        self.run(Statement('CREATE TABLE "order" ("a""t" TIMESTAMP, "%s" BIGINT)'))

    def run(self, statement: Statement) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._connection.execute(statement.sql, statement.parameters).fetchall()
        return rows

    def insert(self, *rows: tuple[str | None, int]) -> None:
        for row in rows:
            self._connection.execute('INSERT INTO "order" VALUES (?, ?)', row)

    def table(self, mode: PollingMode, **options: Any) -> PolledTable:
        number = {} if mode is TIMESTAMP else {"incrementing_column": "%s"}
        times = {} if mode is INCREMENTING else {"timestamp_columns": ('a"t',)}
        return table(self.dialect, mode, "order", **(number | times | options))

    def poll(self, polled: PolledTable, start: Position, limit: Any, rows_max: int) -> tuple[list[int], Position]:
        found = self.run(read_end(polled, start, limit, rows_max))
        end = end_position(polled, start, found[0] if found else None)
        if end == start:
            return [], end
        return [row[0] for row in self.run(read_rows(polled, start, end, '"%s"'))], end


@pytest.fixture(params=[Dialect.SQLITE, Dialect.DUCKDB])
def database(request: pytest.FixtureRequest) -> Database:
    return Database(request.param)


def time(second: int) -> str:
    return f"2024-01-01 00:00:{second:02}.500"


def test_every_row_is_in_one_batch(database: Database) -> None:
    rows = [(time(number // 3), number) for number in range(20)]
    database.insert(*reversed(rows))
    for mode, limit in ((INCREMENTING, 19), (TIMESTAMP, time(59)), (BOTH, time(59))):
        polled = database.table(mode)
        for rows_max in (1, 2, 7, 100):
            position, numbers = START, []
            while True:
                batch, end = database.poll(polled, position, limit, rows_max)
                if end == position:
                    break
                assert len(batch) <= rows_max + 2 * (mode is TIMESTAMP)
                again = [row[0] for row in database.run(read_rows(polled, position, end, '"%s"'))]
                assert again == batch
                numbers += batch
                position = end
            assert sorted(numbers) == list(range(20)), (mode, rows_max)
            assert database.poll(polled, position, limit, rows_max) == ([], position)


def test_an_updated_row_comes_again_and_rows_at_the_limit_wait(database: Database) -> None:
    database.insert((time(1), 1), (time(2), 2), (time(3), 3))
    polled = database.table(BOTH)
    batch, end = database.poll(polled, START, time(3), 100)
    assert batch == [1, 2]
    database.run(Statement('UPDATE "order" SET "a""t" = ? WHERE "%s" = 1', (time(5),)))
    assert database.poll(polled, end, time(9), 100)[0] == [3, 1]


def test_rows_without_a_time_are_counted(database: Database) -> None:
    database.insert((None, 1), (time(1), 2))
    assert database.run(count_nulls(database.table(BOTH))) == [(1,)]


def test_the_limit_is_the_clock_of_the_database_less_the_delay(database: Database) -> None:
    database.insert(("2020-01-01 00:00:00.000", 1), ("2999-01-01 00:00:00.000", 2))
    polled = database.table(TIMESTAMP, delay_ms=1500)
    ((limit,),) = database.run(read_limit(polled))
    assert database.poll(polled, START, limit, 10)[0] == [1]
    ((earlier,),) = database.run(read_limit(database.table(TIMESTAMP, delay_ms=3_600_000)))
    assert earlier < limit


def test_times_of_sqlite_can_be_numbers() -> None:
    database = Database(Dialect.SQLITE)
    limits = []
    for form in (TimeForm.SECONDS, TimeForm.MILLISECONDS):
        ((limit,),) = database.run(read_limit(database.table(TIMESTAMP, time_form=form, delay_ms=1000)))
        assert isinstance(limit, int)
        limits.append(limit)
    assert abs(limits[1] - limits[0] * 1000) < 60_000
    assert limits[0] > 1_700_000_000


def test_the_limit_of_numbers_is_the_largest_one_without_a_delay() -> None:
    limit = IncrementingLimit(0)
    assert limit.observe(Observation(0, None)) is None
    assert limit.observe(Observation(1, 5)) == 5
    assert limit.observe(Observation(2, 9)) == 9


def test_the_limit_of_numbers_waits_for_the_delay() -> None:
    limit = IncrementingLimit(100)
    assert limit.observe(Observation(0, 5)) is None
    assert limit.observe(Observation(99, 7)) is None
    assert limit.observe(Observation(100, 8)) == 5
    assert limit.observe(Observation(199, 9)) == 5
    assert limit.observe(Observation(200, 9)) == 8


def test_the_limit_of_numbers_waits_for_the_transactions_of_the_next_observation() -> None:
    limit = IncrementingLimit(0)
    assert limit.observe(Observation(0, 5, 100, 100)) is None
    # Transaction 100 took the number 4 before the first observation and its xid after it.
    assert limit.observe(Observation(1, 5, 100, 101)) is None
    assert limit.observe(Observation(2, 7, 100, 102)) is None
    assert limit.observe(Observation(3, 7, 101, 102)) == 5
    assert limit.observe(Observation(4, 7, 102, 102)) == 7
