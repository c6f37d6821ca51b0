"""Codec: the tables and columns of a server as the tables of captured changes.

The same column is described twice: by TABLE_MAP events of the binlog, and by `information_schema` for a snapshot. Both
descriptions become a `BinlogColumn`, so that the rows of a snapshot have the types of the changes that follow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import Struct, structs

from barnabas.spark.connectors.events.changes import ColumnSchema, Meaning, TableSchema
from barnabas.spark.connectors.mysql.binlog.charsets import BINARY_COLLATION
from barnabas.spark.connectors.mysql.binlog.codes import BinlogColumnType
from barnabas.spark.connectors.mysql.binlog.events import BinlogColumn, BinlogTable
from barnabas.spark.connectors.mysql.binlog.values import column_decoder
from barnabas.spark.connectors.mysql.errors import UnsupportedBinlogError

SYSTEM_DATABASES: Final = frozenset(("mysql", "information_schema", "performance_schema", "sys"))
"""Databases of the server itself, which are never captured."""

_UTF8MB4: Final = 45
_ARROW_DIGITS: Final = 38

_T = BinlogColumnType
_TEMPORAL: Final = frozenset((_T.DATE, _T.NEWDATE, _T.DATETIME2, _T.TIMESTAMP2))
_WITH_DIGITS: Final = frozenset((_T.TIME2, _T.DATETIME2, _T.TIMESTAMP2))
_MEANINGS: Final = {
    _T.JSON: Meaning.JSON,
    _T.ENUM: Meaning.ENUM,
    _T.SET: Meaning.SET,
    _T.YEAR: Meaning.YEAR,
    _T.TIME2: Meaning.TIME,
}
_HASH_COLUMN: Final = re.compile(r"DB_ROW_HASH_\d+")
_SEQUENCE_COLUMNS: Final = (
    "next_not_cached_value",
    "minimum_value",
    "maximum_value",
    "start_value",
    "increment",
    "cache_size",
    "cycle_option",
    "cycle_count",
)


def is_sequence(table: BinlogTable) -> bool:
    """Whether a table is a sequence of MariaDB, which the binlog describes as a table with columns of its own."""
    return len(table.columns) == 8 and tuple(column.name for column in table.columns) == _SEQUENCE_COLUMNS


def column_schema(table: BinlogTable, column: BinlogColumn) -> ColumnSchema:
    """A column as changes describe it. Raises UnsupportedBinlogError for a column that cannot be read."""
    kind = _T(column.type)
    meaning = _MEANINGS.get(kind, Meaning.PLAIN)
    length = 0
    if kind is _T.BIT and column.meta > 1:
        meaning, length = Meaning.BITS, column.meta
    elif kind is _T.NEWDECIMAL and column.meta >> 8 > _ARROW_DIGITS:
        meaning = Meaning.NUMERIC
    return ColumnSchema(
        column.name,
        column_decoder(table, column).type,
        column.nullable or kind in _TEMPORAL,
        meaning,
        length,
        column.meta if kind in _WITH_DIGITS else None,
        column.values or (),
    )


def captured_schema(
    table: BinlogTable, wants: Callable[[str], bool], key: tuple[str, ...] = ()
) -> tuple[TableSchema, tuple[int, ...]]:
    """A table as changes describe it, and the indexes of its captured columns: those whose names `wants` accepts.

    `key` names the columns of another key than the primary key. Columns of the key are always captured. Raises
    UnsupportedBinlogError if a captured column cannot be read, or if the table lacks a column of `key`.
    """
    names = [column.name for column in table.columns]
    missing = [name for name in key if name not in names]
    if missing:
        raise UnsupportedBinlogError(
            f"message.key.columns names the column {missing[0]}, which {table.database}.{table.name} lacks: its "
            f"columns are {', '.join(names)}"
        )
    in_key = tuple(names.index(name) for name in key) if key else table.primary_key
    indexes = tuple(
        i
        for i, column in enumerate(table.columns)
        if i in in_key or (wants(column.name) and not _is_hidden_hash(column))
    )
    place = {index: i for i, index in enumerate(indexes)}
    columns = tuple(column_schema(table, table.columns[i]) for i in indexes)
    return TableSchema(table.database, "", table.name, columns, tuple(place[i] for i in in_key)), indexes


def _is_hidden_hash(column: BinlogColumn) -> bool:
    """Whether MariaDB added a column for a UNIQUE index USING HASH. Queries do not have it, and TABLE_MAP has it."""
    return column.type == _T.LONGLONG and not column.nullable and _HASH_COLUMN.fullmatch(column.name) is not None


class SnapshotTable(Struct, frozen=True):
    """A table of a server as `information_schema` describes it. `selects` has the SQL expression of each column."""

    table: BinlogTable
    selects: tuple[str, ...]
    transactional: bool


COLUMNS_QUERY: Final = (
    "SELECT c.table_schema, c.table_name, c.column_name, c.is_nullable, c.data_type, c.column_type,"
    " c.character_octet_length, c.character_set_name, c.numeric_precision, c.numeric_scale, c.datetime_precision,"
    " t.engine, c.extra, t.table_type FROM information_schema.columns c JOIN information_schema.tables t"
    " ON t.table_schema = c.table_schema AND t.table_name = c.table_name"
    " WHERE t.table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') AND c.table_schema NOT IN"
    " ('mysql', 'information_schema', 'performance_schema', 'sys')"
    " ORDER BY c.table_schema, c.table_name, c.ordinal_position"
)
"""One row for each column of each table that the user may see."""

_INTEGERS: Final = {
    "tinyint": _T.TINY,
    "smallint": _T.SHORT,
    "mediumint": _T.INT24,
    "int": _T.LONG,
    "bigint": _T.LONGLONG,
}
_PLAIN: Final = {"year": _T.YEAR, "date": _T.DATE, "float": _T.FLOAT, "double": _T.DOUBLE}
_TIMES: Final = {"time": _T.TIME2, "datetime": _T.DATETIME2, "timestamp": _T.TIMESTAMP2}
_STRINGS: Final = {"char": _T.VARCHAR, "varchar": _T.VARCHAR, "varbinary": _T.VARCHAR, "binary": _T.STRING}
_BLOBS: Final = {
    f"{size}{kind}": length
    for kind in ("blob", "text")
    for size, length in (("tiny", 1), ("", 2), ("medium", 3), ("long", 4))
}
_GEOMETRIES: Final = frozenset(
    (
        "geometry",
        "point",
        "linestring",
        "polygon",
        "multipoint",
        "multilinestring",
        "multipolygon",
        "geometrycollection",
        "geomcollection",
    )
)
_MARIADB_BYTES: Final = {
    "inet6": (16, "INET6_ATON({0})"),
    "inet4": (4, "INET6_ATON({0})"),
}
"""Types of MariaDB that the binlog describes as BINARY(n)."""

_MEMBER: Final = re.compile(r"'((?:[^']|'')*)'")


def snapshot_table(name: tuple[str, str], rows: list[tuple[Any, ...]], key: Sequence[str]) -> SnapshotTable:
    """A table from its rows of COLUMNS_QUERY, and the columns of its key. A column may be `unreadable`."""
    described = [_column(row) for row in rows]
    columns = tuple(column for column, _ in described)
    place = {column.name: i for i, column in enumerate(columns)}
    table = BinlogTable(*name, columns, tuple(place[column] for column in key), described=True)
    return SnapshotTable(table, tuple(select for _, select in described), rows[0][11] in _TRANSACTIONAL)


_TRANSACTIONAL: Final = frozenset(("InnoDB", "ROCKSDB", "TokuDB", "ndbcluster"))


def quote_name(name: str) -> str:
    """A name of a table or column for SQL."""
    return "`" + name.replace("`", "``") + "`"


def _column(row: tuple[Any, ...]) -> tuple[BinlogColumn, str]:
    """A column and the expression that selects it. FLOAT is multiplied: a server prints only six digits of it."""
    database, table, name, nullable, kind, full = (str(value) for value in row[:6])
    octets, charset, precision, scale, digits = row[6:11]
    kind, full = kind.lower(), full.lower() if kind.lower() not in ("enum", "set") else full
    quoted = quote_name(name)
    column = BinlogColumn(name, 0, 0, nullable == "YES", unsigned="unsigned" in full)
    text = 0 if charset is None else _UTF8MB4

    def typed(type_: BinlogColumnType, meta: int = 0, collation: int = 0) -> BinlogColumn:
        return structs.replace(column, type=int(type_), meta=meta, collation=collation)

    if kind in _INTEGERS:
        return typed(_INTEGERS[kind]), quoted
    if kind in ("float", "double"):
        return typed(_PLAIN[kind]), f"({quoted} * 1e0)"
    if kind in _PLAIN:
        return typed(_PLAIN[kind]), quoted
    if kind in _TIMES:
        return typed(_TIMES[kind], int(digits or 0)), quoted
    if kind == "decimal":
        return typed(_T.NEWDECIMAL, int(precision) << 8 | int(scale)), quoted
    if kind == "bit":
        return typed(_T.BIT, int(precision)), quoted
    if kind in _STRINGS:
        return typed(_STRINGS[kind], int(octets or 0), text or BINARY_COLLATION), quoted
    if kind in _BLOBS:
        return typed(_T.BLOB, _BLOBS[kind], text or BINARY_COLLATION), quoted
    if kind in ("enum", "set"):
        values = tuple(value.replace("''", "'") for value in _MEMBER.findall(full))
        return structs.replace(
            typed(_T.ENUM if kind == "enum" else _T.SET, 1, _UTF8MB4), values=values, unsigned=False
        ), quoted
    if kind == "json":
        return typed(_T.JSON, 4), quoted
    if kind == "vector":
        return typed(_T.VECTOR, 4), quoted
    if kind in _GEOMETRIES:
        return typed(_T.GEOMETRY, 4), quoted
    if kind in _MARIADB_BYTES:
        size, expression = _MARIADB_BYTES[kind]
        return typed(_T.STRING, size, BINARY_COLLATION), expression.format(quoted)
    problem = (
        f"column {database}.{table}.{name} has the type {full}, which Barnabas does not read: leave the column out "
        "with column.exclude.list, or the table with table.exclude.list, or change the column's type"
    )
    return structs.replace(column, type=int(_T.NULL), unreadable=problem), quoted
