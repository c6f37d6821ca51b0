"""Codec: the options of the sinks of databases -> SqlSinkOptions. Their names are those of Connect's JDBC sinks."""

from __future__ import annotations

import zoneinfo
from collections.abc import Mapping
from enum import Enum
from typing import Final

from msgspec import Struct

from barnabas.spark import option_parsers as parse_as
from barnabas.spark.connectors.option_rows import ConnectorOption, ConnectorOptions, milliseconds
from barnabas.spark.connectors.sinking.options import (
    ROW_OPTIONS,
    ROW_PREFIXES,
    RowOptions,
    parse_row_options,
)
from barnabas.spark.connectors.sql.connection_urls import DatabaseAddress, parse_connection_url
from barnabas.spark.connectors.sql.dialects import Dialect
from barnabas.spark.errors import OptionError


class Quoting(Enum):
    """`quote.sql.identifiers`: names are as they are given, or in the case that the database gives names without
    quotes.
    """

    ALWAYS = "always"
    NEVER = "never"


TABLE_TYPES: Final = ("TABLE", "PARTITIONED TABLE", "VIEW")


def retries(name: str, text: str) -> int:
    """A number of retries, 0 for none."""
    return 0 if text.strip() == "0" else parse_as.positive(name, text)


def _time_zone(name: str, text: str) -> str:
    try:
        zoneinfo.ZoneInfo(text.strip())
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise OptionError(f"{name} must be a time zone such as UTC or Europe/Berlin, got {text!r}") from None
    return text.strip()


def _table_types(name: str, text: str) -> tuple[str, ...]:
    found = tuple(part.upper() for part in parse_as.name_list(name, text))
    wrong = [part for part in found if part not in TABLE_TYPES]
    if wrong or not found:
        raise OptionError(f"{name} must name types of {', '.join(TABLE_TYPES)}, separated by commas; got {text!r}")
    return found


SQL_SINK_OPTIONS: Final[tuple[ConnectorOption, ...]] = (
    ConnectorOption("connection.url", "The database: jdbc:postgresql://host:5432/db, jdbc:mysql://host:3306/db."),
    ConnectorOption("connection.user", "The user; replaces the one in the URL."),
    ConnectorOption("connection.password", "The user's password."),
    ConnectorOption("connection.attempts", "How often a connection is tried.", parse_as.positive, 3),
    ConnectorOption("connection.backoff.ms", "The time between two tries.", milliseconds, 10_000),
    ConnectorOption("auto.create", "Create a table that does not exist.", parse_as.boolean, False),
    ConnectorOption("auto.evolve", "Add the columns that only the rows have, as nullable.", parse_as.boolean, False),
    ConnectorOption(
        "quote.sql.identifiers",
        "always: names are as given; never: in the case that the database gives to names without quotes.",
        parse_as.one_of(Quoting),
        Quoting.ALWAYS,
    ),
    ConnectorOption(
        "max.retries", "How often a commit is tried again after a lost connection or a deadlock.", retries, 10
    ),
    ConnectorOption("retry.backoff.ms", "The time before a commit is tried again.", milliseconds, 3000),
    ConnectorOption(
        "db.timezone", "The zone of timestamps in columns without a time zone.", _time_zone, "UTC"
    ),
    ConnectorOption(
        "table.types", "What may be written: TABLE, PARTITIONED TABLE, VIEW.", _table_types, TABLE_TYPES[:2]
    ),
    ConnectorOption(
        "staging.schema",
        "The schema (MySQL: database) of the staging tables and of the ledger; the connection's own if not given.",
        parse_as.name,
    ),
    ConnectorOption("batch.size", "Accepted for Connect's sake: rows are staged in bulk.", parse_as.positive),
)  # fmt: skip
_REFUSED: Final = {
    "stagingLocation": "rows are staged in tables of the database (staging.schema)",
    "dialect.name": "the connection.url says which database it is",
    "connection.host": "write the host into connection.url",
    "mssql.*": "there is no sink for this database",
}
_REFUSED_BY_FILES: Final = {
    "staging.schema": "rows are staged in files (stagingLocation)",
    "dialect.name": "the connection.url says which database it is",
}
_OWN: Final = frozenset({"staginglocation"})
FORMATS: Final = {
    Dialect.POSTGRES: ("barnabas.postgres",),
    Dialect.MYSQL: ("barnabas.mysql", "barnabas.mariadb"),
    Dialect.SQLITE: ("barnabas.sqlite",),
    Dialect.DUCKDB: ("barnabas.duckdb",),
}
FILE_DIALECTS: Final = (Dialect.SQLITE, Dialect.DUCKDB)
"""Databases that are files, with one writer: their rows are staged in files of stagingLocation."""


class SqlSinkOptions(Struct, frozen=True):
    """All options of one query."""

    address: DatabaseAddress
    rows: RowOptions
    create: bool = False
    evolve: bool = False
    quoting: Quoting = Quoting.ALWAYS
    retries_max: int = 10
    backoff_ms: int = 3000
    attempts_max: int = 3
    connection_backoff_ms: int = 10_000
    time_zone: str = "UTC"
    table_types: tuple[str, ...] = TABLE_TYPES[:2]
    staging_schema: str | None = None
    staging_location: str | None = None

    @property
    def dialect(self) -> Dialect:
        return self.address.dialect


def parse_sql_sink_options(dialect: Dialect, texts: Mapping[str, str]) -> SqlSinkOptions:
    """The options of a sink. Raises OptionError for a missing, unknown or invalid option."""
    is_file = dialect in FILE_DIALECTS
    rows = tuple(row for row in ROW_OPTIONS if is_file or row.name.lower() not in _OWN)
    refused = _REFUSED_BY_FILES if is_file else _REFUSED
    own = tuple(row for row in SQL_SINK_OPTIONS if not is_file or row.name not in refused)
    given = ConnectorOptions(texts, (*own, *rows), prefixes=ROW_PREFIXES, refused=refused)
    given.check_names()
    url = given.require("connection.url", "the database to write to, such as jdbc:postgresql://host:5432/shop")
    address = parse_connection_url(url, given.get("connection.user"), given.get("connection.password"))
    if address.dialect is not dialect:
        formats = " or ".join(FORMATS[address.dialect])
        raise OptionError(
            f"connection.url is that of a {address.dialect} database, and this format writes to {dialect}: write with"
            f" format('{formats}'), or change the URL"
        )
    parsed = parse_row_options(ConnectorOptions(texts, (*SQL_SINK_OPTIONS, *ROW_OPTIONS)), texts)
    return SqlSinkOptions(
        address,
        parsed,
        given.get("auto.create"),
        given.get("auto.evolve"),
        given.get("quote.sql.identifiers"),
        given.get("max.retries"),
        given.get("retry.backoff.ms"),
        given.get("connection.attempts"),
        given.get("connection.backoff.ms"),
        given.get("db.timezone"),
        given.get("table.types"),
        None if is_file else given.get("staging.schema"),
        given.get("stagingLocation") if is_file else None,
    )
