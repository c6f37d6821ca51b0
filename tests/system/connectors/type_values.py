"""Table: the extreme values of every type, for the matrix of types, sinks and paths (`type_matrix.py`).

`literal` is how SQL writes a value, `text` how its server prints it; None if the value has no form and becomes null.
A value with `refused` stops the query with this message, which names the option that decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any


class Form(Enum):
    """How two values are compared."""

    TEXT = auto()
    NUMBER = auto()
    FLOAT = auto()
    FLOAT32 = auto()
    BOOLEAN = auto()
    BYTES = auto()
    TIME = auto()  # dates, times and timestamps
    JSON = auto()
    LIST = auto()


@dataclass(frozen=True)
class Value:
    """A value of a column."""

    literal: str
    text: str | None
    refused: str | None = None


@dataclass(frozen=True)
class ValueType:
    """A type of a column with its values. `name` is that of the column. `rows_only` if events refuse the values."""

    name: str
    ddl: str
    form: Form
    values: tuple[Value, ...]
    element: Form = Form.TEXT
    rows_only: bool = False


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _of(name: str, ddl: str, form: Form, *texts: str | Value, element: Form = Form.TEXT) -> ValueType:
    values = tuple(one if isinstance(one, Value) else Value(_quoted(one), one) for one in texts)
    return ValueType(name, ddl, form, values, element)


def _plain(*literals: str) -> tuple[Value, ...]:
    return tuple(Value(one, one) for one in literals)


def _refuser(message: str) -> Callable[[str], Value]:
    return lambda text: Value(_quoted(text), text, message)


_range = _refuser(r"out\.of\.range\.handling\.mode=null")
_nan = _refuser(r"nan\.handling\.mode=null")
_dimensions = _refuser(r"array\.handling\.mode=text")
_no_place = _refuser(r"does not fit .* correct the row, or read the column with query and a CAST")
_other_type = _refuser(r"is read as .* declare the column with the type of its values")

TEXTS = ("", "é ß 日本 😀", 'it\'s "quoted" \\ and\ttabbed\nline', " spaces ", "NULL", "x" * 70_000)
NINES = "9" * 38
FLOATS = ("0", "-0", "0.1", "NaN", "Infinity", "-Infinity")

POSTGRES_SETUP = (
    "CREATE EXTENSION IF NOT EXISTS hstore SCHEMA public",
    "CREATE TYPE mood AS ENUM ('sad', 'it''s ok', '')",
    "CREATE TYPE pair AS (a int, b text)",
    "CREATE DOMAIN positive AS int CHECK (VALUE > 0)",
    "CREATE DOMAIN price AS numeric(10,2)",
)

POSTGRES_TYPES = (
    _of("c_smallint", "smallint", Form.NUMBER, "-32768", "32767"),
    _of("c_integer", "integer", Form.NUMBER, "-2147483648", "2147483647"),
    _of("c_bigint", "bigint", Form.NUMBER, "-9223372036854775808", "9223372036854775807"),
    _of("c_oid", "oid", Form.NUMBER, "0", "4294967295"),
    _of("c_real", "real", Form.FLOAT32, *FLOATS, "1e-45", "3.4028235e+38"),
    _of("c_double", "double precision", Form.FLOAT, *FLOATS, "5e-324", "1.7976931348623157e+308"),
    _of("c_numeric_10_2", "numeric(10,2)", Form.NUMBER, "-99999999.99", "0.00", "12345678.90", _nan("NaN")),
    _of("c_numeric_38", "numeric(38,0)", Form.NUMBER, NINES, f"-{NINES}"),
    _of("c_numeric_38_38", "numeric(38,38)", Form.NUMBER, f"0.{NINES}", f"-0.{'0' * 37}1"),
    _of("c_numeric_50_10", "numeric(50,10)", Form.NUMBER, f"{'9' * 40}.{'9' * 10}"),
    _of("c_numeric_5_m2", "numeric(5,-2)", Form.NUMBER, "9999900", "0"),
    _of("c_numeric_3_5", "numeric(3,5)", Form.NUMBER, "0.00999"),
    _of("c_numeric", "numeric", Form.NUMBER, "0", "-1.50", "9" * 1000, f"0.{'0' * 499}1"),
    replace(_of("c_no_number", "numeric", Form.NUMBER, "NaN", "Infinity", "-Infinity"), rows_only=True),
    _of("c_money", "money", Form.TEXT, "-$92,233,720,368,547,758.08", "$0.00"),
    _of("c_boolean", "boolean", Form.BOOLEAN, "t", "f"),
    _of("c_char", "char(3)", Form.TEXT, "a  ", "日  "),
    _of("c_varchar", "varchar(3)", Form.TEXT, "", "日本語"),
    _of("c_text", "text", Form.TEXT, *TEXTS),
    _of("c_bytea", "bytea", Form.BYTES, "\\x", "\\x00", "\\x00ff27225c", "\\x" + "ab" * 5000),
    _of("c_bit1", "bit(1)", Form.TEXT, "0", "1"),
    _of("c_bit", "bit(5)", Form.TEXT, "10110", "00001"),
    _of("c_varbit", "bit varying", Form.TEXT, "", "101"),
    _of("c_date", "date", Form.TIME, "0001-01-01", "1582-10-10", "9999-12-31", *map(_range, (
        "infinity", "-infinity", "0044-03-15 BC", "10000-01-01"))),
    _of("c_time", "time", Form.TIME, "00:00:00", "23:59:59.999999", "24:00:00"),
    _of("c_time3", "time(3)", Form.TIME, "00:00:00.001", "24:00:00"),
    _of("c_timetz", "timetz", Form.TEXT, "00:00:00+15:59", "23:59:59.999999-15:59", "24:00:00+00"),
    _of("c_timestamp", "timestamp", Form.TIME, "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", *map(_range, (
        "infinity", "-infinity", "0044-03-15 12:00:00 BC", "294276-12-31 23:59:59.999999"))),
    _of("c_timestamp3", "timestamp(3)", Form.TIME, "1969-12-31 23:59:59.999"),
    _of("c_timestamptz", "timestamptz", Form.TIME, "0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00",
        *map(_range, ("infinity", "-infinity", "0044-03-15 12:00:00+00 BC", "294276-12-31 23:59:59.999999+00"))),
    _of("c_interval", "interval", Form.TEXT, "178000000 years", "-178000000 years",
        "1 mon -1 days +00:00:00.000001", "00:00:00"),
    _of("c_json", "json", Form.JSON, '{"a": 1.00, "b": [1e400, null]}', "null", '"x"'),
    _of("c_jsonb", "jsonb", Form.JSON, '{"a": 1.00, "b": 123456789012345678901234567890}', "null", "[]"),
    _of("c_xml", "xml", Form.TEXT, "<a b=\"1\">&lt;</a>", ""),
    _of("c_uuid", "uuid", Form.TEXT, "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    _of("c_inet", "inet", Form.TEXT, "::1", "10.1.2.3/8"),
    _of("c_cidr", "cidr", Form.TEXT, "10.0.0.0/8"),
    _of("c_macaddr", "macaddr", Form.TEXT, "00:00:00:00:00:00"),
    _of("c_macaddr8", "macaddr8", Form.TEXT, "ff:ff:ff:ff:ff:ff:ff:ff"),
    _of("c_int4range", "int4range", Form.TEXT, "empty", "(,)", "[1,5)"),
    _of("c_numrange", "numrange", Form.TEXT, "[1.50,)"),
    _of("c_tsrange", "tsrange", Form.TEXT, '["0044-03-15 00:00:00 BC",infinity]'),
    _of("c_multirange", "int4multirange", Form.TEXT, "{}", "{[1,3),[5,7)}"),
    _of("c_point", "point", Form.TEXT, "(NaN,-Infinity)", "(0,0.5)"),
    _of("c_polygon", "polygon", Form.TEXT, "((0,0),(1,1),(1,0))"),
    _of("c_circle", "circle", Form.TEXT, "<(0,0),1>"),
    _of("c_enum", "mood", Form.TEXT, "sad", "it's ok", ""),
    _of("c_domain", "positive", Form.NUMBER, "1", "2147483647"),
    _of("c_price", "price", Form.NUMBER, "99999999.99"),
    _of("c_composite", "pair", Form.TEXT, '(1,"a b")', "(,)"),
    _of("c_hstore", "public.hstore", Form.JSON, Value("'a=>NULL, b=>\"x y\"'", '{"a": null, "b": "x y"}'),
        Value("''", "{}")),
    _of("c_tsvector", "tsvector", Form.TEXT, "'a':1 'b'"),
    _of("c_lsn", "pg_lsn", Form.TEXT, "FFFFFFFF/FFFFFFFF"),
    _of("a_integer", "integer[]", Form.LIST, "{}", "{1,NULL,-2147483648}", Value("'[0:1]={4,5}'", "{4,5}"),
        _dimensions("{{1,2},{3,4}}"), element=Form.NUMBER),
    _of("a_text", "text[]", Form.LIST, "{}", '{"a,b","\\"","NULL",NULL,""}'),
    _of("a_boolean", "boolean[]", Form.LIST, "{t,f,NULL}", element=Form.BOOLEAN),
    _of("a_bytea", "bytea[]", Form.LIST, '{"\\\\x","\\\\x00ff",NULL}', element=Form.BYTES),
    _of("a_double", "double precision[]", Form.LIST, "{NaN,Infinity,-0,5e-324}", element=Form.FLOAT),
    _of("a_numeric_10_2", "numeric(10,2)[]", Form.LIST, "{1.50,NULL}", _nan("{NaN}"), element=Form.NUMBER),
    _of("a_numeric", "numeric[]", Form.LIST, "{1.5,NULL}", element=Form.NUMBER),
    _of("a_date", "date[]", Form.LIST, "{0001-01-01,NULL,9999-12-31}", _range("{infinity}"), element=Form.TIME),
    _of("a_time", "time[]", Form.LIST, "{24:00:00,00:00:00}", element=Form.TIME),
    _of("a_timestamp", "timestamp[]", Form.LIST, '{"9999-12-31 23:59:59.999999"}', element=Form.TIME),
    _of("a_timestamptz", "timestamptz[]", Form.LIST, '{"0001-01-01 00:00:00+00"}', element=Form.TIME),
    _of("a_uuid", "uuid[]", Form.LIST, "{00000000-0000-0000-0000-000000000000}"),
    _of("a_jsonb", "jsonb[]", Form.LIST, '{"{\\"a\\": 1}","null"}', element=Form.JSON),
    _of("a_enum", "mood[]", Form.LIST, '{sad,"it\'s ok"}'),
    _of("a_interval", "interval[]", Form.LIST, '{"1 mon"}'),
    _of("a_bit", "bit(3)[]", Form.LIST, "{101}"),
)  # fmt: skip


def _hex(digits: str) -> Value:
    return Value(f"x'{digits}'", f"\\x{digits.lower()}")


def _zero(text: str) -> Value:
    return Value(_quoted(text), None)


MARIADB_TYPES = (
    _of("c_tinyint", "TINYINT", Form.NUMBER, "-128", "127"),
    _of("c_utinyint", "TINYINT UNSIGNED", Form.NUMBER, "255"),
    _of("c_boolean", "BOOLEAN", Form.NUMBER, "0", "1", "2"),
    _of("c_smallint", "SMALLINT", Form.NUMBER, "-32768", "32767"),
    _of("c_usmallint", "SMALLINT UNSIGNED", Form.NUMBER, "65535"),
    _of("c_mediumint", "MEDIUMINT", Form.NUMBER, "-8388608", "8388607"),
    _of("c_umediumint", "MEDIUMINT UNSIGNED", Form.NUMBER, "16777215"),
    _of("c_int", "INT", Form.NUMBER, "-2147483648", "2147483647"),
    _of("c_uint", "INT UNSIGNED", Form.NUMBER, "4294967295"),
    _of("c_bigint", "BIGINT", Form.NUMBER, "-9223372036854775808", "9223372036854775807"),
    _of("c_ubigint", "BIGINT UNSIGNED", Form.NUMBER, "0", "18446744073709551615"),
    _of("c_decimal", "DECIMAL(10,2)", Form.NUMBER, "-99999999.99", "0.00"),
    _of("c_decimal38", "DECIMAL(38,10)", Form.NUMBER, f"{'9' * 28}.{'9' * 10}"),
    _of("c_decimal65", "DECIMAL(65,30)", Form.NUMBER, f"{'9' * 35}.{'9' * 30}", f"-0.{'0' * 29}1"),
    _of("c_float", "FLOAT", Form.FLOAT32, "0", "3.40282e38", "1.1754943508222875e-38"),
    _of("c_double", "DOUBLE", Form.FLOAT, "0", "-1.7976931348623157e308", "2.2250738585072014e-308", "0.1"),
    _of("c_bit1", "BIT(1)", Form.BOOLEAN, Value("b'0'", "0"), Value("b'1'", "1")),
    _of("c_bit12", "BIT(12)", Form.BYTES, Value("b'100000000001'", "\\x0801")),
    _of("c_bit64", "BIT(64)", Form.BYTES, Value("18446744073709551615", "\\xffffffffffffffff")),
    _of("c_year", "YEAR", Form.NUMBER, Value("'0000'", "0"), "1901", "2155"),
    _of("c_date", "DATE", Form.TIME, "0001-01-01", "9999-12-31", _zero("0000-00-00"), _zero("2024-00-10")),
    _of("c_time", "TIME", Form.TIME, "-838:59:59", "838:59:59", "00:00:00", "24:00:00"),
    _of("c_time6", "TIME(6)", Form.TIME, "-00:00:00.000001", "23:59:59.999999", "838:59:59.999999"),
    _of("c_datetime", "DATETIME", Form.TIME, "0001-01-01 00:00:00", "9999-12-31 23:59:59",
        _zero("0000-00-00 00:00:00")),
    _of("c_datetime6", "DATETIME(6)", Form.TIME, "9999-12-31 23:59:59.999999"),
    _of("c_timestamp", "TIMESTAMP NULL", Form.TIME, "1970-01-01 00:00:01", "2038-01-19 03:14:07",
        _zero("0000-00-00 00:00:00")),
    _of("c_timestamp6", "TIMESTAMP(6) NULL", Form.TIME, "2038-01-19 03:14:07.999999"),
    _of("c_char", "CHAR(5)", Form.TEXT, "", "日本"),
    _of("c_varchar", "VARCHAR(100)", Form.TEXT, *TEXTS[:5]),
    _of("c_latin1", "VARCHAR(20) CHARACTER SET latin1", Form.TEXT, "é€ß"),
    _of("c_text", "LONGTEXT", Form.TEXT, *TEXTS),
    _of("c_binary", "BINARY(4)", Form.BYTES, Value("x'00'", "\\x00000000"), _hex("01020300")),
    _of("c_varbinary", "VARBINARY(10)", Form.BYTES, Value("''", "\\x"), _hex("00ff2722005c")),
    _of("c_blob", "LONGBLOB", Form.BYTES, _hex("ab" * 5000)),
    _of("c_enum", "ENUM('x','it''s','')", Form.TEXT, "x", "it's", ""),
    _of("c_set", "SET('p','q','r')", Form.TEXT, "", "p,r"),
    _of("c_json", "JSON", Form.JSON, '{"a": 1.00, "b": [1e400, null]}', "null"),
    _of("c_point", "POINT", Form.BYTES,
        Value("ST_GeomFromText('POINT(1 2)')", "\\x000000000101000000000000000000f03f0000000000000040")),
    _of("c_inet4", "INET4", Form.BYTES, Value("'10.1.2.3'", "\\x0a010203")),
    _of("c_inet6", "INET6", Form.BYTES, Value("'::1'", "\\x" + "00" * 15 + "01")),
)  # fmt: skip

MYSQL_TYPES = (
    *(one for one in MARIADB_TYPES if not one.ddl.startswith(("INET", "JSON"))),
    _of("c_json", "JSON", Form.JSON, '{"a": 1.5, "b": [null, true, 18446744073709551615]}', "null", '"x"'),
)

SQLITE_TYPES = (
    _of("c_integer", "INTEGER", Form.NUMBER, *_plain("-9223372036854775808", "9223372036854775807")),
    _of("c_real", "REAL", Form.FLOAT, *_plain("0.1", "5e-324"), Value("9e999", "Infinity"),
        Value("-9e999", "-Infinity")),
    _of("c_text", "TEXT", Form.TEXT, *TEXTS),
    _of("c_blob", "BLOB", Form.BYTES, _hex(""), _hex("00ff")),
    _of("c_decimal", "DECIMAL(10,2)", Form.NUMBER, *_plain("-99999999.99", "0"), Value("0.1 + 0.2", "0.30"),
        *map(_other_type, ("1.239", "x"))),
    _of("c_boolean", "BOOLEAN", Form.BOOLEAN, *_plain("0", "1"), *map(_other_type, ("2", "true"))),
    _of("c_date", "DATE", Form.TIME, "0001-01-01", "9999-12-31", *map(_other_type, (
        "2024-01-31 12:34:56", "1706700896789", "0000-01-01"))),
    _of("c_datetime", "DATETIME", Form.TIME, "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", *map(_other_type, (
        "2024-01-31 12:34:56.1234567", "0001-01-01 00:00:00+01:00", "12:00"))),
    _of("c_dynamic", "INTEGER", Form.NUMBER, "1", *map(_other_type, ("abc", "1.5", "9223372036854775808"))),
)  # fmt: skip

DUCKDB_TYPES = (
    _of("c_tinyint", "TINYINT", Form.NUMBER, "-128", "127"),
    _of("c_bigint", "BIGINT", Form.NUMBER, "-9223372036854775808", "9223372036854775807"),
    _of("c_ubigint", "UBIGINT", Form.NUMBER, "18446744073709551615"),
    _of("c_hugeint", "HUGEINT", Form.NUMBER, NINES, f"-{NINES}", *map(_no_place, (
        "170141183460469231731687303715884105727", "-170141183460469231731687303715884105728"))),
    _of("c_uhugeint", "UHUGEINT", Form.NUMBER, "0", "340282366920938463463374607431768211455"),
    _of("c_decimal", "DECIMAL(38,10)", Form.NUMBER, f"{'9' * 28}.{'9' * 10}"),
    _of("c_float", "FLOAT", Form.FLOAT32, "0.1", "NaN", "Infinity", "3.4028235e+38"),
    _of("c_double", "DOUBLE", Form.FLOAT, "-0", "NaN", "-Infinity", "5e-324"),
    _of("c_varchar", "VARCHAR", Form.TEXT, *TEXTS),
    _of("c_blob", "BLOB", Form.BYTES, Value("'\\x00\\xFF'::BLOB", "\\x00ff")),
    _of("c_bit", "BIT", Form.TEXT, "101"),
    _of("c_boolean", "BOOLEAN", Form.BOOLEAN, "t", "f"),
    _of("c_date", "DATE", Form.TIME, "0001-01-01", "9999-12-31", *map(_no_place, (
        "infinity", "-infinity", "0044-03-15 (BC)", "10000-01-01"))),
    _of("c_time", "TIME", Form.TIME, "00:00:00", "23:59:59.999999"),
    _of("c_timetz", "TIMETZ", Form.TEXT, "23:59:59+15:59"),
    _of("c_timestamp", "TIMESTAMP", Form.TIME, "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", *map(_no_place, (
        "infinity", "-infinity", "0044-03-15 (BC) 00:00:00", "290000-01-01"))),
    _of("c_timestamp_s", "TIMESTAMP_S", Form.TIME, "9999-12-31 23:59:59", _no_place("10000-01-01")),
    _of("c_timestamp_ns", "TIMESTAMP_NS", Form.TIME, "1700-01-01 00:00:00.123456", *map(_no_place, (
        "2024-01-01 00:00:00.123456789", "infinity"))),
    _of("c_timestamptz", "TIMESTAMPTZ", Form.TIME, "9999-12-31 23:59:59.999999+00", _no_place("infinity")),
    _of("c_interval", "INTERVAL", Form.TEXT, "1 month 2 days 00:00:00.000003"),
    _of("c_uuid", "UUID", Form.TEXT, "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    _of("c_enum", "ENUM('x', '')", Form.TEXT, "x", ""),
    _of("c_union", "UNION(n INTEGER, s VARCHAR)", Form.TEXT, Value("1", "1"), "x"),
    _of("c_map", "MAP(VARCHAR, INTEGER)", Form.JSON, Value("MAP {'a': NULL}", '{"a": null}'), Value("MAP {}", "{}")),
    _of("c_list", "INTEGER[]", Form.LIST, Value("[1, NULL]", "{1,NULL}"), element=Form.NUMBER),
    _of("c_dates", "DATE[]", Form.LIST, Value("['0001-01-01']", "{0001-01-01}"), _no_place("[infinity]"),
        element=Form.TIME),
    _of("c_timetzs", "TIMETZ[]", Form.TEXT, "['23:59:59+15:59']"),
    _of("c_bits", "STRUCT(a BIT[])", Form.TEXT, Value("{'a': ['101'::BIT]}", "{'a': [101]}")),
)  # fmt: skip


def columns_of(types: tuple[ValueType, ...]) -> str:
    """The columns of a table with a column of each type."""
    return ", ".join(f"{one.name} {one.ddl}" for one in types)


def rows_of(types: tuple[ValueType, ...]) -> list[tuple[int, list[str]]]:
    """(id, literals) of each row: the n-th value of each type that is not refused, NULL if there are fewer."""
    kept: list[list[Any]] = [[value for value in one.values if value.refused is None] for one in types]
    height = max(map(len, kept))
    return [
        (row + 1, [values[row].literal if row < len(values) else "NULL" for values in kept]) for row in range(height)
    ]
