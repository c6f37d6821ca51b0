"""PostgreSQL's types as Arrow types, and values in text form as columns, with every policy for unusual values."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from barnabas.spark.connectors.postgres.errors import PostgresValueError
from barnabas.spark.connectors.postgres.messages import Column, TypeName
from barnabas.spark.connectors.postgres.text_columns import UNAVAILABLE, Converted, convert, fill_unavailable
from barnabas.spark.connectors.postgres.types import Arrays, NotANumber, OutOfRange, ValuePolicy, column_type

NAMES = {
    name.oid: name
    for name in (
        TypeName(20001, "public", "mood"),
        TypeName(20002, "public", "_mood"),
        TypeName(20003, "ext", "hstore"),
        TypeName(20004, "ext", "_hstore"),
        TypeName(20005, "pg_catalog", "int4"),
        TypeName(20006, "pg_catalog", "_int4"),
        TypeName(20007, "pg_catalog", "numeric"),
        TypeName(20008, "pg_catalog", "int4multirange"),
    )
}
NUMERIC_10_2 = 10 << 16 | 2 + 4


def numeric(precision: int, scale: int) -> int:
    return (precision << 16 | scale & 0x7FF) + 4


def kind(oid: int, typmod: int = -1, **policy: Any) -> Any:
    return column_type(Column("c", oid, typmod, False), NAMES, ValuePolicy(**policy))


def read(oid: int, texts: list[str | None], typmod: int = -1, **policy: Any) -> Converted:
    column = pa.array([None if text is None else text.encode() for text in texts], pa.binary())
    one = kind(oid, typmod, **policy)
    converted = convert(column, one, ValuePolicy(**policy), "c")
    converted.column.validate(full=True)
    assert converted.column.type == one.arrow
    return converted


@pytest.mark.parametrize(
    ("oid", "typmod", "arrow"),
    [
        (16, -1, pa.bool_()),
        (26, -1, pa.int64()),
        (1700, -1, pa.string()),
        (1700, NUMERIC_10_2, pa.decimal128(10, 2)),
        (1700, numeric(38, 0), pa.decimal128(38, 0)),
        (1700, numeric(39, 0), pa.string()),
        (1700, numeric(2, -3), pa.decimal128(5, 0)),
        (1700, numeric(3, 5), pa.decimal128(5, 5)),
        (1700, numeric(30, -10), pa.string()),
        (1184, -1, pa.timestamp("us", "UTC")),
        (1231, NUMERIC_10_2, pa.list_(pa.field("element", pa.decimal128(10, 2)))),
        (2205, -1, pa.string()),
        (20001, -1, pa.string()),
        (20002, -1, pa.list_(pa.field("element", pa.string()))),
        (20003, -1, pa.map_(pa.string(), pa.string())),
        (20004, -1, pa.list_(pa.field("element", pa.map_(pa.string(), pa.string())))),
        (20005, -1, pa.int32()),
        (20006, -1, pa.list_(pa.field("element", pa.int32()))),
        (20007, -1, pa.string()),
        (20008, -1, pa.string()),
    ],
)
def test_a_type_has_its_arrow_type(oid: int, typmod: int, arrow: Any) -> None:
    assert kind(oid, typmod).arrow == arrow


def test_a_type_without_a_name_is_refused() -> None:
    with pytest.raises(PostgresValueError, match="the type 29999, whose name the server has not sent"):
        kind(29999)


def test_policies_for_text_change_the_types() -> None:
    assert kind(1114, out_of_range=OutOfRange.TEXT).arrow == pa.string()
    assert kind(1182, out_of_range=OutOfRange.TEXT).arrow == pa.list_(pa.field("element", pa.string()))
    assert kind(1700, NUMERIC_10_2, not_a_number=NotANumber.TEXT).arrow == pa.string()
    assert kind(1007, arrays=Arrays.TEXT).arrow == pa.string()


@pytest.mark.parametrize(
    ("oid", "texts", "values"),
    [
        (16, ["t", "f", None], [True, False, None]),
        (21, ["-32768", "32767"], [-32768, 32767]),
        (20, ["-9223372036854775808"], [-9223372036854775808]),
        (26, ["4294967295"], [4294967295]),
        (701, ["1e-05", "Infinity", "-Infinity"], [1e-5, float("inf"), float("-inf")]),
        (17, [r"\x", None, r"\x00ff10", r"\xAB"], [b"", None, b"\0\xff\x10", b"\xab"]),
        (17, [None], [None]),
        (25, ["", "ü", None], ["", "ü", None]),
        (1700, ["NaN", "12345678901234567890123456789012345678901234567890.5"], None),
        (1082, ["2024-02-29", "0001-01-01"], [datetime.date(2024, 2, 29), datetime.date(1, 1, 1)]),
        (1083, ["00:00:00", "23:59:59.999999", None], [datetime.time(0), datetime.time(23, 59, 59, 999999), None]),
        (1114, ["2024-02-29 12:00:00.5"], [datetime.datetime(2024, 2, 29, 12, 0, 0, 500000)]),
        (1184, ["1969-12-31 23:59:59+00"], [datetime.datetime(1969, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)]),
        (1186, ["1 year 2 mons 3 days 04:05:06.7"], None),
        (1007, ["{1,NULL,3}", "{}", None, "[0:1]={4,5}"], [[1, None, 3], [], None, [4, 5]]),
        (1007, ["{1,NULL,3}", "{}", None], [[1, None, 3], [], None]),
        (1000, ["{t,f}"], [[True, False]]),
        (1001, [r'{"\\x01",NULL}'], [[b"\1", None]]),
        (1009, ['{"a b","say \\"x\\"","NULL",NULL,""}', "{}"], [["a b", 'say "x"', "NULL", None, ""], []]),
        (1182, ["{2024-01-01}"], [[datetime.date(2024, 1, 1)]]),
        (20002, ["{sad,ok}"], [["sad", "ok"]]),
        (20003, ['"a"=>"1", "b"=>NULL, "\\"\\\\"=>""', "", None], [[("a", "1"), ("b", None), ('"\\', "")], [], None]),
        (20004, ['{"\\"a\\"=>\\"1\\"",NULL}'], [[[("a", "1")], None]]),
    ],
)
def test_values_are_read_in_their_types(oid: int, texts: list[str | None], values: list[Any] | None) -> None:
    assert read(oid, texts) == Converted(pa.array(texts if values is None else values, kind(oid).arrow), 0)


def test_decimals_keep_their_scale() -> None:
    assert read(1700, ["1.50", "-0.05", None], NUMERIC_10_2).column.to_pylist() == [
        Decimal("1.50"),
        Decimal("-0.05"),
        None,
    ]
    assert read(1231, ["{1.50,NULL}"], NUMERIC_10_2).column.to_pylist() == [[Decimal("1.50"), None]]


UNUSUAL: dict[int, list[str | None]] = {
    1082: ["2024-01-01", "infinity", "-infinity", "0044-03-15 BC", "10000-01-01", "10000-01-01 BC", None],
    1114: ["2024-01-01 00:00:00", "infinity", "-infinity", "0044-03-15 12:00:00 BC", "294276-01-01 00:00:00"],
    1184: ["2024-01-01 00:00:00+00", "infinity", "-infinity", "0044-03-15 12:00:00+00 BC", "10000-01-01 00:00:00+00"],
}
CLAMPED = {
    1082: ["2024-01-01", "9999-12-31", "0001-01-01", "0001-01-01", "9999-12-31", "0001-01-01", None],
    1114: ["2024-01-01 00:00:00.000000", *["9999-12-31 23:59:59.999999", "0001-01-01 00:00:00.000000"] * 2],
    1184: ["2024-01-01 00:00:00.000000Z", *["9999-12-31 23:59:59.999999Z", "0001-01-01 00:00:00.000000Z"] * 2],
}
CLAMPED[1114][3:] = reversed(CLAMPED[1114][3:])
CLAMPED[1184][3:] = reversed(CLAMPED[1184][3:])


@pytest.mark.parametrize("oid", UNUSUAL)
def test_dates_and_times_out_of_range_follow_the_policy(oid: int) -> None:
    texts = UNUSUAL[oid]
    count = len([text for text in texts[1:] if text is not None])
    with pytest.raises(PostgresValueError) as caught:
        read(oid, texts)
    assert f"{texts[1]!r} in row 1 of the column c" in str(caught.value)
    assert "set out.of.range.handling.mode=null or clamp, or text" in str(caught.value)
    nulls = read(oid, texts, out_of_range=OutOfRange.NULL)
    assert nulls.replaced == count
    assert nulls.column.is_valid().to_pylist() == [True] + [False] * (len(texts) - 1)
    clamped = read(oid, texts, out_of_range=OutOfRange.CLAMP)
    assert clamped.replaced == count
    assert clamped.column.cast(pa.string()).to_pylist() == CLAMPED[oid]
    assert read(oid, texts, out_of_range=OutOfRange.TEXT).column.to_pylist() == texts


def test_a_date_that_is_malformed_is_refused_under_every_policy() -> None:
    for policy in (OutOfRange.FAIL, OutOfRange.NULL, OutOfRange.CLAMP):
        with pytest.raises(PostgresValueError, match="'01/02/2024' in row 1"):
            read(1082, ["infinity" if policy is not OutOfRange.FAIL else None, "01/02/2024"], out_of_range=policy)


def test_not_a_number_follows_the_policy() -> None:
    with pytest.raises(PostgresValueError, match="'NaN' in row 1 of the column c cannot be read as numeric"):
        read(1700, ["1.00", "NaN"], NUMERIC_10_2)
    nulls = read(1700, ["1.00", "NaN"], NUMERIC_10_2, not_a_number=NotANumber.NULL)
    assert nulls == Converted(pa.array([Decimal("1.00"), None], pa.decimal128(10, 2)), 1)
    assert read(1700, ["NaN"], NUMERIC_10_2, not_a_number=NotANumber.TEXT).column.to_pylist() == ["NaN"]


def test_numerals_without_a_scale_follow_the_policy_too() -> None:
    texts = ["1", "NaN", "Infinity", "-Infinity", None]
    assert read(1700, texts).column.to_pylist() == texts
    nulls = read(1700, texts, not_a_number=NotANumber.NULL)
    assert (nulls.column.to_pylist(), nulls.replaced) == (["1", None, None, None, None], 3)


def test_the_end_of_a_day_is_a_time() -> None:
    column = pa.array([b"00:00:00", b"24:00:00", None, b"23:59:59.999999"])
    found = convert(column, kind(1083, -1), ValuePolicy(), "c").column
    assert found.cast(pa.int64()).to_pylist() == [0, 86_400_000_000, None, 86_399_999_999]


def test_an_array_with_dimensions_is_text_or_refused() -> None:
    for text in ("{{1,2},{3,4}}", "[1:1][1:2]={{1,2}}"):
        with pytest.raises(PostgresValueError, match=r"several dimensions, set array\.handling\.mode=text"):
            read(1007, [text])
        assert read(1007, [text], arrays=Arrays.TEXT).column.to_pylist() == [text]


@pytest.mark.parametrize(
    ("oid", "text"),
    [
        (16, "true"),
        (21, "32768"),
        (23, " 1"),
        (17, "abc"),
        (17, r"\x0"),
        (17, r"\xzz"),
        (1700, "1.005"),
        (1007, "1,2"),
        (1007, "{1,,2}"),
        (1007, "{1,2"),
        (1007, ""),
        (1009, '{"a}'),
        (1009, '{"a""b"}'),
        (1009, '{"a",}'),
        (1009, "[0:1]"),
        (1009, "[0:1]="),
        (1009, "{"),
        (20003, "a=>1"),
        (20003, '"a"=>"1", '),
        (20003, '"a"=>"1""b"=>"2"'),
    ],
)
def test_a_malformed_value_is_refused_with_its_row(oid: int, text: str) -> None:
    with pytest.raises(PostgresValueError) as caught:
        read(oid, [None, None, text, None], NUMERIC_10_2)
    assert "in row 2 of the column c" in str(caught.value)


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(PostgresValueError, match="in row 1"):
        convert(pa.array([b"a", b"\xff"]), kind(25), ValuePolicy(), "c")


def test_a_slice_of_a_column_is_read_like_a_column() -> None:
    for oid, texts in ((17, [r"\x01", None, r"\x0203"]), (1007, ["{1}", None, "{2,3}"]), (20003, ['"a"=>"1"'] * 3)):
        column = pa.array([None if text is None else text.encode() for text in texts], pa.binary())
        part = convert(column.slice(1), kind(oid), ValuePolicy(), "c").column
        assert part.to_pylist() == convert(column, kind(oid), ValuePolicy(), "c").column.to_pylist()[1:]


def test_an_unchanged_value_has_the_placeholder_where_the_type_can_hold_it() -> None:
    mask = pa.array([True, False]).to_numpy(zero_copy_only=False)
    assert fill_unavailable(pa.array([None, "a"]), mask).to_pylist() == [UNAVAILABLE, "a"]
    assert fill_unavailable(pa.array([None, b"a"]), mask).to_pylist() == [UNAVAILABLE.encode(), b"a"]
    numbers = pa.array([None, 1])
    assert fill_unavailable(numbers, mask) is numbers
    assert fill_unavailable(numbers, None) is numbers
