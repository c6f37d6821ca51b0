"""Table: the options of sources that poll a database, with the names of Connect's JDBC source.

To add an option that all databases have, add a row to POLLING_OPTIONS and read it in `parse_polling_options`; an option
of one database belongs to the table in its module. `stagingLocation`, `output` and `maxBytesPerTrigger` are those of
all capture sources.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct

from barnabas.spark import option_parsers as parse_as
from barnabas.spark.connectors.capture.options import (
    CAPTURE_OPTIONS,
    PREFIXES,
    TRIGGER_BYTES_MAX,
    CaptureOptions,
    Operation,
    Output,
    SnapshotMode,
    UnavailableValues,
)
from barnabas.spark.connectors.events.options import EventOptions
from barnabas.spark.connectors.option_rows import ConnectorOption, ConnectorOptions, milliseconds, patterns
from barnabas.spark.connectors.sql.connection_urls import DatabaseAddress, parse_connection_url
from barnabas.spark.connectors.sql.dialects import Dialect
from barnabas.spark.connectors.sql.polling import TIME_FORMS, PolledTable, PollingMode, check_table
from barnabas.spark.errors import OptionError

BATCH_ROWS_MAX: Final = 100_000
_DELAYS_MS: Final = {Dialect.POSTGRES: 0, Dialect.MYSQL: 10_000, Dialect.SQLITE: 0, Dialect.DUCKDB: 0}
"""Defaults of timestamp.delay.interval.ms. MySQL does not say which transactions run; SQLite and DuckDB have one writer
at a time.
"""
NOW: Final = -1
"""The value of timestamp.initial that stands for the time at which the query starts."""


class NumericMapping(StrEnum):
    """`numeric.mapping`: which decimals become integers or floating-point numbers."""

    NONE = "none"
    PRECISION_ONLY = "precision_only"
    BEST_FIT = "best_fit"
    BEST_FIT_EAGER_DOUBLE = "best_fit_eager_double"


class TableKind(StrEnum):
    """`table.types`."""

    TABLE = "TABLE"
    VIEW = "VIEW"


def table_types(name: str, text: str) -> frozenset[TableKind]:
    """Kinds of tables, separated by commas."""
    parts = parse_as.name_list(name, text.upper())
    known = {kind.value for kind in TableKind}
    for part in parts:
        if part not in known:
            raise OptionError(f"{name} must be TABLE, VIEW or both, got {part}")
    return frozenset(TableKind(part) for part in parts)


def time_zone(name: str, text: str) -> str:
    """A time zone by its name."""
    try:
        ZoneInfo(text.strip())
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise OptionError(f"{name} must be the name of a time zone such as Europe/Berlin, got {text!r}") from None
    return text.strip()


def initial_time(name: str, text: str) -> int:
    """Milliseconds since 1970, or -1 for the start of the query."""
    try:
        number = int(text.strip())
    except ValueError:
        number = NOW - 1
    if number < NOW:
        raise OptionError(f"{name} must be milliseconds since 1970, or -1 for now, got {text!r}")
    return number


def name_pattern(name: str, text: str) -> re.Pattern[str]:
    """A pattern of LIKE: % stands for any text, _ for one character."""
    if not text.strip():
        raise OptionError(f"{name} is empty: give a name or a pattern of LIKE, or leave the option out")
    parts = {"%": ".*", "_": "."}
    return re.compile("".join(parts.get(char, re.escape(char)) for char in text.strip()), re.IGNORECASE | re.DOTALL)


def only(value: str) -> parse_as.Parse:
    """An option of Connect with one value that has a meaning here."""

    def parse(name: str, text: str) -> str:
        if text.strip().lower() != value:
            raise OptionError(f"{name} must be {value}, got {text!r}: leave the option out")
        return value

    return parse


def topic_start(name: str, text: str) -> str:
    """The start of topics' names, so only characters that topics may have."""
    given = text.strip()
    if not given or not given.isascii() or not all(char.isalnum() or char in "._-" for char in given):
        raise OptionError(f"{name} must consist of letters, digits, dots, hyphens and underscores, got {text!r}")
    return given


_SHARED: Final = ("stagingLocation", "output", "name", "key.converter", "value.converter", "transforms", "predicates")

POLLING_OPTIONS: Final = (
    ConnectorOption(
        "mode", "`bulk`, `incrementing`, `timestamp` or `timestamp+incrementing`", parse_as.one_of(PollingMode)
    ),
    ConnectorOption(
        "failOnDataLoss",
        "stop if a table was replaced by another one of its name; false: read the new one from its beginning",
        parse_as.boolean,
        True,
    ),
    ConnectorOption("connection.url", "the database, as a JDBC URL"),
    ConnectorOption("connection.user", "the user, if the URL has none"),
    ConnectorOption("connection.password", "the password of the user", default=""),
    ConnectorOption("connection.attempts", "how often a connection is tried", parse_as.positive, 3),
    ConnectorOption("connection.backoff.ms", "time between two attempts", milliseconds, 10_000),
    ConnectorOption("incrementing.column.name", "the column whose numbers grow with each new row"),
    ConnectorOption(
        "timestamp.column.name",
        "the column with the time of the last change; of several, the first that is not null",
        parse_as.name_list,
        (),
    ),
    ConnectorOption("timestamp.delay.interval.ms", "how old a row must be to be read (MySQL: 10 s)", milliseconds),
    ConnectorOption("timestamp.initial", "the time after which rows are read, in ms since 1970; -1: now", initial_time),
    ConnectorOption("validate.non.null", "refuse columns of the mode that allow null", parse_as.boolean, True),
    ConnectorOption("table.whitelist", "names of the tables to read", parse_as.name_list, ()),
    ConnectorOption("table.blacklist", "names of tables to leave out", parse_as.name_list, ()),
    ConnectorOption("table.include.list", "regular expressions of the tables to read", patterns, ()),
    ConnectorOption("table.exclude.list", "regular expressions of tables to leave out", patterns, ()),
    ConnectorOption("table.types", "`TABLE`, `VIEW` or both", table_types, frozenset({TableKind.TABLE})),
    ConnectorOption("catalog.pattern", "a LIKE pattern of the databases to read (MySQL)", name_pattern),
    ConnectorOption("schema.pattern", "a LIKE pattern of the schemas to read", name_pattern),
    ConnectorOption("query", "a query to read in place of tables"),
    ConnectorOption("poll.interval.ms", "time between two polls", milliseconds, 5_000),
    ConnectorOption("table.poll.interval.ms", "time between two searches for new tables", milliseconds, 60_000),
    ConnectorOption("batch.max.rows", "rows of a table in one poll, about", parse_as.positive, BATCH_ROWS_MAX),
    ConnectorOption(
        "maxBytesPerTrigger", "about how many bytes of a poll a micro-batch reads", parse_as.size, TRIGGER_BYTES_MAX
    ),
    ConnectorOption("topic.prefix", "the start of the topics' names, directly before the table's name", topic_start),
    ConnectorOption(
        "numeric.mapping",
        "decimals as numbers: `none`, `precision_only`, `best_fit` or `best_fit_eager_double`",
        parse_as.one_of(NumericMapping),
        NumericMapping.NONE,
    ),
    ConnectorOption("quote.sql.identifiers", "`always`: names are quoted", only("always"), "always"),
    ConnectorOption(
        "timestamp.granularity",
        "`connect_logical`: milliseconds; output=rows has microseconds",
        only("connect_logical"),
        "connect_logical",
    ),
    ConnectorOption("db.timezone", "the time zone of columns without a zone", time_zone, "UTC"),
    *(row for row in CAPTURE_OPTIONS if row.name in _SHARED),
)

POLLING_REFUSED: Final[Mapping[str, str]] = {
    "connector.class": "the format of the query says it",
    "tasks.max": "the rows of a poll are divided among Spark's tasks by themselves",
    "numeric.precision.mapping": "use numeric.mapping",
    "dialect.name": "the format of the query says it",
    "query.suffix": "make it a part of the query",
    "transaction.isolation.mode": "each statement of a poll is consistent in itself",
    "database.*": "a query with mode has the address in connection.url; leave mode out to capture changes",
    "snapshot.mode": "a poll has no snapshot before it; leave mode out to capture changes",
    "slot.*": "polling needs no slot; leave mode out to capture changes",
    "publication.*": "polling needs no publication; leave mode out to capture changes",
}
"""Options of Connect's JDBC sources, and of capture, that have no meaning here, with what to do instead."""


class PollingOptions(Struct, frozen=True):
    """The options of one query."""

    capture: CaptureOptions
    address: DatabaseAddress
    template: PolledTable
    """What is polled, without the path of its table."""
    initial_ms: int | None
    checks_nulls: bool
    kinds: frozenset[TableKind]
    attempts: int
    backoff_ms: int
    poll_ms: int
    tables_ms: int
    rows_max: int
    numbers: NumericMapping
    zone: str

    @property
    def given(self) -> ConnectorOptions:
        return self.capture.given

    @property
    def fails_on_data_loss(self) -> bool:
        return bool(self.given.get("failOnDataLoss"))

    def wants_table(self, path: tuple[str, ...]) -> bool:
        """Whether the lists and patterns let a table through. A name may be given with its schema or without."""
        given = self.given
        names = {path[-1], ".".join(path)}
        for option in ("catalog.pattern", "schema.pattern"):
            pattern = given.get(option)
            if pattern is not None and not pattern.fullmatch(path[0]):
                return False
        whitelist, blacklist = given.get("table.whitelist"), given.get("table.blacklist")
        included, excluded = given.get("table.include.list"), given.get("table.exclude.list")
        if whitelist and not names & set(whitelist):
            return False
        if included and not any(pattern.fullmatch(name) for pattern in included for name in names):
            return False
        return not names & set(blacklist) and not any(pattern.fullmatch(name) for pattern in excluded for name in names)


def parse_polling_options(
    texts: Mapping[str, str],
    dialect: Dialect,
    rows: Iterable[ConnectorOption] = (),
) -> PollingOptions:
    """The options of a query on a database whose own options are `rows`. Raises OptionError."""
    given = ConnectorOptions(texts, (*POLLING_OPTIONS, *rows), prefixes=PREFIXES, refused=POLLING_REFUSED)
    given.check_names()
    for name in ("quote.sql.identifiers", "timestamp.granularity"):
        given.get(name)  # only one value is allowed
    choices = "bulk, incrementing, timestamp or timestamp+incrementing"
    mode: PollingMode = given.require("mode", f"how new rows are found: {choices}")
    _check_selection(given)
    delay = given.get("timestamp.delay.interval.ms")
    template = PolledTable(
        dialect,
        (),
        mode,
        given.get("incrementing.column.name"),
        given.get("timestamp.column.name"),
        TIME_FORMS[dialect][0],
        delay_ms=_DELAYS_MS[dialect] if delay is None else delay,
        query=given.get("query"),
    )
    check_table(template)
    initial = given.get("timestamp.initial")
    if initial is not None and not template.uses_time:
        raise OptionError(f"mode={mode} does not use timestamp.initial: change one of the two")
    return PollingOptions(
        _capture_options(given, dialect, has_query=template.query is not None),
        _address(given, dialect),
        template,
        initial,
        given.get("validate.non.null"),
        given.get("table.types"),
        given.get("connection.attempts"),
        given.get("connection.backoff.ms"),
        given.get("poll.interval.ms"),
        given.get("table.poll.interval.ms"),
        given.get("batch.max.rows"),
        given.get("numeric.mapping"),
        given.get("db.timezone"),
    )


_EXAMPLES: Final = {
    Dialect.POSTGRES: "jdbc:postgresql://host:5432/database",
    Dialect.MYSQL: "jdbc:mysql://host:3306/database",
    Dialect.SQLITE: "jdbc:sqlite:/path/file.db",
    Dialect.DUCKDB: "jdbc:duckdb:/path/file.duckdb",
}


def _address(given: ConnectorOptions, dialect: Dialect) -> DatabaseAddress:
    url = given.require("connection.url", f"the database, such as {_EXAMPLES[dialect]}")
    address = parse_connection_url(url, given.get("connection.user"), given.get("connection.password") or None)
    if address.dialect is not dialect:
        raise OptionError(
            f"connection.url is the address of a {address.dialect} database, and this format reads {dialect}: use the"
            f" format of the database, or an address such as {_EXAMPLES[dialect]}"
        )
    return address


def _check_selection(given: ConnectorOptions) -> None:
    lists = [name for name in _LISTS if given.get(name)]
    if given.get("query") is not None:
        if not given.get("query").strip():
            raise OptionError("query is empty: give a SELECT, or leave the option out")
        if lists:
            raise OptionError(f"query reads what it selects by itself: leave {lists[0]} out, or the query")
    elif len(lists) > 1:
        raise OptionError(f"give {lists[0]} or {lists[1]}, not both")


_LISTS: Final = ("table.whitelist", "table.blacklist", "table.include.list", "table.exclude.list")


def _capture_options(given: ConnectorOptions, dialect: Dialect, *, has_query: bool) -> CaptureOptions:
    staging = given.require("stagingLocation", "a directory of this query alone that driver and workers share")
    output: Output = given.get("output")
    prefix = given.get("topic.prefix") or ""
    if output is Output.RECORDS and has_query and not prefix:
        raise OptionError("topic.prefix must be given with query: it is the name of the topic")
    if output is Output.ROWS:
        for name in ("transforms", "key.converter", "value.converter"):
            if name in given:
                raise OptionError(
                    f"{name} is for output=records: rows have typed columns, which Spark's functions change"
                )
    return CaptureOptions(
        given,
        staging.rstrip("/"),
        output,
        given.get("maxBytesPerTrigger"),
        SnapshotMode.INITIAL,
        1,
        (),
        frozenset((Operation.TRUNCATE,)),
        UnavailableValues.FAIL,
        0,
        None,
        EventOptions(prefix, dialect.value, "", connector_name=given.get("name")),
    )
