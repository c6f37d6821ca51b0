"""Machine: reads a table or query again and again by its own columns: an increasing number, a time of change, or both.

The upper end of a batch is chosen before its rows are read, and is part of its position. So a replay asks for the same
range, and a row belongs to one batch. One poll is, in this order, each in a transaction of its own:

    1. `read_limit`: up to where the rows are final; for `incrementing` see `IncrementingLimit`
    2. `read_end`: the position of the last row of the batch
    3. `read_rows`: the rows after the start, up to and including the end

What the modes miss, on every database: deleted rows; `incrementing`: updates; `timestamp`: rows without a time, and
changes that do not set the time. Rows that are committed late are the reason for the limit. On PostgreSQL it lies
below the oldest running transaction. So no row is missed whose time is now(), or whose number comes from a sequence
without CACHE when the row is inserted. On other databases the limit is a delay, which has to be longer than
transactions are. In the modes with a time, a row that changes between a batch and its replay is missing in the
replay; it comes in a later batch with its new values.

The session's time zone is that of the columns without a zone (`db.timezone`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from barnabas.spark.connectors.sql.dialects import Dialect, Statement, placeholder, quote_identifier, quote_table
from barnabas.spark.errors import OptionError


class PollingMode(StrEnum):
    """Connect's `mode`. BULK reads everything in each poll (`read_all`), and has neither limits nor positions."""

    BULK = "bulk"
    INCREMENTING = "incrementing"
    TIMESTAMP = "timestamp"
    TIMESTAMP_INCREMENTING = "timestamp+incrementing"


class TimeForm(StrEnum):
    """How times are stored. PostgreSQL and MySQL have types of their own; there it is NATIVE."""

    NATIVE = "native"
    ISO_TEXT = "text"  # SQLite: 2024-01-31 12:00:00.000, in UTC
    SECONDS = "seconds"  # SQLite: since 1970
    MILLISECONDS = "milliseconds"  # SQLite: since 1970
    TIMESTAMP = "TIMESTAMP"  # DuckDB
    TIMESTAMPTZ = "TIMESTAMPTZ"  # DuckDB


TIME_FORMS: Final = {
    Dialect.POSTGRES: (TimeForm.NATIVE,),
    Dialect.MYSQL: (TimeForm.NATIVE,),
    Dialect.SQLITE: (TimeForm.ISO_TEXT, TimeForm.SECONDS, TimeForm.MILLISECONDS),
    Dialect.DUCKDB: (TimeForm.TIMESTAMP, TimeForm.TIMESTAMPTZ),
}
"""The forms that the times of a database can have."""


class PolledTable(Struct, frozen=True):
    """What is polled. `path` is the table's name, after its schema or database if it has one; a `query` has none.

    `timestamp_columns` are read as the first of them that is not null. `delay_ms` is how old a row has to be, on top of
    what the database can say about running transactions.
    """

    dialect: Dialect
    path: tuple[str, ...]
    mode: PollingMode
    incrementing_column: str | None = None
    timestamp_columns: tuple[str, ...] = ()
    time_form: TimeForm = TimeForm.NATIVE
    delay_ms: int = 0
    query: str | None = None

    @property
    def uses_time(self) -> bool:
        return self.mode in (PollingMode.TIMESTAMP, PollingMode.TIMESTAMP_INCREMENTING)

    @property
    def uses_number(self) -> bool:
        return self.mode in (PollingMode.INCREMENTING, PollingMode.TIMESTAMP_INCREMENTING)

    @property
    def source(self) -> str:
        """What follows FROM, in a statement with parameters."""
        if self.query is None:
            return quote_table(self.dialect, self.path)
        text = self.query.strip().rstrip(";")
        return f"({text.replace('%', '%%') if placeholder(self.dialect) == '%s' else text}\n) AS polled"


class Position(Struct, frozen=True):
    """The last row that was read, by the columns of the mode; the others are None. It is stored as JSON.

    A time is text as the database prints it, or a number where times are numbers.
    """

    timestamp: str | int | float | None = None
    incrementing: int | None = None


START: Final = Position()
"""Before the first row of any table."""


def check_table(table: PolledTable) -> None:
    """Raise OptionError if the mode and the columns do not fit together."""
    if table.uses_number == (table.incrementing_column is None):
        rule = "needs" if table.uses_number else "does not use"
        raise OptionError(f"mode={table.mode} {rule} incrementing.column.name: change one of the two")
    if table.uses_time != bool(table.timestamp_columns):
        rule = "needs" if table.uses_time else "does not use"
        raise OptionError(f"mode={table.mode} {rule} timestamp.column.name: change one of the two")
    if table.uses_time and table.time_form not in TIME_FORMS[table.dialect]:
        forms = ", ".join(TIME_FORMS[table.dialect])
        raise OptionError(f"times of {table.dialect} are stored as {forms}, not as {table.time_form}: choose one")
    if table.delay_ms < 0:
        raise OptionError(f"timestamp.delay.interval.ms is {table.delay_ms}: it cannot be negative")


def read_limit(table: PolledTable) -> Statement:
    """The statement whose result is one value: the times of a batch must be below that value. For modes with times.

    On PostgreSQL the role needs pg_read_all_stats to see when the transactions of other roles began;
    `can_see_transactions` asks for that. A transaction that only reads holds the limit back too, because it could
    still write; a prepared one is not seen.
    """
    assert table.uses_time
    delay = table.delay_ms
    match table.dialect:
        case Dialect.POSTGRES:
            return Statement(
                "SELECT least(clock_timestamp() - %s * interval '1 millisecond', (SELECT min(xact_start)"
                " FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
                " AND backend_type NOT IN ('autovacuum worker', 'walsender')))::text",
                (delay,),
            )
        case Dialect.MYSQL:
            return Statement("SELECT CAST(NOW(6) - INTERVAL %s MICROSECOND AS CHAR)", (delay * 1000,))
        case Dialect.DUCKDB:
            zoned = "current_timestamp - to_milliseconds(?)"
            local = zoned if table.time_form is TimeForm.TIMESTAMPTZ else f"CAST({zoned} AS TIMESTAMP)"
            return Statement(f"SELECT CAST({local} AS VARCHAR)", (delay,))
        case Dialect.SQLITE:
            if table.time_form is TimeForm.ISO_TEXT:
                return Statement("SELECT strftime('%Y-%m-%d %H:%M:%f', 'now', ?)", (f"-{delay / 1000:.3f} seconds",))
            factor = 1 if table.time_form is TimeForm.SECONDS else 1000
            epoch = "(julianday('now') - 2440587.5) * 86400.0"
            return Statement(f"SELECT CAST(({epoch} - ?) * ? AS INTEGER)", (delay / 1000, factor))


def can_see_transactions() -> Statement:
    """PostgreSQL: one row, true if the role sees when every transaction began."""
    return Statement("SELECT pg_has_role('pg_read_all_stats', 'USAGE')")


def read_end(table: PolledTable, start: Position, limit: str | int | float, rows_max: int) -> Statement:
    """One row with the values of `end_position`, or none if no row follows: the last of the next `rows_max` rows.

    `limit` is that of `read_limit`, below which times lie, or for `incrementing` the largest number that is final.
    """
    if rows_max < 1:
        raise OptionError(f"batch.max.rows is {rows_max}: it is at least 1")
    columns = _order(table)
    after, parameters = _after(table, start)
    if table.uses_time:
        below = f"{_time(table)} < {_time_parameter(table)}"
    else:
        below = f"{_number(table)} <= {placeholder(table.dialect)}"
    where = f"{after} AND {below}" if after else below
    named = ", ".join(f"{column} AS c{index}" for index, column in enumerate(columns))
    inner = f"SELECT {named} FROM {table.source} WHERE {where} ORDER BY {', '.join(columns)} LIMIT {rows_max}"
    shown = [f"c{index}" for index in range(len(columns))]
    if table.uses_time:
        shown[0] = _as_text(table, shown[0])
    last = ", ".join(f"c{index} DESC" for index in range(len(columns)))
    return Statement(f"SELECT {', '.join(shown)} FROM ({inner}) AS b ORDER BY {last} LIMIT 1", (*parameters, limit))


def read_sample(table: PolledTable) -> Statement:
    """One row with a time of the table, or none if it has no time."""
    time = _time(table)
    return Statement(f"SELECT {time} FROM {table.source} WHERE {time} IS NOT NULL LIMIT 1")


def end_position(table: PolledTable, start: Position, row: tuple[Any, ...] | None) -> Position:
    """The end of a batch from the row of `read_end`, or the start if there is no row."""
    if row is None:
        return start
    match table.mode:
        case PollingMode.INCREMENTING:
            return Position(None, int(row[0]))
        case PollingMode.TIMESTAMP:
            return Position(row[0], None)
        case PollingMode.TIMESTAMP_INCREMENTING:
            return Position(row[0], int(row[1]))
        case PollingMode.BULK:
            raise AssertionError("mode=bulk has no positions")


def read_rows(table: PolledTable, start: Position, end: Position, selected: str = "*") -> Statement:
    """The rows after `start`, up to and including `end`, in the order of their positions.

    `selected` is what follows SELECT, as text for a statement with parameters.
    """
    after, parameters = _after(table, start)
    until, end_parameters = _until(table, end)
    where = f"{after} AND {until}" if after else until
    return Statement(
        f"SELECT {selected} FROM {table.source} WHERE {where} ORDER BY {', '.join(_order(table))}",
        parameters + end_parameters,
    )


def read_row(table: PolledTable, position: Position, selected: str = "*") -> Statement:
    """The row at the number of a position, if the table still has it."""
    assert position.incrementing is not None
    where = f"{_number(table)} = {placeholder(table.dialect)}"
    return Statement(f"SELECT {selected} FROM {table.source} WHERE {where}", (position.incrementing,))


def read_below(table: PolledTable, position: Position) -> Statement:
    """One row if the table has a row up to the number of a position."""
    assert position.incrementing is not None
    where = f"{_number(table)} <= {placeholder(table.dialect)}"
    return Statement(f"SELECT 1 FROM {table.source} WHERE {where} LIMIT 1", (position.incrementing,))


def read_all(table: PolledTable, selected: str = "*") -> Statement:
    """All rows, for mode=bulk and for batch queries."""
    return Statement(f"SELECT {selected} FROM {table.source}")


def count_nulls(table: PolledTable) -> Statement:
    """One row with the number of rows that polling never finds, because a column of the mode is null.

    For `validate.non.null`.
    """
    nulls = " OR ".join(f"{column} IS NULL" for column in _order(table))
    return Statement(f"SELECT count(*) FROM {table.source} WHERE {nulls}")


def _number(table: PolledTable) -> str:
    assert table.incrementing_column is not None
    return quote_identifier(table.dialect, table.incrementing_column)


def _time(table: PolledTable) -> str:
    names = [quote_identifier(table.dialect, name) for name in table.timestamp_columns]
    return names[0] if len(names) == 1 else f"COALESCE({', '.join(names)})"


def _time_parameter(table: PolledTable) -> str:
    mark = placeholder(table.dialect)
    return f"CAST({mark} AS {table.time_form.value})" if table.dialect is Dialect.DUCKDB else mark


def _as_text(table: PolledTable, column: str) -> str:
    match table.dialect:
        case Dialect.POSTGRES:
            return f"{column}::text"
        case Dialect.MYSQL:
            return f"CAST({column} AS CHAR)"
        case Dialect.DUCKDB:
            return f"CAST({column} AS VARCHAR)"
        case Dialect.SQLITE:
            return column


def _order(table: PolledTable) -> list[str]:
    times = [_time(table)] if table.uses_time else []
    return [*times, _number(table)] if table.uses_number else times


def _after(table: PolledTable, start: Position) -> tuple[str, tuple[Any, ...]]:
    """The condition for rows after a position; empty at the start."""
    if start == START:
        return "", ()
    return _beyond(table, start, ">", ">")


def _until(table: PolledTable, end: Position) -> tuple[str, tuple[Any, ...]]:
    return _beyond(table, end, "<", "<=")


def _beyond(table: PolledTable, position: Position, outside: str, innermost: str) -> tuple[str, tuple[Any, ...]]:
    """Compare the columns with a position; `innermost` is the comparison of the last column."""
    if (position.timestamp is None) == table.uses_time or (position.incrementing is None) == table.uses_number:
        raise OptionError(
            f"the position {position} does not belong to mode={table.mode}: a query keeps its mode, so start the query"
            " with a new checkpoint to change it"
        )
    match table.mode:
        case PollingMode.INCREMENTING:
            return f"{_number(table)} {innermost} {placeholder(table.dialect)}", (position.incrementing,)
        case PollingMode.TIMESTAMP:
            # All rows of one time are in one batch.
            return f"{_time(table)} {innermost} {_time_parameter(table)}", (position.timestamp,)
        case PollingMode.TIMESTAMP_INCREMENTING:
            time, mark = _time(table), _time_parameter(table)
            number = f"{_number(table)} {innermost} {placeholder(table.dialect)}"
            return (
                f"({time} {outside} {mark} OR ({time} = {mark} AND {number}))",
                (position.timestamp, position.timestamp, position.incrementing),
            )
        case PollingMode.BULK:
            raise AssertionError("mode=bulk has no positions")


class Observation(Struct, frozen=True):
    """What `read_largest` returned, and when. `largest` is None in an empty table; xids only on PostgreSQL.

    `xid_min` is the oldest transaction that runs, `xid_next` the first one that has not begun.
    """

    now_ms: int
    largest: int | None
    xid_min: int | None = None
    xid_next: int | None = None


def read_largest(table: PolledTable) -> Statement:
    """(largest, xid_min, xid_next): the largest number, and on PostgreSQL which transactions run."""
    source = f"FROM {table.source}"
    if table.dialect is not Dialect.POSTGRES:
        return Statement(f"SELECT max({_number(table)}), NULL, NULL {source}")
    return Statement(
        f"SELECT max({_number(table)}), pg_snapshot_xmin(pg_current_snapshot())::text::bigint,"
        f" pg_snapshot_xmax(pg_current_snapshot())::text::bigint {source}"
    )


class IncrementingLimit:
    """Up to which number a table is final, in the mode `incrementing`.

    A number can be smaller than one that is committed already, and be committed later. So a largest number that was
    observed becomes the limit only later: after the delay, and on PostgreSQL also after the end of all transactions
    that ran at the next observation. (Not at the same one: a transaction takes its number a moment before its xid.)
    """

    def __init__(self, delay_ms: int) -> None:
        self._delay_ms = delay_ms
        self._candidate: Observation | None = None
        self._fence: int | None = None
        self._limit: int | None = None

    def observe(self, seen: Observation) -> int | None:
        """Take an observation, once in each poll. Returns the limit, or None as long as there is none."""
        if self._candidate is not None and self._is_final(self._candidate, seen):
            self._limit = self._candidate.largest
            self._candidate = None
        if self._candidate is None and seen.largest is not None and seen.largest != self._limit:
            self._candidate, self._fence = seen, None
            if seen.xid_min is None and self._delay_ms == 0:
                self._limit, self._candidate = seen.largest, None
        return self._limit

    def _is_final(self, candidate: Observation, seen: Observation) -> bool:
        if seen.xid_min is not None:
            if self._fence is None:
                self._fence = seen.xid_next
            assert self._fence is not None
            if seen.xid_min < self._fence:
                return False
        return seen.now_ms - candidate.now_ms >= self._delay_ms
