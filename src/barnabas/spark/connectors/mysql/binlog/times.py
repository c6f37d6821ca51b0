"""Codec: DATE, TIME, DATETIME and TIMESTAMP of a row image to Arrow arrays.

    DATE        3 bytes, little-endian: 15 bits year, 4 bits month, 5 bits day
    TIME2       3 bytes, big-endian, plus 0x800000: 1 bit unused, 10 bits hour, 6 minute, 6 second; then the fraction. A
                negative time is the two's complement of time and fraction together
    DATETIME2   5 bytes, big-endian, plus 0x8000000000: 17 bits year * 13 + month, 5 day, 5 hour, 6 minute, 6 second;
                then the fraction
    TIMESTAMP2  4 bytes, big-endian: seconds since 1970; then the fraction
    fraction    (n + 1) // 2 bytes, big-endian, for n digits: hundredths, ten-thousandths or millionths of a second

A zero date (0000-00-00, 2020-01-00), a date that no calendar has (2020-02-31, of sql_mode ALLOW_INVALID_DATES), and
every date of the year 0 become null, and are counted. Source: MySQL's my_time.cc.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from barnabas.protocol.records.columnar._jit import np, pa
from barnabas.protocol.records.columnar.from_numpy import fixed_width_array

_SECOND_US: Final = 1_000_000
_FRACTION_US: Final = (1, 10_000, 100, 1)
"""The microseconds of a fraction's unit, by the number of its bytes."""
_DAYS_IN_MONTH: Final = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 0, 0, 0], np.int64)


def fraction_bytes(digits: int) -> int:
    """The number of bytes of a fraction. Raises ValueError for more than six digits."""
    if not 0 <= digits <= 6:
        raise ValueError(f"a fraction of a second has {digits} digits")
    return (digits + 1) // 2


def _big_endian(raw: Any) -> Any:
    values = np.zeros(len(raw), np.int64)
    for k in range(raw.shape[1]):
        values = values << 8 | raw[:, k]
    return values


def _civil_days(year: Any, month: Any, day: Any) -> Any:
    """Days since 1970-01-01 of a date of the Gregorian calendar; the year begins in March in this computation."""
    shifted = np.where(month <= 2, year - 1, year)
    era = shifted // 400
    year_of_era = shifted - era * 400
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719468


def _real(year: Any, month: Any, day: Any) -> Any:
    """Which dates a calendar has, from year 1 on."""
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    last = _DAYS_IN_MONTH[np.clip(month, 0, 15)] + ((month == 2) & leap)
    return (year >= 1) & (year <= 9999) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= last)


def _dated(real: Any, valid: Any) -> tuple[Any, int]:
    """Which cells hold a date, and the number of valid cells that hold none."""
    return real & valid, int((valid & ~real).sum())


def dates(raw: Any, valid: Any) -> tuple[Any, int]:
    """DATE to date32. Returns the array and the number of zero dates."""
    packed = raw[:, 0].astype(np.int64) | raw[:, 1].astype(np.int64) << 8 | raw[:, 2].astype(np.int64) << 16
    return civil_dates(packed >> 9, packed >> 5 & 15, packed & 31, valid)


def civil_dates(year: Any, month: Any, day: Any, valid: Any) -> tuple[Any, int]:
    """Dates to date32. Returns the array and the number of zero dates."""
    dated, zeros = _dated(_real(year, month, day), valid)
    days = np.where(dated, _civil_days(year, month, day), 0).astype(np.int32)
    return fixed_width_array(days, pa.date32(), dated), zeros


def _fraction(raw: Any, at: int) -> Any:
    return _big_endian(raw[:, at:]) * _FRACTION_US[raw.shape[1] - at]


def datetimes(raw: Any, valid: Any, digits: int) -> tuple[Any, int]:
    """DATETIME to timestamp[us]. Returns the array and the number of zero dates."""
    packed = _big_endian(raw[:, :5]) - 0x8000000000
    months, day = packed >> 22, packed >> 17 & 31
    hour, minute, second = packed >> 12 & 31, packed >> 6 & 63, packed & 63
    fraction = _fraction(raw, 5)
    return civil_datetimes(
        (months // 13, months % 13, day), (hour, minute, second), fraction, valid, pa.timestamp("us")
    )


def civil_datetimes(date: Sequence[Any], clock: Sequence[Any], fraction: Any, valid: Any, kind: Any) -> tuple[Any, int]:
    """Dates with times of day to the timestamp type `kind`. Returns the array and the number of zero dates."""
    (year, month, day), (hour, minute, second) = date, clock
    _check_clock(valid, [(hour, 23), (minute, 59), (second, 59), (fraction, 999_999)])
    dated, zeros = _dated(_real(year, month, day), valid)
    seconds = _civil_days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second
    return fixed_width_array(np.where(dated, seconds * _SECOND_US + fraction, 0), kind, dated), zeros


def timestamps(raw: Any, valid: Any, digits: int) -> tuple[Any, int]:
    """TIMESTAMP to timestamp[us, UTC]. Second 0 without a fraction is the zero date: the type begins at second 1."""
    seconds = _big_endian(raw[:, :4])
    fraction = _fraction(raw, 4)
    _check_clock(valid, [(fraction, 999_999)])
    dated, zeros = _dated((seconds != 0) | (fraction != 0), valid)
    micros = np.where(dated, seconds * _SECOND_US + fraction, 0)
    return fixed_width_array(micros, pa.timestamp("us", "UTC"), dated), zeros


def durations(raw: Any, valid: Any, digits: int) -> Any:
    """TIME to int64 microseconds, from -838:59:59 to 838:59:59."""
    size = raw.shape[1] - 3
    packed = _big_endian(raw) - (0x800000 << 8 * size)
    magnitude = np.abs(packed)
    clock = magnitude >> 8 * size
    fraction = (magnitude & (1 << 8 * size) - 1) * _FRACTION_US[size]
    hour, minute, second = clock >> 12, clock >> 6 & 63, clock & 63
    _check_clock(valid, [(hour, 838), (minute, 59), (second, 59), (fraction, 999_999)])
    total = ((hour * 60 + minute) * 60 + second) * _SECOND_US + fraction
    return fixed_width_array(np.where(packed < 0, -total, total), pa.int64(), valid)


def _check_clock(valid: Any, parts: list[tuple[Any, int]]) -> None:
    for values, largest in parts:
        wrong = valid & ((values > largest) | (values < 0))
        if wrong.any():
            raise ValueError(f"a part of a time is {int(values[wrong][0])}, the largest is {largest}")
