"""The pure parts of the sinks of databases: URLs, options, names, values, and the statements for each database."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from barnabas.spark.connectors.sql.connection_urls import parse_connection_url
from barnabas.spark.connectors.sql.dialects import Dialect
from barnabas.spark.connectors.sql.sinks.column_types import common_field, created_column
from barnabas.spark.connectors.sql.sinks.debezium_types import meant
from barnabas.spark.connectors.sql.sinks.errors import DatabaseSinkError
from barnabas.spark.connectors.sql.sinks.mysql_types import unique_keys
from barnabas.spark.connectors.sql.sinks.naming import orphans, stage_name, table_path
from barnabas.spark.connectors.sql.sinks.options import SqlSinkOptions, parse_sql_sink_options
from barnabas.spark.connectors.sql.sinks.ports import ColumnKind, TableColumn
from barnabas.spark.connectors.sql.sinks.postgres_types import column_of
from barnabas.spark.connectors.sql.sinks.values import TextOptions, texts_of
from barnabas.spark.errors import OptionError

POSTGRES, MYSQL = Dialect.POSTGRES, Dialect.MYSQL
UTC = datetime.UTC
QUERY = "6f1e3c8a-0000-4000-8000-000000000001"


def options(dialect: Dialect = POSTGRES, **given: str) -> SqlSinkOptions:
    urls = {POSTGRES: "jdbc:postgresql://db:5432/shop", MYSQL: "jdbc:mysql://db:3306/shop"}
    texts = {"connection.url": urls[dialect], "dbtable": "t"}
    return parse_sql_sink_options(dialect, texts | {name.replace("_", "."): text for name, text in given.items()})


# -- URLs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("jdbc:postgresql://h:5433/d", (POSTGRES, "h", 5433, "d", None, None, {})),
        ("postgres://u:p%40@h/d%20x", (POSTGRES, "h", 5432, "d x", "u", "p@", {})),
        (
            "jdbc:postgresql://h/d?user=u&password=p&ssl=true",
            (POSTGRES, "h", 5432, "d", "u", "p", {"sslmode": "verify-full"}),
        ),
        (
            "jdbc:postgresql://h/d?currentSchema=s&reWriteBatchedInserts=true",
            (POSTGRES, "h", 5432, "d", None, None, {"search_path": "s"}),
        ),
        ("jdbc:mariadb://h/d?sslMode=trust", (MYSQL, "h", 3306, "d", None, None, {"ssl_mode": "required"})),
        ("mysql://[::1]:3307/d?useSSL=false", (MYSQL, "::1", 3307, "d", None, None, {"ssl_mode": "disabled"})),
        ("jdbc:sqlite:/data/a b.db", (Dialect.SQLITE, "", 0, "/data/a b.db", None, None, {})),
        ("sqlite:///data/a%20b.db", (Dialect.SQLITE, "", 0, "/data/a b.db", None, None, {})),
        ("jdbc:duckdb:a.db", (Dialect.DUCKDB, "", 0, "a.db", None, None, {})),
    ],
)  # fmt: skip
def test_urls_of_jdbc_and_of_pythons_drivers_are_read(url: str, expected: tuple[Any, ...]) -> None:
    found = parse_connection_url(url)
    shown = (found.dialect, found.host, found.port, found.database, found.user, found.password, dict(found.settings))
    assert shown == expected


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("localhost", "must be an address such as"),
        ("jdbc:oracle:thin:@h:1521/d", "got one for oracle"),
        ("jdbc:postgresql://h", "has no database"),
        ("jdbc:postgresql://a,b/d", "must name one host"),
        ("jdbc:postgresql://u:a,b@h1:5432,h2:5432/d", "must name one host"),
        ("jdbc:postgresql://h:x/d", "port"),
        ("jdbc:postgresql://h/d?sslmod=require", "did you mean sslmode"),
        ("jdbc:mysql://h/d?sslMode=always", "sslMode in connection.url must be one of"),
        ("jdbc:mysql://h/d?sslMode=VERIFY_CA", "also needs sslCa"),
        ("jdbc:sqlite::memory:", "not shared between Spark's processes"),
    ],
)
def test_a_url_that_is_not_understood_says_what_to_write(url: str, message: str) -> None:
    with pytest.raises(OptionError, match=message.replace("'", ".")):
        parse_connection_url(url)


def test_no_password_is_shown() -> None:
    address = parse_connection_url("postgresql://u:secret@h/d")
    assert "secret" not in f"{address} {address!r}"
    assert parse_connection_url("postgresql://u:x@h/d", "v", "y").password == "y"


@pytest.mark.parametrize(
    "url",
    [
        "jdbc:postgresql://app:s3cr3t/x@db:5432/shop",
        "jdbc:postgresql://app:s3cr3t#1@db:5432/shop",
        "postgresql://app:s3cr3t@db:54e2/shop",
        "postgresql://app:s3cr3t@db:99999/shop",
        "postgresql://app:1/s3cr3t@db:5432/shop",
        "postgresql://app:5#s3cr3t@db:5432/shop",
        "postgresql://app:[s3cr3t@db:5432/shop",
        "mysql://app:s3cr3t@db",
        "mysql://app:s3cr3t\u2100@db/shop",
    ],
)
def test_an_error_about_a_url_has_no_password(url: str) -> None:
    with pytest.raises(OptionError, match="In a user or a password") as caught:
        parse_connection_url(url)
    assert "s3cr3t" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


# -- options -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"insert_mode": "upsert"}, "set pk.mode and pk.fields"),
        ({"delete_enabled": "true"}, "delete.enabled=true needs pk.fields"),
        ({"pk_mode": "kafka"}, "pk.mode=kafka is for input=records"),
        ({"db_timezone": "Mars"}, "Europe/Berlin"),
        ({"table_types": "TABLES"}, "PARTITIONED TABLE"),
        ({"autocreate": "true"}, "did you mean auto.create"),
        ({"dialect_name": "X"}, "the connection.url says"),
        ({"connection_url": "jdbc:mysql://h/d"}, "barnabas.mysql or barnabas.mariadb"),
        ({"connection_url": ""}, "connection.url must be given"),
    ],
)
def test_options_that_do_not_fit_say_what_to_set(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        options(**given)


# -- names -------------------------------------------------------------------------------------------------------------


def test_names_of_tables_are_paths() -> None:
    assert table_path(options(), "orders") == ("orders",)
    assert table_path(options(), "Sales.orders") == ("Sales", "orders")
    assert table_path(options(), '"a.b"."c ""d"""') == ("a.b", 'c "d"')
    assert table_path(options(MYSQL), "`a.b`.c") == ("a.b", "c")
    assert table_path(options(), "shop.public.orders") == ("public", "orders")  # as Debezium names topics
    assert table_path(options(quote_sql_identifiers="never"), "Sales.Orders") == ("sales", "orders")
    for wrong, message in (("a..b", "not understood"), ("a.", "empty part"), ("x.y.z", "RegexRouter")):
        with pytest.raises(OptionError, match=message):
            table_path(options(), wrong)


def test_stages_of_the_query_and_old_ones_are_orphans() -> None:
    now = 1_800_000_000
    mine, other = stage_name(QUERY, now, 1), stage_name(QUERY.replace("1", "2"), now, 2)
    old = stage_name("job-" + QUERY, now - 8 * 24 * 3600, 3)
    names = ["barnabas_ledger", "orders", mine, other, old, stage_name("job-" + QUERY, now, 4)]
    assert orphans(names, QUERY, now) == sorted([mine, old])
    assert orphans(names, None, now) == [old]
    assert max(map(len, names)) <= 63


# -- values ------------------------------------------------------------------------------------------------------------


def texts(array: Any, column: TableColumn, dialect: Dialect = POSTGRES, zone: str = "UTC") -> list[str | None]:
    found, problems = texts_of(array, column, TextOptions(dialect, zone))
    assert problems == []
    return list(found.to_pylist())


def test_instants_and_local_times_depend_on_the_zone_of_the_database() -> None:
    instant, local = (
        TableColumn("c", "timestamptz", ColumnKind.INSTANT),
        TableColumn("c", "t", ColumnKind.LOCAL_TIMESTAMP),
    )
    noon = datetime.datetime(2024, 7, 1, 12)
    zoned, naive = pa.array([noon], pa.timestamp("us", "UTC")), pa.array([noon], pa.timestamp("us"))
    berlin = "Europe/Berlin"
    assert texts(zoned, instant, zone=berlin) == ["2024-07-01 12:00:00.000000+00"]
    assert texts(naive, instant, zone=berlin) == ["2024-07-01 10:00:00.000000+00"]
    assert texts(zoned, local, zone=berlin) == ["2024-07-01 14:00:00.000000"]
    assert texts(naive, local, zone=berlin) == ["2024-07-01 12:00:00.000000"]
    assert texts(zoned, instant, MYSQL) == ["2024-07-01 12:00:00.000000"]
    assert texts(pa.array(["2024-07-01T12:00:00Z"]), local, zone=berlin) == ["2024-07-01 14:00:00.000000"]


@pytest.mark.parametrize("kind", [ColumnKind.LOCAL_TIMESTAMP, ColumnKind.INSTANT])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_what_a_text_of_a_time_becomes_does_not_depend_on_the_other_rows(kind: ColumnKind, zone: str) -> None:
    column = TableColumn("c", "t", kind)
    given = [
        "2024-01-31T12:00:00+02:00",
        "2024-01-31T12:00:00",
        "2024-01-31",
        "infinity",
        "2024-01-31T12:00:00.1234567Z",
        "0001-01-02T00:00:00.5-0130",
        "1960-01-31 12:00:00.123456789",
        "2024-02-30T00:00:00Z",
        "2024-02-30",
        "31 January 2024",
        "",
    ]
    alone = [texts(pa.array([text]), column, zone=zone)[0] for text in given]
    assert texts(pa.array([*given, None]), column, zone=zone) == [*alone, None]
    for text, expected in zip(given, alone, strict=True):
        for other in given:
            assert texts(pa.array([text, None, other]), column, zone=zone)[0] == expected
    if zone == "UTC":
        end = "+00" if kind is ColumnKind.INSTANT else ""
        assert alone[0] == f"2024-01-31 10:00:00.000000{end}"
        assert alone[1] == f"2024-01-31 12:00:00.000000{end}"
        assert alone[4] == f"2024-01-31 12:00:00.123456{end}"
        assert alone[5] == f"0001-01-02 01:30:00.500000{end}"
    assert [alone[i] for i in (3, 7, 8, 9, 10)] == [given[i] for i in (3, 7, 8, 9, 10)]


def test_values_that_a_column_cannot_hold_are_problems() -> None:
    def rows(array: Any, column: TableColumn) -> list[int]:
        return [problem.row for problem in texts_of(array, column, TextOptions(POSTGRES))[1]]

    small = TableColumn("c", "smallint", ColumnKind.INTEGER, bits=16)
    assert rows(pa.array([1, 40000, None, -32769]), small) == [1, 3]
    assert rows(pa.array([1.0, 1.5, float("nan")]), small) == [1, 2]
    price = TableColumn("c", "numeric(4,2)", ColumnKind.DECIMAL, precision=4, scale=2)
    prices = pa.array([Decimal("99.99"), Decimal("100"), Decimal("1.005"), Decimal("1.500")], pa.decimal128(10, 3))
    assert rows(prices, price) == [1, 2]
    text = TableColumn("c", "varchar(2)", ColumnKind.TEXT, length=2)
    assert rows(pa.array(["äö", "abc", "a\0", None]), text) == [1, 2]
    with pytest.raises(DatabaseSinkError, match="the rows have int64 for it"):
        texts_of(pa.array([1]), TableColumn("c", "date", ColumnKind.DATE), TextOptions(POSTGRES))


def judged(array: Any, column: TableColumn, dialect: Dialect = POSTGRES) -> tuple[list[Any], list[str]]:
    """The texts of a column, and the reasons of the rows that it cannot hold."""
    found, problems = texts_of(array, column, TextOptions(dialect))
    return found.to_pylist(), [problem.reason for problem in problems]


def test_numbers_are_written_with_all_digits_or_refused() -> None:
    amount = TableColumn("v", "decimal(38,38)", ColumnKind.DECIMAL, precision=38, scale=38)
    small = Decimal("-1e-38")
    assert judged(pa.array([small, None], pa.decimal128(38, 38)), amount) == ([format(small, "f"), None], [])
    price = TableColumn("v", "decimal(10,2)", ColumnKind.DECIMAL, precision=10, scale=2)
    found, reasons = judged(pa.array(["1.005", "1.500", "7", None, "-.25"]), price, MYSQL)
    assert found == [None, "1.500", "7", None, "-.25"]
    assert "'1.005' for the column v (decimal(10,2)) has more digits behind the point" in reasons[0]
    whole = TableColumn("v", "int", ColumnKind.INTEGER, bits=32)
    assert [len(one) for one in judged(pa.array(["1.5", "2.0"]), whole, MYSQL)] == [2, 1]
    long = TableColumn("v", "DECIMAL(38,10)", ColumnKind.DECIMAL, precision=38, scale=10)
    numbers = ["1234567890123456.5", "9223372036854775807", "12345678901234567.25", "0.10"]
    found, reasons = judged(pa.array(numbers), long, Dialect.SQLITE)
    assert found == [numbers[0], numbers[1], None, numbers[3]]
    assert "SQLite keeps in it: declare the column TEXT" in reasons[0]


def test_what_is_no_number_is_refused_by_mysql_and_a_text_in_json() -> None:
    wide = TableColumn("v", "double", ColumnKind.FLOAT)
    found, reasons = judged(pa.array([1.5, float("nan"), float("-inf")]), wide, MYSQL)
    assert found == ["1.5", None, None]
    assert "its value nan for the column v (double) is no number" in reasons[0]
    largest = pa.array([3.4028234663852886e38], pa.float32())
    assert judged(largest, TableColumn("v", "float", ColumnKind.FLOAT), MYSQL)[0] == ["3.4028234663852886e+38"]
    json = TableColumn("v", "json", ColumnKind.JSON)
    lists = pa.array([[float("nan"), float("inf"), 1.5], None], pa.list_(pa.float64()))
    assert judged(lists, json, MYSQL)[0] == ['["NaN","Infinity",1.5]', None]


def test_nested_times_and_bytes_keep_their_values() -> None:
    json = TableColumn("v", "json", ColumnKind.JSON)
    flat = pa.array([86_400_000_000, 1], pa.int64()).view(pa.time64("us"))
    times = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), flat)
    assert judged(times, json, MYSQL)[0] == ['["24:00:00","00:00:00.000001"]']
    assert judged(flat, TableColumn("v", "time", ColumnKind.TIME))[0] == ["24:00:00", "00:00:00.000001"]
    blobs = pa.array([[b"\x00\xff", b"", None]], pa.list_(pa.binary()))
    assert judged(blobs, TableColumn("v", "BLOB[]", ColumnKind.JSON), Dialect.DUCKDB)[0] == [
        '["\\\\x00\\\\xff","",null]'
    ]
    assert judged(blobs, json, MYSQL)[0] == ['["AP8=","",null]']


def test_elements_of_debeziums_arrays_have_their_meaning() -> None:
    element = pa.field("element", pa.int32(), True, {b"connect.name": b"io.debezium.time.Date"})
    field = pa.field("days", pa.list_(element))
    found, array = meant(field, pa.array([[0, None], None, []], field.type), POSTGRES)
    assert array.to_pylist() == [[datetime.date(1970, 1, 1), None], None, []]
    assert found.type == array.type


def test_lists_are_arrays_of_postgresql() -> None:
    column = TableColumn("c", "text[]", ColumnKind.ARRAY, element=ColumnKind.TEXT)
    lists = pa.array([["skipped"], ["a", None, 'q"\\'], [], None])
    assert texts(lists.slice(1), column) == ['{"a",NULL,"q\\"\\\\"}', "{}", None]
    with pytest.raises(DatabaseSinkError, match="cast it to an array"):
        texts_of(pa.array([[["a"]]]), column, TextOptions(POSTGRES))


# -- types -------------------------------------------------------------------------------------------------------------


def test_a_column_of_json_fits_one_of_lists_and_becomes_text_beside_other_texts() -> None:
    json = pa.field("c", pa.string(), metadata={"barnabas.format": "json"})
    lists, plain = pa.field("c", pa.list_(pa.int64())), pa.field("c", pa.string())
    for one, other, expected in ((json, json, "jsonb"), (json, lists, "jsonb"), (json, plain, "text")):
        for found in (common_field(one, other), common_field(other, one)):
            assert created_column(POSTGRES, found).type == expected
    with pytest.raises(DatabaseSinkError, match="in one micro-batch"):
        common_field(json, pa.field("c", pa.int64()))


def test_created_columns_have_the_types_of_their_database() -> None:
    def written(kind: Any, *, is_key: bool = False) -> list[str]:
        field = pa.field("c", kind)
        return [created_column(one, field, is_key=is_key, collation="bin").type for one in (POSTGRES, MYSQL)]

    assert written(pa.int64()) == ["bigint", "bigint"]
    assert written(pa.string(), is_key=True) == ["text", "varchar(255) CHARACTER SET utf8mb4 COLLATE bin"]
    assert written(pa.decimal128(38, 9)) == ["numeric(38,9)", "decimal(38,9)"]
    assert written(pa.decimal128(5, -2))[0] == "numeric(7,0)"
    assert written(pa.list_(pa.int32())) == ["integer[]", "json"]
    assert written(pa.timestamp("us", "UTC"))[1] == "datetime(6)"
    with pytest.raises(DatabaseSinkError, match="cast it"):
        created_column(POSTGRES, pa.field("c", pa.duration("s")))


def test_columns_of_one_micro_batch_have_a_common_type_or_none() -> None:
    def common(one: Any, other: Any) -> Any:
        return common_field(pa.field("c", one), pa.field("c", other)).type

    assert common(pa.int32(), pa.int64()) == pa.int64()
    assert common(pa.null(), pa.string()) == pa.string()
    assert common(pa.int64(), pa.float32()) == pa.float64()
    assert common(pa.decimal128(5, 2), pa.decimal128(5, 0)) == pa.decimal256(7, 2)
    with pytest.raises(DatabaseSinkError, match="in one micro-batch"):
        common(pa.int64(), pa.string())


def test_limits_come_from_the_catalog() -> None:
    numeric = column_of("n", "numeric(4,2)", "numeric", None, (4 << 16 | 2) + 4, True, False)
    assert (numeric.precision, numeric.scale) == (4, 2)
    assert column_of("n", "numeric(4,-2)", "numeric", None, (4 << 16 | 0x7FE) + 4, True, False).scale == -2
    assert column_of("c", "character varying(7)", "varchar", None, 11, False, False).length == 7
    assert column_of("c", "integer[]", "_int4", "int4", -1, True, False).element is ColumnKind.INTEGER


def test_a_unique_key_on_a_part_of_a_column_matches_no_column() -> None:
    keys = unique_keys([("PRIMARY", "id", None), ("u", "a", None), ("u", "b", None), ("p", "text", 10)])
    assert keys[:2] == (("id",), ("a", "b"))
    assert keys[2] != ("text",)


# -- Debezium ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "array", "expected"),
    [
        ("time.Date", pa.array([19782], pa.int32()), [datetime.date(2024, 2, 29)]),
        ("time.MicroTime", pa.array([1, None]), [datetime.time(0, 0, 0, 1), None]),
        ("time.MicroTime", pa.array([-1_500_000, 90_000_000_000]), ["-00:00:01.500000", "25:00:00.000000"]),
        ("time.Time", pa.array([1000], pa.int32()), [datetime.time(0, 0, 1)]),
        ("time.Timestamp", pa.array([1000]), [datetime.datetime(1970, 1, 1, 0, 0, 1)]),
        ("time.MicroTimestamp", pa.array([1]), [datetime.datetime(1970, 1, 1, 0, 0, 0, 1)]),
        ("time.ZonedTimestamp", pa.array(["1970-01-01T01:00:00Z"]), [datetime.datetime(1970, 1, 1, 1, tzinfo=UTC)]),
        ("data.VariableScaleDecimal", pa.array([{"scale": 2, "value": b"\xff\x85"}]), ["-1.23"]),
        ("data.Bits", pa.array([b"\x05"]), ["101"]),
        ("time.Date", pa.array(["a transform wrote text"]), ["a transform wrote text"]),
        ("data.Uuid", pa.array(["u"]), ["u"]),
    ],
)  # fmt: skip
def test_fields_of_debeziums_events_have_their_meaning(name: str, array: Any, expected: list[Any]) -> None:
    field = pa.field("c", array.type, True, {b"connect.name": f"io.debezium.{name}".encode()})
    found, values = meant(field, array, POSTGRES)
    assert values.to_pylist() == expected
    assert found.type == values.type
