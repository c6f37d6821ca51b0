"""Codec: what PostgreSQL's catalog says of a table -> TableColumns, and the queries that read the catalog.

Source: PostgreSQL's manual, chapter "System Catalogs"; the meaning of atttypmod from src/backend/utils/adt.
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.spark.connectors.sql.dialects import Statement
from barnabas.spark.connectors.sql.sinks.ports import ColumnKind, TableColumn

_K = ColumnKind
_KINDS: Final = {
    "bool": _K.BOOLEAN,
    "int2": _K.INTEGER,
    "int4": _K.INTEGER,
    "int8": _K.INTEGER,
    "numeric": _K.DECIMAL,
    "float4": _K.FLOAT,
    "float8": _K.FLOAT,
    "text": _K.TEXT,
    "varchar": _K.TEXT,
    "bpchar": _K.TEXT,
    "name": _K.TEXT,
    "citext": _K.TEXT,
    "bytea": _K.BYTES,
    "date": _K.DATE,
    "time": _K.TIME,
    "timestamp": _K.LOCAL_TIMESTAMP,
    "timestamptz": _K.INSTANT,
    "json": _K.JSON,
    "jsonb": _K.JSON,
}
_BITS: Final = {"int2": 16, "int4": 32, "int8": 64}
_HEADER: Final = 4
"""The length of a varlena header, which atttypmod counts."""


def describe_table(name: str) -> Statement:
    """(kind, problem) of a table whose name is quoted; no row if it does not exist."""
    return Statement(
        "SELECT CASE relkind WHEN 'r' THEN 'TABLE' WHEN 'p' THEN 'PARTITIONED TABLE' WHEN 'v' THEN 'VIEW'"
        " WHEN 'f' THEN 'FOREIGN TABLE' WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE relkind::text END, ''"
        " FROM pg_class WHERE oid = to_regclass(%s)",
        (name,),
    )


def describe_columns(name: str) -> Statement:
    """The arguments of `column_of`, for each column in its order. A domain has the name of its base type."""
    return Statement(
        "WITH RECURSIVE base(attnum, type, typmod) AS (SELECT attnum, atttypid, atttypmod FROM pg_attribute"
        " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
        " UNION ALL SELECT b.attnum, t.typbasetype, t.typtypmod FROM base b JOIN pg_type t ON t.oid = b.type"
        " WHERE t.typtype = 'd')"
        " SELECT a.attname::text, format_type(b.type, b.typmod), t.typname::text, e.typname::text, b.typmod,"
        " NOT a.attnotnull, a.atthasdef OR a.attidentity <> '' FROM pg_attribute a"
        " JOIN base b ON b.attnum = a.attnum JOIN pg_type t ON t.oid = b.type AND t.typtype <> 'd'"
        " LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'"
        " WHERE a.attrelid = to_regclass(%s) ORDER BY a.attnum",
        (name, name),
    )


def describe_keys(name: str) -> Statement:
    """The columns of each unique index that ON CONFLICT can use, the primary key first."""
    return Statement(
        "SELECT ARRAY(SELECT a.attname::text FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)"
        " JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum"
        " WHERE k.place <= i.indnkeyatts ORDER BY k.place) FROM pg_index i"
        " WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indisvalid AND i.indimmediate"
        " AND i.indpred IS NULL AND i.indexprs IS NULL ORDER BY i.indisprimary DESC, i.indexrelid",
        (name,),
    )


def column_of(
    name: str, written: str, base: str, element: str | None, typmod: int, nullable: bool, has_default: bool
) -> TableColumn:
    """A column. `written` is its type as SQL writes it, `base` the name of the type, `element` that of an array's."""
    kind = _K.ARRAY if element is not None else _KINDS.get(base, _K.OTHER)
    limits: dict[str, Any] = {}
    if base in ("varchar", "bpchar") and typmod >= _HEADER:
        limits["length"] = typmod - _HEADER
    if base == "numeric" and typmod >= _HEADER:
        limits |= {"precision": (typmod - _HEADER) >> 16 & 0xFFFF, "scale": _scale(typmod - _HEADER)}
    if base in _BITS:
        limits["bits"] = _BITS[base]
    if element is not None:
        limits["element"] = _KINDS.get(element, _K.OTHER)
    return TableColumn(name, written, kind, nullable, has_default, **limits)


def _scale(typmod: int) -> int:
    """The low eleven bits, which are signed."""
    scale = typmod & 0x7FF
    return scale - 0x800 if scale & 0x400 else scale
