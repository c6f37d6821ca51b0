"""Upstream and downstream offsets become runs without a gap on either side."""

from __future__ import annotations

from barnabas.client.values import WrittenBatch
from barnabas.spark.mirror.copying.runs import RunCollector
from barnabas.spark.mirror.ports import OffsetRun


def test_a_run_ends_at_a_gap_of_either_side() -> None:
    collector = RunCollector()
    collector.add([(10, 3), (15, 2)], [WrittenBatch(100, 4), WrittenBatch(110, 1)])
    assert collector.runs() == (OffsetRun(10, 100, 3), OffsetRun(15, 103, 1), OffsetRun(16, 110, 1))


def test_records_that_follow_on_both_sides_continue_the_run() -> None:
    collector = RunCollector()
    collector.add([(0, 5)], [WrittenBatch(7, 5)])
    collector.add([(5, 5)], [WrittenBatch(12, 2), WrittenBatch(14, 3)])
    assert collector.runs() == (OffsetRun(0, 7, 10),)


def test_the_first_and_the_newest_runs_are_kept() -> None:
    collector = RunCollector(runs_max=3)
    for i in range(6):
        collector.add([(10 * i, 2)], [WrittenBatch(3 * i, 2)])
    assert collector.runs() == (OffsetRun(0, 0, 2), OffsetRun(40, 12, 2), OffsetRun(50, 15, 2))


def test_nothing_copied_has_no_run() -> None:
    assert RunCollector().runs() == ()
