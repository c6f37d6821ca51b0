"""Table: how the SQL of each database writes identifiers and parameters.

A driver whose placeholder is %s reads every percent sign of a statement with parameters as the start of a placeholder,
so identifiers double theirs. Each statement is executed with its parameters, even if they are empty, since drivers undo
the doubling only then. Identifiers are always quoted: their case stays, and no word is reserved.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from barnabas.spark.errors import OptionError


class Dialect(StrEnum):
    """The databases whose SQL the connectors write; MariaDB has MySQL's."""

    POSTGRES = "postgresql"
    MYSQL = "mysql"
    SQLITE = "sqlite"
    DUCKDB = "duckdb"


class Statement(Struct, frozen=True):
    """SQL text with placeholders, and their values in order."""

    sql: str
    parameters: tuple[Any, ...] = ()


_QUOTES: Final = {Dialect.POSTGRES: '"', Dialect.MYSQL: "`", Dialect.SQLITE: '"', Dialect.DUCKDB: '"'}
_PLACEHOLDERS: Final = {  # of psycopg, PyMySQL, sqlite3, duckdb
    Dialect.POSTGRES: "%s",
    Dialect.MYSQL: "%s",
    Dialect.SQLITE: "?",
    Dialect.DUCKDB: "?",
}


def placeholder(dialect: Dialect) -> str:
    """Where a parameter stands in a statement, in the form of the database's driver."""
    return _PLACEHOLDERS[dialect]


def quote_identifier(dialect: Dialect, name: str) -> str:
    """The name of a column, table or schema, for a statement with parameters.

    Raises OptionError if no object can have this name.
    """
    quoted = quote_for_display(dialect, name)
    return quoted.replace("%", "%%") if _PLACEHOLDERS[dialect] == "%s" else quoted


def quote_for_display(dialect: Dialect, name: str) -> str:
    """The name as a person would type it into the database's own client, and for statements without parameters.

    Raises OptionError if no object can have this name.
    """
    if not name or "\0" in name:
        raise OptionError(f"{name!r} cannot be the name of a column, table or schema: give the name as it is in SQL")
    quote = _QUOTES[dialect]
    return quote + name.replace(quote, quote * 2) + quote


def quote_table(dialect: Dialect, path: Sequence[str]) -> str:
    """The name of a table with its schema or database, if it has one, for a statement with parameters."""
    return ".".join(quote_identifier(dialect, part) for part in path)
