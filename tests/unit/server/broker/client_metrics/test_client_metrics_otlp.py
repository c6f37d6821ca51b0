"""Metrics that clients push: OTLP, read and refused."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.server.broker.client_metrics.otlp import FIELDS_MAX, POINTS_MAX, MetricPoint, OtlpError, read_metrics
from tests.unit.server.broker.client_metrics.otlp_bytes import (
    attribute,
    data,
    double,
    gauge,
    histogram,
    integer,
    message,
    number,
    total,
)


def test_gauges_sums_and_histograms_are_read() -> None:
    text, whole, yes, half = message(1, b"b-1"), number(3, 7), number(2, 1), double(4, 0.5)
    pushed = data(
        gauge("g", attribute(7, "node", text) + attribute(7, "id", whole) + double(4, 2.5)),
        total("s", attribute(7, "a", yes) + integer(6, -3), delta=True),
        total("c", attribute(7, "h", half) + integer(6, 4), delta=False),
        histogram("h", integer(4, 9) + double(5, 1.5)),
    )
    assert read_metrics(pushed) == [
        MetricPoint("g", 2.5, (("id", "7"), ("node", "b-1"))),
        MetricPoint("s", -3.0, (("a", "true"),), is_delta=True),
        MetricPoint("c", 4.0, (("h", "0.5"),)),
        MetricPoint("h.count", 9.0),
        MetricPoint("h.sum", 1.5),
    ]


def test_unknown_fields_and_points_without_a_value_are_skipped() -> None:
    unknown = number(99, 5) + double(98, 1.0) + message(97, b"x") + bytes([96 << 3 & 0x7F | 5 | 0x80, 6]) + bytes(4)
    assert read_metrics(data(gauge("g", number(99, 1), double(4, 1.0) + unknown))) == [MetricPoint("g", 1.0)]
    assert read_metrics(b"") == []


def test_the_number_of_points_is_limited() -> None:
    assert len(read_metrics(data(gauge("g", *[double(4, 1.0)] * (POINTS_MAX + 5))))) == POINTS_MAX


@pytest.mark.parametrize(
    "pushed", [b"\x0a\x05ab", b"\x0b", b"\xff" * 11, b"\x0a", data(message(2, message(1, b"\xff"))), b"\x09\x00"]
)
def test_other_bytes_are_refused(pushed: bytes) -> None:
    with pytest.raises(OtlpError):
        read_metrics(pushed)


def test_a_message_with_too_many_fields_is_refused() -> None:
    with pytest.raises(OtlpError, match="fields"):
        read_metrics(number(9, 1) * (FIELDS_MAX + 1))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(pushed: bytes) -> None:
    with contextlib.suppress(OtlpError):
        read_metrics(pushed)
