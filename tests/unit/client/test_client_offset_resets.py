"""Positions, durations and plans for resetting a group's offsets."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.client.admin.offset_resets import ResetTarget, parse_duration_ms, parse_time_ms
from barnabas.core.ids import TopicPartition


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("earliest", ResetTarget("earliest")),
        ("latest", ResetTarget("latest")),
        ("current", ResetTarget("current")),
        ("12", ResetTarget("offset", 12)),
        ("+3", ResetTarget("shift", 3)),
        ("-3", ResetTarget("shift", -3)),
        ("2026-11-20T10:00:00+01:00", ResetTarget("time", 1_795_165_200_000)),
        ("2026-11-20T09:00:00", ResetTarget("time", 1_795_165_200_000)),
    ],
)
def test_reset_positions_are_parsed(text: str, target: ResetTarget) -> None:
    assert ResetTarget.parse(text) == target


def test_invalid_reset_position_error_lists_the_valid_forms() -> None:
    with pytest.raises(ValueError, match=r"'yesterday' is not a position: write earliest, latest"):
        ResetTarget.parse("yesterday")


@pytest.mark.parametrize(
    ("text", "ms"),
    [("PT1H30M", 5_400_000), ("P2D", 172_800_000), ("PT0.5S", 500), ("P1DT1S", 86_401_000), ("PT0S", 0)],
)
def test_iso_durations_are_parsed(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize("text", ["P", "PT", "1H", "PT1", "P1H", "-PT1H", ""])
def test_invalid_duration_raises_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration_ms(text)


def test_times_without_an_offset_are_utc() -> None:
    assert parse_time_ms("1970-01-01") == 0
    assert parse_time_ms("1970-01-01T01:00+01:00") == 0


def test_reset_plan_is_read_from_a_csv_file(tmp_path: Path) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_text("orders,0,5\n\norders, 1, 7\n")
    offsets = {TopicPartition("orders", 0): 5, TopicPartition("orders", 1): 7}
    assert ResetTarget.from_file(str(plan)) == ResetTarget("file", offsets=offsets)
    plan.write_text("orders,0,5\norders,x,7\n")
    with pytest.raises(ValueError, match=r"plan\.csv:2: expected topic,partition,offset"):
        ResetTarget.from_file(str(plan))
