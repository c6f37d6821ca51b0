"""Codec: what the information schema of MySQL and MariaDB says of a table -> TableColumns, and its queries.

Source: the manuals of MySQL 8.0 ("INFORMATION_SCHEMA Tables") and MariaDB ("Information Schema Tables").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from barnabas.spark.connectors.sql.dialects import Statement
from barnabas.spark.connectors.sql.sinks.ports import ColumnKind, TableColumn

_K = ColumnKind
_KINDS: Final = {
    "tinyint": _K.INTEGER,
    "smallint": _K.INTEGER,
    "mediumint": _K.INTEGER,
    "int": _K.INTEGER,
    "bigint": _K.INTEGER,
    "decimal": _K.DECIMAL,
    "float": _K.FLOAT,
    "double": _K.FLOAT,
    "char": _K.TEXT,
    "varchar": _K.TEXT,
    "tinytext": _K.TEXT,
    "text": _K.TEXT,
    "mediumtext": _K.TEXT,
    "longtext": _K.TEXT,
    "binary": _K.BYTES,
    "varbinary": _K.BYTES,
    "tinyblob": _K.BYTES,
    "blob": _K.BYTES,
    "mediumblob": _K.BYTES,
    "longblob": _K.BYTES,
    "date": _K.DATE,
    "time": _K.TIME,
    "datetime": _K.LOCAL_TIMESTAMP,
    "timestamp": _K.INSTANT,
    "json": _K.JSON,
}
_BITS: Final = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_FILLED: Final = ("auto_increment", "generated")
_SCHEMA: Final = "table_schema = COALESCE(%s, DATABASE()) AND table_name = %s"


def describe_table(path: Sequence[str]) -> Statement:
    """(table type, engine, whether the engine has transactions); no row if there is no such table."""
    return Statement(
        "SELECT t.table_type, t.engine, e.transactions FROM information_schema.tables AS t"
        " LEFT JOIN information_schema.engines AS e ON e.engine = t.engine"
        " WHERE t.table_schema = COALESCE(%s, DATABASE()) AND t.table_name = %s",
        _arguments(path),
    )


def describe_columns(path: Sequence[str]) -> Statement:
    """The arguments of `column_of`, for each column in its order."""
    return Statement(
        "SELECT column_name, column_type, data_type, is_nullable, column_default, extra, character_maximum_length,"
        " character_octet_length, numeric_precision, numeric_scale, character_set_name, collation_name"
        f" FROM information_schema.columns WHERE {_SCHEMA} ORDER BY ordinal_position",
        _arguments(path),
    )


def describe_keys(path: Sequence[str]) -> Statement:
    """(index, column or NULL, length of a prefix) of each part of each unique index."""
    return Statement(
        "SELECT index_name, column_name, sub_part FROM information_schema.statistics"
        f" WHERE {_SCHEMA} AND non_unique = 0 ORDER BY index_name <> 'PRIMARY', index_name, seq_in_index",
        _arguments(path),
    )


def list_tables(schema: str | None, prefix: str) -> Statement:
    """The names of the tables that begin so."""
    return Statement(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = COALESCE(%s, DATABASE())"
        " AND table_type = 'BASE TABLE' AND LEFT(table_name, %s) = %s",
        (schema, len(prefix), prefix),
    )


def unique_keys(rows: Sequence[tuple[Any, ...]]) -> tuple[tuple[str, ...], ...]:
    """The unique keys. One on an expression, or on the beginning of a text, has a column that no table has: an upsert
    cannot use it, and must know that it exists."""
    found: dict[str, list[str]] = {}
    for index, column, prefix in rows:
        whole = column is not None and prefix is None
        found.setdefault(_text(index), []).append(_text(column) if whole else f"a part of {_text(index)}\0")
    return tuple(tuple(columns) for columns in found.values())


def table_problem(kind: str, engine: str | None, transactions: str | None, shown: str) -> str:
    """Why a table cannot be written in a transaction, with what to do; empty if it can."""
    if kind != "VIEW" and transactions != "YES":
        return f"its engine {engine} has no transactions. Run: ALTER TABLE {shown} ENGINE=InnoDB"
    return ""


def column_of(row: Sequence[Any]) -> TableColumn:
    """A column from a row of `describe_columns`."""
    name, written, base, nullable, default, extra, length, octets, precision, scale, charset, collation = row
    type_, base = _text(written), _text(base).lower()
    kind = _KINDS.get(base, _K.OTHER)
    limits: dict[str, Any] = {}
    if base == "bit":
        kind = _K.BOOLEAN if type_ == "bit(1)" else _K.BYTES
    elif kind is _K.INTEGER:
        limits = {"bits": _BITS[base], "unsigned": "unsigned" in type_}
    elif kind is _K.DECIMAL:
        limits = {"precision": int(precision), "scale": int(scale)}
    elif kind is _K.BYTES or base.endswith("text"):
        limits = {"size": int(octets)}
    elif kind is _K.TEXT:
        limits = {"length": int(length)}
    if charset is not None:
        type_ += f" CHARACTER SET {_text(charset)} COLLATE {_text(collation)}"
    filled = any(word in _text(extra).lower() for word in _FILLED)
    has_default = filled or (default is not None and _text(default) != "NULL")
    return TableColumn(_text(name), type_, kind, _text(nullable) == "YES", has_default, **limits)


def _arguments(path: Sequence[str]) -> tuple[str | None, str]:
    return (path[0] if len(path) > 1 else None, path[-1])


def _text(value: Any) -> str:
    """MySQL 8 has some of these texts as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value or "")
