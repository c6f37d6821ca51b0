"""Codec: the mappings of types in the code, and the matrix of values -> docs/reference/types.md.

What Debezium does is a table here (DEBEZIUM_*), so that the page shows a type of events only where it differs.
Source: Debezium's documentation of its connectors for PostgreSQL, MySQL and MariaDB, "Data type mappings".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from barnabas.spark.connectors.arrow_fields import arrow_field
from barnabas.spark.connectors.connect_schemas import ConnectSchema, ConnectType
from barnabas.spark.connectors.events.changes import ColumnSchema
from barnabas.spark.connectors.events.field_types import field_schema
from barnabas.spark.connectors.events.options import EventOptions
from barnabas.spark.connectors.lake.columns import lake_schema
from barnabas.spark.connectors.mysql.columns import column_schema as mysql_schema
from barnabas.spark.connectors.mysql.columns import snapshot_table
from barnabas.spark.connectors.postgres.messages import Column, TypeName
from barnabas.spark.connectors.postgres.tables import column_schema as postgres_schema
from barnabas.spark.connectors.postgres.types import BUILT_IN, ValuePolicy, column_type
from barnabas.spark.connectors.sql.dialects import Dialect
from barnabas.spark.connectors.sql.sinks.column_types import created_column
from barnabas.spark.connectors.sql.sinks.debezium_types import meant
from barnabas.spark.records.avro_schemas import avro_schema_of
from barnabas.spark.records.json_types import json_schema_of
from barnabas.spark.records.types import spark_arrow, spark_ddl

MATRIX: Final = Path(__file__).parents[2] / "system" / "connectors" / "type_matrix"
OPTIONS: Final = EventOptions("x", "x", "x")
_SHORT: Final = {"io.debezium.": "", "org.apache.kafka.connect.data.": "Connect's "}

# -- the columns of a database -----------------------------------------------------------------------------------------

_USER: Final = 20_000
_NAMED: Final = {
    _USER: ("enum", TypeName(_USER, "public", "mood")),
    _USER + 1: ("composite type", TypeName(_USER + 1, "public", "pair")),
    _USER + 2: ("hstore", TypeName(_USER + 2, "public", "hstore")),
    _USER + 3: ("domain over int", TypeName(_USER + 3, "pg_catalog", "int4")),
    _USER + 4: ("domain over numeric(10,2)", TypeName(_USER + 4, "pg_catalog", "numeric")),
    _USER + 5: ("enum[]", TypeName(_USER + 5, "public", "_mood")),
}
_NUMERICS: Final = {
    "numeric(10,2)": (10 << 16 | 2) + 4, "numeric(50,10)": (50 << 16 | 10) + 4, "numeric": -1,
}  # fmt: skip
_ARRAYS: Final = (
    "bool",
    "int4",
    "float8",
    "text",
    "bytea",
    "date",
    "time",
    "timestamp",
    "timestamptz",
    "uuid",
    "jsonb",
)
_WITH_DIGITS: Final = {"time": 3, "timestamp": 3}


def postgres_columns() -> Iterator[tuple[str, ColumnSchema]]:
    """A column of each type of PostgreSQL, with the type as SQL writes it."""

    def column(oid: int, typmod: int = -1) -> ColumnSchema:
        types = {oid: _NAMED[oid][1]} if oid in _NAMED else {}
        given = Column("v", oid, typmod, False)
        return postgres_schema(given, column_type(given, types, ValuePolicy()), ValuePolicy(), nullable=True)

    for oid, _, name, *_ in BUILT_IN:
        if name == "numeric":
            for shown, typmod in _NUMERICS.items():
                yield shown, column(oid, typmod)
            continue
        yield name, column(oid)
        if name in _WITH_DIGITS:
            yield f"{name}({_WITH_DIGITS[name]})", column(oid, _WITH_DIGITS[name])
    for oid, (shown, _) in _NAMED.items():
        yield shown, column(oid)
    for _, array_oid, name, *_ in BUILT_IN:
        if name in _ARRAYS:
            yield f"{name}[]", column(array_oid)
        if name == "numeric":
            yield "numeric(10,2)[]", column(array_oid, _NUMERICS["numeric(10,2)"])
            yield "numeric[]", column(array_oid)


_MYSQL: Final = (
    # type, octets, character set, precision, scale, digits of a second
    ("tinyint", None, None, 3, 0, None),
    ("tinyint unsigned", None, None, 3, 0, None),
    ("smallint", None, None, 5, 0, None),
    ("smallint unsigned", None, None, 5, 0, None),
    ("mediumint", None, None, 7, 0, None),
    ("mediumint unsigned", None, None, 7, 0, None),
    ("int", None, None, 10, 0, None),
    ("int unsigned", None, None, 10, 0, None),
    ("bigint", None, None, 19, 0, None),
    ("bigint unsigned", None, None, 20, 0, None),
    ("decimal(10,2)", None, None, 10, 2, None),
    ("decimal(65,30)", None, None, 65, 30, None),
    ("float", None, None, 12, None, None),
    ("double", None, None, 22, None, None),
    ("bit(1)", None, None, 1, None, None),
    ("bit(12)", None, None, 12, None, None),
    ("year", None, None, None, None, None),
    ("date", None, None, None, None, None),
    ("time", None, None, None, None, 0),
    ("time(6)", None, None, None, None, 6),
    ("datetime", None, None, None, None, 0),
    ("datetime(6)", None, None, None, None, 6),
    ("timestamp", None, None, None, None, 0),
    ("char(10)", 40, "utf8mb4", None, None, None),
    ("varchar(10)", 40, "utf8mb4", None, None, None),
    ("longtext", 4294967295, "utf8mb4", None, None, None),
    ("binary(4)", 4, None, None, None, None),
    ("varbinary(10)", 10, None, None, None, None),
    ("longblob", 4294967295, None, None, None, None),
    ("enum('x','y')", 4, "utf8mb4", None, None, None),
    ("set('p','q')", 12, "utf8mb4", None, None, None),
    ("json", None, None, None, None, None),
    ("point", None, None, None, None, None),
    ("inet4", None, None, None, None, None),
    ("inet6", None, None, None, None, None),
)


def mysql_columns() -> Iterator[tuple[str, ColumnSchema]]:
    """A column of each type of MySQL and MariaDB."""
    for full, *numbers in _MYSQL:
        kind = re.split(r"[ (]", full)[0]
        table = snapshot_table(("d", "t"), [("d", "t", "v", "YES", kind, full, *numbers, "InnoDB", "", "")], ()).table
        yield full, mysql_schema(table, table.columns[0])


# -- pages -------------------------------------------------------------------------------------------------------------

_HEAD: Final = "PostgreSQL | MySQL, MariaDB | SQLite | DuckDB | Delta, Iceberg"


def render_rows(columns: Iterator[tuple[str, ColumnSchema]]) -> str:
    """The types that columns have in Spark, in tables that sinks create, and in files and topics."""
    lines = [f"| Type | Spark | {_HEAD} | JSON | Avro |", "|---|---|---|---|---|---|---|---|---|"]
    for names, schema in _alike(columns, lambda schema: spark_arrow(schema.type)):
        kind = spark_arrow(schema.type)
        formats = f"{_json_type(kind)} | {_avro_type(kind)}"
        lines.append(f"| {names} | {_ddl(kind)} | {_created('v', kind)} | {formats} |")
    return "\n".join(lines) + "\n"


def render_events(columns: Iterator[tuple[str, ColumnSchema]]) -> str:
    """The types that columns have in events, and in tables that sinks create from these."""
    lines = [f"| Type | Event | {_HEAD} |", "|---|---|---|---|---|---|---|"]
    for names, schema in _alike(columns, lambda schema: shown_schema(field_schema(schema, OPTIONS))):
        connect = field_schema(schema, OPTIONS)
        field = arrow_field("v", connect)
        cells = []
        for dialect in (Dialect.POSTGRES, Dialect.MYSQL, Dialect.SQLITE, Dialect.DUCKDB):
            means, _ = meant(field, pa.nulls(0, field.type), dialect)
            cells.append(created_column(dialect, means).type.replace(" CHARACTER SET utf8mb4", ""))
        cells.append(_ddl(lake_schema(pa.schema([field])).field(0).type))
        lines.append(f"| {names} | {shown_schema(connect)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _alike(columns: Iterator[tuple[str, ColumnSchema]], form: Any) -> Iterator[tuple[str, ColumnSchema]]:
    """The names of types that have one form, and one of their columns."""
    groups: dict[str, list[tuple[str, ColumnSchema]]] = {}
    for name, schema in columns:
        groups.setdefault(str(form(schema)), []).append((name, schema))
    for found in groups.values():
        yield ", ".join(f"`{name}`" for name, _ in found), found[0][1]


def _created(name: str, kind: Any) -> str:
    cells = [
        created_column(dialect, pa.field(name, kind)).type.replace(" CHARACTER SET utf8mb4", "")
        for dialect in (Dialect.POSTGRES, Dialect.MYSQL, Dialect.SQLITE, Dialect.DUCKDB)
    ]
    return " | ".join([*cells, _ddl(lake_schema(pa.schema([pa.field(name, kind)])).field(0).type)])


def _json_type(kind: Any) -> str:
    found = json.loads(json_schema_of(pa.struct([pa.field("v", kind)]), "v"))["properties"]["v"]
    of = found.get("items") or found.get("additionalProperties")
    names = [one["type"] for one in reversed(of["oneOf"])] if of else []
    return f"{found['type']} of {' or '.join(names)}" if of else str(found["type"])


def _avro_type(kind: Any) -> str:
    (field,) = json.loads(avro_schema_of(pa.struct([pa.field("v", kind)]), "v"))["fields"]
    return _avro_name(field["type"])


def _avro_name(schema: Any) -> str:
    """An Avro type that may be null, in short."""
    (kind,) = (one for one in schema if one != "null")
    if isinstance(kind, str):
        return kind
    if kind["type"] in ("array", "map"):
        return f"{kind['type']} of {_avro_name(kind.get('items') or kind['values'])}"
    digits = f"({kind['precision']},{kind['scale']})" if "precision" in kind else ""
    return f"{kind['type']} {kind['logicalType']}{digits}"


def _ddl(kind: Any) -> str:
    return spark_ddl(kind).replace("`", "")


def shown_schema(schema: ConnectSchema) -> str:
    """A schema of Connect in short: its type and its name."""
    if schema.type is ConnectType.ARRAY:
        assert schema.items is not None
        return f"array of {shown_schema(schema.items)}"
    name = schema.name or ""
    for prefix, short in _SHORT.items():
        name = name.replace(prefix, short)
    return f"{schema.type.value} {name}".strip()


# -- differences from Debezium -----------------------------------------------------------------------------------------

DEBEZIUM_POSTGRES: Final = {
    "oid": "int64",
    "char": "string",
    "name": "string",
    "money": "bytes Connect's Decimal",
    "json": "string data.Json",
    "jsonb": "string data.Json",
    "xml": "string data.Xml",
    "uuid": "string data.Uuid",
    "bit": "boolean, or bytes data.Bits",
    "varbit": "bytes data.Bits",
    "interval": "int64 time.MicroDuration, or string time.Interval",
    "timetz": "string time.ZonedTime",
    "tsvector": "string data.Tsvector",
    "point": "struct data.geometry.Point",
    "lseg": "struct data.geometry.Geometry",
    "path": "struct data.geometry.Geometry",
    "polygon": "struct data.geometry.Geometry",
    "line": "struct data.geometry.Line",
    "circle": "struct data.geometry.Circle",
    "enum": "string data.Enum",
    "composite type": "left out, unless include.unknown.datatypes=true",
    "hstore": "string data.Json",
    "domain over numeric(10,2)": "bytes Connect's Decimal",
    "tsquery": "left out, unless include.unknown.datatypes=true",
    "pg_lsn": "left out, unless include.unknown.datatypes=true",
    "jsonpath": "left out, unless include.unknown.datatypes=true",
    "enum[]": "array of string data.Enum",
    "uuid[]": "array of string data.Uuid",
    "jsonb[]": "array of string data.Json",
}
"""Debezium's form of types, as far as the Connect type alone does not say it."""

DEBEZIUM_MYSQL: Final = {
    "bigint unsigned": "int64, which wraps, or bytes Connect's Decimal",
    "bit(12)": "bytes data.Bits",
    "point": "struct data.geometry.Point",
    "enum('x','y')": "string data.Enum",
    "set('p','q')": "string data.EnumSet",
    "json": "string data.Json",
}

VALUES: Final = (
    ("infinity, years before 1 and after 9999", "numbers and texts of their own",
     "the query stops; `out.of.range.handling.mode`"),
    ("NaN and infinity in `numeric`", "precise stops, double has them, string has `NAN`, `POSITIVE_INFINITY`",
     "precise stops (`nan.handling.mode`), double has them, string has `NaN`, `Infinity`"),
    ("`numeric` in JSON without schemas", "base64",
     "a text, unless `decimal.handling.mode` or `decimal.format` is given; `BIGINT UNSIGNED` is a number"),
    ("dates of MySQL without a calendar, in a column that is NOT NULL", "the epoch, 1970-01-01",
     "null: columns of dates may always be null"),
    ("`interval`", "ISO text, or microseconds with months of 30.4 days", "the text that PostgreSQL prints"),
    ("arrays with several dimensions", "the column is left out, or the value is null",
     "the query stops; `array.handling.mode=text`"),
    ("an array whose indexes do not begin at 1", "its elements", "its elements"),
    ("`CHAR(n)` of PostgreSQL", "with its spaces", "with its spaces"),
    ("a value that an update did not change (TOAST)", "the placeholder, also in the create of a changed key",
     "the placeholder and the header `__barnabas.unavailable`; the create of a changed key has the value"),
    ("`ts_ms`, `ts_us`, `ts_ns` of the envelope", "when the event was made", "those of the source, so that a range that"
     " is read again gives the same bytes"),
    ("events without a schema in ExtractNewRecordState", "stay as they are", "are made flat"),
)  # fmt: skip


def render_differences() -> str:
    """Types, then values."""
    lines = ["| Database | Type | Debezium | Here |", "|---|---|---|---|"]
    for database, columns, known in (
        ("PostgreSQL", postgres_columns(), DEBEZIUM_POSTGRES),
        ("MySQL, MariaDB", mysql_columns(), DEBEZIUM_MYSQL),
    ):
        by_pair: dict[tuple[str, str], list[str]] = {}
        for name, schema in columns:
            here = shown_schema(field_schema(schema, OPTIONS))
            if known.get(name, here) != here:
                by_pair.setdefault((known[name], here), []).append(f"`{name}`")
        lines += [f"| {database} | {', '.join(names)} | {pair[0]} | {pair[1]} |" for pair, names in by_pair.items()]
    lines += ["", "| Value | Debezium | Here |", "|---|---|---|"]
    lines += [f"| {value} | {theirs} | {ours} |" for value, theirs, ours in VALUES if theirs != ours]
    return "\n".join(lines) + "\n"


# -- values ------------------------------------------------------------------------------------------------------------


def render_values(database: str) -> str:
    """The values of the matrix that are not equal in some sink, and those that stop a query."""
    lines = ["| Type | Value | In the sink | Where |", "|---|---|---|---|"]
    kind = value = ""
    for line in (MATRIX / f"{database}.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith(" "):
            kind = line.partition(": ")[2]
        elif line.startswith("    "):
            outcome, _, where = line.strip().rpartition("  <- ")
            if outcome != "=":
                lines.append(f"| `{kind}` | {_code(value)} | {_outcome(outcome)} | {where} |")
        elif line.startswith("  ! "):
            refused, _, option = line[4:].rpartition(": ")
            lines.append(f"| `{kind}` | {_code(refused)} | stops: `{option}`, ... | every path |")
        else:
            value = line.strip()
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    plain = text.strip('"').replace('\\"', '"').replace("\\\\", "\\").replace("|", "\\|")
    return f"`{plain}`" if plain and "`" not in plain else '""'


def _outcome(text: str) -> str:
    if text.startswith("! "):
        reasons = {"is no number": ": it is no number", "which CSV does not have": ": CSV does not have it"}
        return "stops" + next((reason for part, reason in reasons.items() if part in text), "")
    return text if text == "null" else _code(text)
