"""Table: the types of PostgreSQL as Arrow types.

    boolean                       bool           date                          date32
    smallint, integer, bigint     int16, 32, 64  time                          time64 (microseconds)
    oid                           int64          timestamp                     timestamp (microseconds)
    real, double precision        float32, 64    timestamptz                   timestamp (microseconds, UTC)
    numeric(p,s), 38 digits       decimal128     bytea                         binary
    other numeric                 string         hstore                        map<string, string>
    arrays of these               list           everything else               string, as the server prints it

"Everything else" includes char, varchar, text, json, jsonb, uuid, xml, enums, ranges, composite types, inet, bit
strings, interval, timetz, money and geometric types. A domain is its base type; the server names the base type but not
its precision, so a domain over numeric is a string. An array of a user-defined type is a list of strings: the server
sends only the name of the type, and PostgreSQL begins the names of array types with an underscore. A user-defined type
that is no array must not have such a name. The result depends only on what the server sends with the changes, never on
the catalog, which would show the current types.
Source: `src/include/catalog/pg_type.dat`, `numeric.c` (typmod), `pgoutput.c` (names of types).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum, auto
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct

from barnabas.spark.connectors.postgres.errors import PostgresValueError
from barnabas.spark.connectors.postgres.messages import Column, TypeName

DECIMAL_DIGITS_MAX: Final = 38
FIRST_NAMED_TYPE: Final = 10_000
"""FirstGenbkiObjectId: the server sends a name (`Y`) for each type with this oid or a larger one."""


class OutOfRange(StrEnum):
    """What becomes of dates and timestamps that Spark cannot hold: infinity, years before 1 and after 9999."""

    FAIL = "fail"
    NULL = "null"
    CLAMP = "clamp"  # the nearest value from 0001-01-01 to 9999-12-31 23:59:59.999999
    TEXT = "text"  # all columns of such types become strings


class NotANumber(StrEnum):
    """What becomes of NaN, Infinity and -Infinity in a numeric. They are values of float columns."""

    FAIL = "fail"  # in a row, a numeric that is a string has them as text
    NULL = "null"
    TEXT = "text"  # all numeric columns become strings, also in events


class Arrays(StrEnum):
    """How arrays are read. A list has one dimension; PostgreSQL does not say in a type how many a value has."""

    LIST = "list"  # a value with several dimensions is an error; lower bounds other than 1 are dropped
    TEXT = "text"


class ValuePolicy(Struct, frozen=True):
    """What becomes of values that Arrow and Spark have no place for."""

    out_of_range: OutOfRange = OutOfRange.FAIL
    not_a_number: NotANumber = NotANumber.FAIL
    arrays: Arrays = Arrays.LIST


class Kind(Enum):
    """How a value in text form is read."""

    BOOLEAN = auto()
    NUMBER = auto()
    DECIMAL = auto()
    STRING = auto()
    BINARY = auto()
    DATE = auto()
    TIME = auto()
    TIMESTAMP = auto()
    LIST = auto()
    MAP = auto()


class ColumnType(Struct, frozen=True):
    """How a column is read, and its Arrow type. `element` is set for lists."""

    name: str
    kind: Kind
    arrow: Any
    element: ColumnType | None = None


class _BuiltIn(Struct, frozen=True):
    name: str
    kind: Kind
    arrow: Any


_STRING: Final = pa.string()
BUILT_IN: Final = (
    # oid, oid of the array type, name, kind, Arrow type
    (16, 1000, "bool", Kind.BOOLEAN, pa.bool_()),
    (17, 1001, "bytea", Kind.BINARY, pa.binary()),
    (18, 1002, "char", Kind.STRING, _STRING),
    (19, 1003, "name", Kind.STRING, _STRING),
    (20, 1016, "int8", Kind.NUMBER, pa.int64()),
    (21, 1005, "int2", Kind.NUMBER, pa.int16()),
    (23, 1007, "int4", Kind.NUMBER, pa.int32()),
    (25, 1009, "text", Kind.STRING, _STRING),
    (26, 1028, "oid", Kind.NUMBER, pa.int64()),
    (114, 199, "json", Kind.STRING, _STRING),
    (142, 143, "xml", Kind.STRING, _STRING),
    (600, 1017, "point", Kind.STRING, _STRING),
    (601, 1018, "lseg", Kind.STRING, _STRING),
    (602, 1019, "path", Kind.STRING, _STRING),
    (604, 1027, "polygon", Kind.STRING, _STRING),
    (628, 629, "line", Kind.STRING, _STRING),
    (650, 651, "cidr", Kind.STRING, _STRING),
    (700, 1021, "float4", Kind.NUMBER, pa.float32()),
    (701, 1022, "float8", Kind.NUMBER, pa.float64()),
    (718, 719, "circle", Kind.STRING, _STRING),
    (774, 775, "macaddr8", Kind.STRING, _STRING),
    (790, 791, "money", Kind.STRING, _STRING),
    (829, 1040, "macaddr", Kind.STRING, _STRING),
    (869, 1041, "inet", Kind.STRING, _STRING),
    (1042, 1014, "bpchar", Kind.STRING, _STRING),
    (1043, 1015, "varchar", Kind.STRING, _STRING),
    (1082, 1182, "date", Kind.DATE, pa.date32()),
    (1083, 1183, "time", Kind.TIME, pa.time64("us")),
    (1114, 1115, "timestamp", Kind.TIMESTAMP, pa.timestamp("us")),
    (1184, 1185, "timestamptz", Kind.TIMESTAMP, pa.timestamp("us", "UTC")),
    (1186, 1187, "interval", Kind.STRING, _STRING),
    (1266, 1270, "timetz", Kind.STRING, _STRING),
    (1560, 1561, "bit", Kind.STRING, _STRING),
    (1562, 1563, "varbit", Kind.STRING, _STRING),
    (1700, 1231, "numeric", Kind.DECIMAL, None),
    (2950, 2951, "uuid", Kind.STRING, _STRING),
    (3220, 3221, "pg_lsn", Kind.STRING, _STRING),
    (3614, 3643, "tsvector", Kind.STRING, _STRING),
    (3615, 3645, "tsquery", Kind.STRING, _STRING),
    (3802, 3807, "jsonb", Kind.STRING, _STRING),
    (3904, 3905, "int4range", Kind.STRING, _STRING),
    (3906, 3907, "numrange", Kind.STRING, _STRING),
    (3908, 3909, "tsrange", Kind.STRING, _STRING),
    (3910, 3911, "tstzrange", Kind.STRING, _STRING),
    (3912, 3913, "daterange", Kind.STRING, _STRING),
    (3926, 3927, "int8range", Kind.STRING, _STRING),
    (4072, 4073, "jsonpath", Kind.STRING, _STRING),
)
"""The types of PostgreSQL that are known by their oids; others are strings."""
_BY_OID: Final = {oid: _BuiltIn(name, kind, arrow) for oid, _, name, kind, arrow in BUILT_IN}
_ELEMENTS: Final = {array_oid: _BY_OID[oid] for oid, array_oid, *_ in BUILT_IN}
_BY_NAME: Final = {one.name: one for one in _BY_OID.values()}
_HSTORE: Final = ColumnType("hstore", Kind.MAP, pa.map_(_STRING, _STRING))


def column_type(column: Column, types: Mapping[int, TypeName], policy: ValuePolicy) -> ColumnType:
    """The type of a column of a relation, with the names of types that were sent with the relation.

    Raises PostgresValueError if the type needs a name and has none.
    """
    oid = column.type_oid
    if oid < FIRST_NAMED_TYPE:
        if oid in _BY_OID:
            return _scalar(_BY_OID[oid], column.typmod, policy)
        if oid in _ELEMENTS:
            return _list(_scalar(_ELEMENTS[oid], column.typmod, policy), policy)
        return ColumnType(f"type {oid}", Kind.STRING, _STRING)
    name = types.get(oid)
    if name is None:
        raise PostgresValueError(
            f"the column {column.name} has the type {oid}, whose name the server has not sent: read the changes from"
            " the start of a peek"
        )
    return _named(name, policy)


def _named(type_name: TypeName, policy: ValuePolicy) -> ColumnType:
    schema, name = type_name.schema, type_name.name
    element = name.removeprefix("_")
    if schema == "pg_catalog":
        if name in _BY_NAME:
            return _scalar(_BY_NAME[name], -1, policy)
        if element in _BY_NAME:
            return _list(_scalar(_BY_NAME[element], -1, policy), policy)
        return ColumnType(name, Kind.STRING, _STRING)
    if element == "hstore":
        return _HSTORE if name == element else _list(_HSTORE, policy)
    if name != element:
        return _list(ColumnType(f"{schema}.{element}", Kind.STRING, _STRING), policy)
    return ColumnType(f"{schema}.{name}", Kind.STRING, _STRING)


def _scalar(built_in: _BuiltIn, typmod: int, policy: ValuePolicy) -> ColumnType:
    if built_in.kind is Kind.DECIMAL:
        return _numeric(typmod, policy)
    if built_in.kind in (Kind.DATE, Kind.TIME, Kind.TIMESTAMP) and policy.out_of_range is OutOfRange.TEXT:
        return ColumnType(built_in.name, Kind.STRING, _STRING)
    return ColumnType(built_in.name, built_in.kind, built_in.arrow)


def _numeric(typmod: int, policy: ValuePolicy) -> ColumnType:
    """numeric(p,s). The typmod is p << 16 | s + 4, where s has 11 bits with a sign from PostgreSQL 15 on."""
    if typmod < 4:
        return ColumnType("numeric", Kind.STRING, _STRING)
    precision = (typmod - 4) >> 16 & 0xFFFF
    scale = ((typmod - 4 & 0x7FF) ^ 1024) - 1024
    name = f"numeric({precision},{scale})"
    # A negative scale stands for zeros before the point; a scale above the precision, for zeros after it.
    digits = precision - scale if scale < 0 else max(precision, scale)
    if digits > DECIMAL_DIGITS_MAX or policy.not_a_number is NotANumber.TEXT:
        return ColumnType(name, Kind.STRING, _STRING)
    return ColumnType(name, Kind.DECIMAL, pa.decimal128(digits, max(scale, 0)))


def _list(element: ColumnType, policy: ValuePolicy) -> ColumnType:
    if policy.arrays is Arrays.TEXT:
        return ColumnType(f"{element.name}[]", Kind.STRING, _STRING)
    return ColumnType(f"{element.name}[]", Kind.LIST, pa.list_(pa.field("element", element.arrow)), element)
