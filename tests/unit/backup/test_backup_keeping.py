"""Which run a time means, and which runs and objects are deleted."""

from __future__ import annotations

import pytest

from barnabas.backup.errors import NoSuchRunError
from barnabas.backup.keeping import Retention, choose_run, objects_to_drop, parse_time, runs_to_drop
from barnabas.backup.manifest import batches_name, new_run_id, run_time_ms
from tests.unit.backup.batches import TOPIC_ID

DAY = 24 * 3600 * 1000
T0 = 1_800_000_000_000
RUNS = [new_run_id(T0 + day * DAY, day) for day in range(5)]


def test_a_run_is_chosen_by_id_by_time_or_as_the_newest() -> None:
    assert choose_run(RUNS, None) == RUNS[4]
    assert choose_run(RUNS, RUNS[1]) == RUNS[1]
    assert choose_run(RUNS, str(T0 + 2 * DAY)) == RUNS[2]
    assert choose_run(RUNS, str(T0 + 2 * DAY - 1)) == RUNS[1]
    assert choose_run(RUNS, "2027-01-17T07:59:59+00:00") == RUNS[1]


@pytest.mark.parametrize("at", [str(T0 - 1), new_run_id(T0, 99)])
def test_a_run_that_is_not_there_is_an_error(at: str) -> None:
    with pytest.raises(NoSuchRunError):
        choose_run(RUNS, at)


def test_what_is_neither_run_nor_time_is_refused() -> None:
    with pytest.raises(ValueError, match="neither a run nor a time"):
        choose_run(RUNS, "yesterday")
    with pytest.raises(NoSuchRunError, match="no complete run"):
        choose_run([], None)


def test_a_time_without_a_zone_is_utc() -> None:
    assert parse_time("2026-11-24T03:15:00") == parse_time("2026-11-24T04:15:00+01:00") == 1_795_490_100_000


def test_an_id_has_its_time_in_milliseconds() -> None:
    assert run_time_ms(new_run_id(T0 + 7, 0xABCD)) == T0 + 7
    assert new_run_id(T0 + 7, 0xABCD).endswith("007Z-abcd")


@pytest.mark.parametrize(
    ("retention", "kept"),
    [
        (Retention(), 5),
        (Retention(last=2), 2),
        (Retention(age_ms=int(2.5 * DAY)), 3),
        (Retention(last=4, age_ms=DAY), 4),
        (Retention(age_ms=0), 1),
    ],
)
def test_retention_keeps_the_newest_runs(retention: Retention, kept: int) -> None:
    assert runs_to_drop(RUNS, retention, T0 + 4 * DAY + 1) == RUNS[: 5 - kept]


def test_objects_of_a_run_under_way_are_left_alone() -> None:
    names = {run_id: batches_name("orders", TOPIC_ID, 0, 0, run_id) for run_id in RUNS}
    needed = {names[RUNS[3]]}
    dropped = objects_to_drop([*names.values(), "data/other.txt"], needed, {RUNS[0]}, T0 + 4 * DAY + DAY // 2)
    assert dropped == [names[RUNS[0]], names[RUNS[1]], names[RUNS[2]]]  # the run of day 4 may be under way
