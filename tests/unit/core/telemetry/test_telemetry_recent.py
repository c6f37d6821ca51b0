"""Quantiles of recent values, and lines of the log that repeat."""

from __future__ import annotations

import pytest

from barnabas.core.telemetry.recent import WINDOW_S, RecentCounts
from barnabas.core.telemetry.repeated import INTERVAL_S, Repeated, RepeatedLines


def test_quantiles_are_those_of_recent_values() -> None:
    now = 0.0
    recent = RecentCounts((10.0, 100.0), lambda: now)
    assert recent.quantiles([0, 0, 0, 0]) == [0.0] * 6
    now = 60.0
    assert recent.quantiles([50, 50, 0, 0]) == [0.0, 5.0, 9.0, 9.6, 9.8, 9.98]
    now = 60.0 + WINDOW_S
    assert recent.quantiles([50, 50, 0, 4])[0] == 100.0, "only the four values above all bounds are recent"


def test_a_histogram_whose_values_are_all_zero_has_zero_quantiles() -> None:
    assert RecentCounts((1.0,)).quantiles([7, 0, 0]) == [0.0] * 6


def test_lines_that_repeat_are_counted() -> None:
    lines = RepeatedLines(allowed=2)
    assert [lines.on_line(now, "a") for now in (0, 1, 2, 3)] == [True, True, False, False]
    assert lines.on_line(3, "b")
    assert lines.ended(INTERVAL_S - 0.1) == []
    assert lines.ended(INTERVAL_S) == [Repeated("a", 2, INTERVAL_S)]
    assert lines.on_line(INTERVAL_S, "a"), "a new interval"
    assert lines.ended(INTERVAL_S, everything=True) == []


def test_lines_are_written_again_after_the_clock_was_set_back() -> None:
    lines = RepeatedLines(allowed=1)
    assert [lines.on_line(1_000, "a") for _ in range(2)] == [True, False]
    assert lines.ended(400) == [Repeated("a", 1, 0.0)]
    assert lines.on_line(400, "a")


def test_events_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.core.telemetry.repeated.EVENTS_MAX", 2)
    lines = RepeatedLines(allowed=1)
    for event in ("a", "b", "c"):
        assert lines.on_line(0, event)
    assert not lines.on_line(0, "c")
    assert lines.on_line(0, "a"), "the oldest event was forgotten"
