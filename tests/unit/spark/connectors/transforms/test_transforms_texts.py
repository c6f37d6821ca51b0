"""Java's forms of texts: patterns of dates, floats, regular expressions, and what a cast accepts."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from barnabas.spark.connectors.transforms.casting import cast_column
from barnabas.spark.connectors.transforms.date_patterns import format_ms, parse_pattern, parse_texts
from barnabas.spark.connectors.transforms.errors import TransformDataError
from barnabas.spark.connectors.transforms.java_patterns import compile_java_pattern, parse_java_replacement
from barnabas.spark.connectors.transforms.texts import java_float_text

LEAP_DAY = int(datetime(2024, 2, 29, 21, 4, 5, 60_000, tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy-MM-dd'T'HH:mm:ss.SSSX", "2024-02-29T21:04:05.060Z"),
        ("EEE, d MMM yyyy hh:mm:ss.SSS a zzz", "Thu, 29 Feb 2024 09:04:05.060 PM UTC"),
        ("yyyyMMddHHmmssSSS", "20240229210405060"),
        ("yyyy D H 'o''clock' m s S Z", "2024 60 21 o'clock 4 5 60 +0000"),
        ("MMMM d, yyyy k:mm:ss.SSS", "February 29, 2024 21:04:05.060"),
    ],
)
def test_times_are_written_and_read_by_patterns_of_simple_date_format(pattern: str, text: str) -> None:
    tokens = parse_pattern(pattern)
    assert format_ms(pa.array([LEAP_DAY, None], pa.int64()), tokens).to_pylist() == [text, None]
    assert parse_texts(pa.array([text, None], pa.string()), tokens).to_pylist() == [LEAP_DAY, None]


def test_reading_is_lenient_and_zones_count() -> None:
    tokens = parse_pattern("yyyy-MM-dd HH:mm Z")
    found = parse_texts(pa.array(["2023-13-01 25:00 +0130 rest"]), tokens).to_pylist()
    assert found == [int(datetime(2024, 1, 1, 23, 30, tzinfo=UTC).timestamp() * 1000)]
    with pytest.raises(ValueError, match="1"):
        parse_texts(pa.array(["2023-01-01 00:00 Z", "no time"]), tokens)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.0"), (1.0, "1.0"), (-2.5, "-2.5"), (1e7, "1.0E7"), (9999999.0, "9999999.0"), (1e-3, "0.001"),
     (1.5e-4, "1.5E-4"), (5e-324, "4.9E-324"), (2e23, "2.0E23"), (1e21, "1.0E21"),
     (float("inf"), "Infinity"), (float("nan"), "NaN")],
)  # fmt: skip
def test_floats_are_written_as_java_writes_them(value: float, text: str) -> None:
    assert java_float_text(value) == text


def test_replacements_name_groups_by_number_and_name() -> None:
    pattern = compile_java_pattern(r"(?<db>\w+)\.(\w+)")
    found = parse_java_replacement(r"${db}-$2$11\$x", pattern)
    match = pattern.fullmatch("shop.orders")
    assert match is not None
    assert found(match) == "shop-ordersshop1$x"
    with pytest.raises(ValueError, match="position"):
        parse_java_replacement("${none}", pattern)
    with pytest.raises(ValueError, match="&&"):
        compile_java_pattern("[a-z&&[^b]]")


def test_casts_narrow_numbers_as_java_does() -> None:
    floats = pa.array([300.7, -1e30, float("nan"), None])
    assert cast_column(floats, pa.int8(), "x").to_pylist() == [44, 0, 0, None]
    assert cast_column(floats, pa.int32(), "x").to_pylist() == [300, -(2**31), 0, None]
    assert cast_column(floats, pa.int64(), "x").to_pylist() == [300, -(2**63), 0, None]
    assert cast_column(pa.array([300]), pa.int8(), "x").to_pylist() == [44]
    assert cast_column(pa.array(["TRUE", "1"]), pa.bool_(), "x").to_pylist() == [True, False]
    assert cast_column(pa.array([" -1.5e3f ", "+Infinity"]), pa.float64(), "x").to_pylist() == [-1500.0, float("inf")]
    with pytest.raises(TransformDataError, match="'128' is no such number or out of range"):
        cast_column(pa.array(["1", "128"]), pa.int8(), "x")


def test_a_small_float_of_32_bits_has_two_digits() -> None:
    assert [java_float_text(value, single=True) for value in (1.401298464324817e-45, 1e-38)] == ["1.4E-45", "1.0E-38"]
