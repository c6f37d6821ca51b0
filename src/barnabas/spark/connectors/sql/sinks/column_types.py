"""Table: the types of columns that the sinks create, for each type of Arrow and each database.

    Arrow                     PostgreSQL          MySQL, MariaDB             SQLite     DuckDB
    bool                      boolean             tinyint(1)                 BOOLEAN    BOOLEAN
    int8 .. int64             smallint .. bigint  tinyint .. bigint          INTEGER    TINYINT .. BIGINT
    uint64                    numeric(20,0)       bigint unsigned            TEXT       UBIGINT
    decimal(p, s)             numeric(p,s)        decimal(p,s)               TEXT       DECIMAL(p,s)
    float, double             real, double        float, double              REAL       FLOAT, DOUBLE
    string                    text                longtext; key: varchar     TEXT       VARCHAR
    binary                    bytea               longblob; key: varbinary   BLOB       BLOB
    date                      date                date                       DATE       DATE
    time                      time                time(6)                    TIME       TIME
    timestamp without zone    timestamp           datetime(6)                DATETIME   TIMESTAMP
    timestamp with zone       timestamptz         datetime(6)                DATETIME   TIMESTAMPTZ
    list of a scalar          an array            json                       TEXT       a list
    struct, map, JSON         jsonb               json                       TEXT       JSON

MySQL's TIMESTAMP ends in 2038, and SQLite has no times, so that there instants become DATETIMEs in db.timezone.
Decimals that a database has no type for are text.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from barnabas.spark.connectors.converters.runs import is_json
from barnabas.spark.connectors.sql.dialects import Dialect
from barnabas.spark.connectors.sql.sinks.errors import DatabaseSinkError
from barnabas.spark.connectors.sql.sinks.ports import ColumnKind, TableColumn

KEY_LENGTH: Final = 255
"""The length of a key of texts or bytes in MySQL, whose keys need one."""
_DIGITS: Final = {Dialect.POSTGRES: 1000, Dialect.MYSQL: 65, Dialect.SQLITE: 0, Dialect.DUCKDB: 38}
_MYSQL_SCALE: Final = 30
_K = ColumnKind

_SCALARS: Final[dict[Any, tuple[ColumnKind, tuple[str, str, str, str]]]] = {
    pa.bool_(): (_K.BOOLEAN, ("boolean", "tinyint(1)", "BOOLEAN", "BOOLEAN")),
    pa.int8(): (_K.INTEGER, ("smallint", "tinyint", "INTEGER", "TINYINT")),
    pa.int16(): (_K.INTEGER, ("smallint", "smallint", "INTEGER", "SMALLINT")),
    pa.int32(): (_K.INTEGER, ("integer", "int", "INTEGER", "INTEGER")),
    pa.int64(): (_K.INTEGER, ("bigint", "bigint", "INTEGER", "BIGINT")),
    pa.uint8(): (_K.INTEGER, ("smallint", "smallint", "INTEGER", "SMALLINT")),
    pa.uint16(): (_K.INTEGER, ("integer", "int", "INTEGER", "INTEGER")),
    pa.uint32(): (_K.INTEGER, ("bigint", "bigint", "INTEGER", "BIGINT")),
    pa.uint64(): (_K.DECIMAL, ("numeric(20,0)", "bigint unsigned", "TEXT", "UBIGINT")),
    pa.float16(): (_K.FLOAT, ("real", "float", "REAL", "FLOAT")),
    pa.float32(): (_K.FLOAT, ("real", "float", "REAL", "FLOAT")),
    pa.float64(): (_K.FLOAT, ("double precision", "double", "REAL", "DOUBLE")),
    pa.string(): (_K.TEXT, ("text", "longtext", "TEXT", "VARCHAR")),
    pa.binary(): (_K.BYTES, ("bytea", "longblob", "BLOB", "BLOB")),
    pa.date32(): (_K.DATE, ("date", "date", "DATE", "DATE")),
}
_TIME: Final = ("time", "time(6)", "TIME", "TIME")
_LOCAL: Final = ("timestamp", "datetime(6)", "DATETIME", "TIMESTAMP")
_INSTANT: Final = ("timestamp with time zone", "datetime(6)", "DATETIME", "TIMESTAMPTZ")
_JSON: Final = ("jsonb", "json", "TEXT", "JSON")
_TEXT: Final = ("text", "longtext", "TEXT", "VARCHAR")
_INDEX: Final = {Dialect.POSTGRES: 0, Dialect.MYSQL: 1, Dialect.SQLITE: 2, Dialect.DUCKDB: 3}


def created_column(dialect: Dialect, field: Any, *, is_key: bool = False, collation: str = "") -> TableColumn:
    """The column that is created for a column of rows. `collation` is the one of texts in keys, if not the database's
    own. Raises DatabaseSinkError for a type that no column holds.
    """
    kind, names, more = _type_of(dialect, plain_type(field.type), field)
    written = names[_INDEX[dialect]]
    if dialect is Dialect.MYSQL and is_key and kind in (_K.TEXT, _K.BYTES):
        written = f"varchar({KEY_LENGTH})" if kind is _K.TEXT else f"varbinary({KEY_LENGTH})"
        more = {"length": KEY_LENGTH} if kind is _K.TEXT else {"size": KEY_LENGTH}
    if dialect is Dialect.MYSQL and kind is _K.TEXT:
        written += " CHARACTER SET utf8mb4" + (f" COLLATE {collation}" if is_key and collation else "")
    return TableColumn(field.name, written, kind, nullable=not is_key, **more)


def _type_of(dialect: Dialect, kind: Any, field: Any) -> tuple[ColumnKind, tuple[str, ...], dict[str, Any]]:
    types = pa.types
    if is_json(field) or types.is_struct(kind) or types.is_map(kind):
        return _K.JSON, _JSON, {}
    if kind in _SCALARS:
        found, names = _SCALARS[kind]
        return found, names, _limits(dialect, found, names)
    if types.is_null(kind):
        return _K.TEXT, _TEXT, {}
    if types.is_time(kind):
        return _K.TIME, _TIME, {}
    if types.is_timestamp(kind):
        if kind.tz is None or dialect in (Dialect.MYSQL, Dialect.SQLITE):
            return _K.LOCAL_TIMESTAMP, _LOCAL, {}
        return _K.INSTANT, _INSTANT, {}
    if types.is_decimal(kind):
        precision, scale = max(kind.precision - min(kind.scale, 0), kind.scale), max(kind.scale, 0)
        if precision > _DIGITS[dialect] or (dialect is Dialect.MYSQL and scale > _MYSQL_SCALE):
            return _K.TEXT, _TEXT, {}
        numbers = f"({precision},{scale})"
        names = (f"numeric{numbers}", f"decimal{numbers}", "TEXT", f"DECIMAL{numbers}")
        return _K.DECIMAL, names, {"precision": precision, "scale": scale}
    if types.is_list(kind):
        return _list_type(dialect, plain_type(kind.value_type), field)
    raise DatabaseSinkError(
        f"the column {field.name} has the type {kind}, which {dialect} has no type for: cast it, for example to string"
    )


def _list_type(dialect: Dialect, element: Any, field: Any) -> tuple[ColumnKind, tuple[str, ...], dict[str, Any]]:
    nested = pa.types.is_nested(element) or pa.types.is_null(element)
    if dialect in (Dialect.MYSQL, Dialect.SQLITE) or nested:
        return _K.JSON, _JSON, {}
    kind, names, _ = _type_of(dialect, element, pa.field(field.name, element))
    lists = tuple(f"{name}[]" for name in names)
    return (_K.JSON, lists, {}) if dialect is Dialect.DUCKDB else (_K.ARRAY, lists, {"element": kind})


_BITS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "integer": 32, "bigint": 64}


def _limits(dialect: Dialect, found: ColumnKind, names: tuple[str, ...]) -> dict[str, Any]:
    if found is not _K.INTEGER:
        return {}
    return {"bits": 64 if dialect is Dialect.SQLITE else _BITS[names[_INDEX[dialect]].lower()]}


def plain_type(kind: Any) -> Any:
    """The type without dictionaries, large offsets and fixed sizes."""
    types = pa.types
    if types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_fixed_size_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_date64(kind):
        return pa.date32()
    if types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field)
    return kind


def common_field(one: Any, other: Any) -> Any:
    """The column that holds the values of both columns, which have the same name. Raises DatabaseSinkError."""
    first, second = plain_type(one.type), plain_type(other.type)
    types = pa.types
    if types.is_null(second):
        return one
    if types.is_null(first):
        return other
    if is_json(one) is not is_json(other):
        json, plain = (one, other) if is_json(one) else (other, one)
        if types.is_nested(plain_type(plain.type)):
            return json
        if types.is_string(plain_type(plain.type)):
            return plain  # texts that need not be JSON
    if first.equals(second):
        return one
    numbers = [kind for kind in (first, second) if types.is_integer(kind) or types.is_floating(kind)]
    if len(numbers) == 2:
        if any(types.is_floating(kind) for kind in numbers):
            return one.with_type(pa.float64())
        return one.with_type(pa.int64())
    if types.is_decimal(first) and types.is_decimal(second):
        whole = max(first.precision - first.scale, second.precision - second.scale)
        scale = max(first.scale, second.scale)
        if whole + scale <= 76:
            return one.with_type(pa.decimal256(whole + scale, scale))
    raise DatabaseSinkError(
        f"the column {one.name} has values of the types {first} and {second} in one micro-batch: create the table with"
        " a column that holds both, or cast the values"
    )
