"""Timestamps with zone as texts: digits, years outside of four digits, nulls; any value against Python's own text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.spark.connectors.events.zoned_texts import zoned_texts

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = 1_000_000
_MOMENTS = st.datetimes(timezones=st.just(UTC)).map(lambda moment: (moment - _EPOCH) // timedelta(microseconds=1))
_WHOLE = _MOMENTS.map(lambda micros: micros // _SECOND * _SECOND)


def texts(values: list[int | None], digits: int | None = None) -> list[str | None]:
    found: list[str | None] = zoned_texts(
        pa.array(values, pa.int64()).cast(pa.timestamp("us", "UTC")), digits
    ).to_pylist()
    return found


def of_python(micros: int, digits: int | None) -> str:
    """The text as the standard library makes it, whose fraction is cut by hand."""
    moment = _EPOCH + timedelta(microseconds=micros)
    seconds = f"{moment.year:04d}-{moment:%m-%dT%H:%M:%S}"
    fraction = f"{moment.microsecond:06d}"
    kept = fraction.rstrip("0") if digits is None else fraction[:digits]
    return f"{seconds}.{kept}Z" if kept else f"{seconds}Z"


@given(
    st.lists(st.one_of(st.none(), _MOMENTS), max_size=8) | st.lists(st.one_of(st.none(), _WHOLE), max_size=8),
    st.sampled_from([None, 0, 1, 3, 6]),
)
def test_texts_are_those_of_the_standard_library(values: list[int | None], digits: int | None) -> None:
    expected = [None if value is None else of_python(value, digits) for value in values]
    assert texts(values, digits) == expected


@pytest.mark.parametrize(
    ("micros", "digits", "text"),
    [
        (0, None, "1970-01-01T00:00:00Z"),
        (500_000, None, "1970-01-01T00:00:00.5Z"),
        (-1, 0, "1969-12-31T23:59:59Z"),
        (-62_167_219_200 * _SECOND, None, "0000-01-01T00:00:00Z"),
        (-62_167_219_201 * _SECOND, 3, "-0001-12-31T23:59:59.000Z"),
        (253_402_300_800 * _SECOND + 120_000, None, "10000-01-01T00:00:00.12Z"),
        (253_402_300_807 * _SECOND, 0, "10000-01-01T00:00:07Z"),
    ],
)
def test_years_of_any_length(micros: int, digits: int | None, text: str) -> None:
    assert texts([micros, None], digits) == [text, None]
