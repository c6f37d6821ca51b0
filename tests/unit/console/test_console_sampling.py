"""The ring of samples, and the charts drawn from it."""

from __future__ import annotations

from math import isnan

import pytest

from barnabas.console.sampling.charts import draw, nice_ceiling
from barnabas.console.sampling.ring import SampleRing
from barnabas.console.sampling.stalls import StallWatch
from barnabas.console.units import count_text, moment_text, rate_text

NAME = ("topic", "orders", "end_offset")


def test_the_ring_keeps_the_newest_samples() -> None:
    ring = SampleRing(3, 10)
    for second in range(5):
        ring.add(second * 1_000, {NAME: second * 10})
    assert ring.points(NAME) == [(2_000, 20), (3_000, 30), (4_000, 40)]
    assert ring.rates(NAME) == [(3_000, 10), (4_000, 10)]
    assert ring.rate(NAME) == 10
    assert ring.last(NAME) == 40


def test_a_missing_sample_is_a_gap() -> None:
    ring = SampleRing(4, 10)
    ring.add(0, {NAME: 1})
    ring.add(1_000, {})
    ring.add(2_000, {NAME: 5})
    assert [isnan(value) for _, value in ring.points(NAME)] == [False, True, False]
    assert all(isnan(value) for _, value in ring.rates(NAME))
    assert ring.rate(NAME) == 2


def test_a_topic_that_was_created_again_has_no_negative_rate() -> None:
    ring = SampleRing(4, 10)
    ring.add(0, {NAME: 100})
    ring.add(1_000, {NAME: 5})
    assert isnan(ring.rates(NAME)[0][1])
    assert ring.rate(NAME) is None


def test_the_number_of_series_is_limited_and_old_series_are_forgotten() -> None:
    ring = SampleRing(2, 2)
    ring.add(0, {("a",): 1, ("b",): 1, ("c",): 1})
    assert ring.points(("c",)) == []
    for second in range(1, 6):
        ring.add(second * 1_000, {("c",): 1})
    assert ring.points(("a",)) == []
    assert len(ring.points(("c",))) == 2


def test_an_unknown_series_is_empty() -> None:
    ring = SampleRing(2, 2)
    assert ring.points(NAME) == [] == ring.rates(NAME)
    assert ring.rate(NAME) is None is ring.last(NAME)


def test_a_chart_scales_its_lines_and_breaks_them_at_gaps() -> None:
    chart = draw("In", [("in", [(0, 0.0), (10_000, 5.0), (20_000, float("nan")), (30_000, 10.0)])], rate_text)
    assert chart.lines[0].path == "M64.0,138.0L240.0,74.0M592.0,10.0L592.0,10.0"
    assert chart.lines[0].last == "10/s"
    assert [text for _, text in chart.y_labels] == ["0/s", "2.5/s", "5/s", "7.5/s", "10/s"]
    assert chart.summary == "In: now 10/s, between 0/s and 10/s in the time shown."


def test_a_chart_without_samples_says_so() -> None:
    chart = draw("In", [("in", [])], rate_text)
    assert chart.is_empty
    assert chart.summary == "In: no samples yet."


@pytest.mark.parametrize(
    ("value", "ceiling"), [(0, 4), (1, 1), (3, 4), (9, 10), (11, 20), (1_500, 2_000), (0.3, 0.4), (0.05, 0.06)]
)
def test_the_top_of_a_chart_is_a_round_number(value: float, ceiling: float) -> None:
    assert nice_ceiling(value) == pytest.approx(ceiling)


def test_the_top_of_a_chart_of_bytes_is_a_round_binary_number() -> None:
    assert nice_ceiling(3_100_000, binary=True) == 4 * 1024 * 1024
    assert nice_ceiling(700, binary=True) == 800


def test_a_position_that_stands_still_is_noticed_until_it_moves() -> None:
    watch = StallWatch[str]()
    watch.observe(0, {"a": 5, "b": 5})
    watch.observe(60_000, {"a": 5, "b": 6})
    assert watch.stalled(60_000, 60_000) == {"a": (5, 0)}
    watch.observe(70_000, {"b": 6})
    assert watch.stalled(70_000, 60_000) == {}
    watch.observe(120_000, {"a": 5, "b": 6})
    assert watch.stalled(120_000, 60_000) == {"b": (6, 60_000)}


def test_numbers_and_times_are_short() -> None:
    assert [count_text(n) for n in (None, 0, 1234, 1_234_567, 2.5)] == ["–", "0", "1,234", "1.23 M", "2.5"]
    assert moment_text(1_700_000_000_123) == "2023-11-14 22:13:20.123"
    assert moment_text(1 << 62) == str(1 << 62)
