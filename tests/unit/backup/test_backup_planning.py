"""What a run reads of each partition."""

from __future__ import annotations

import pytest

from barnabas.backup.planning import LogNow, PartitionPlan, choose_base, plan_partition
from barnabas.core.ids import TopicPartition
from tests.unit.backup.batches import partition, stored

NAME = TopicPartition("orders", 0)
BEFORE = partition(0, 100, stored(0, 40), stored(40, 100))


def test_an_unknown_partition_is_read_from_its_log_start() -> None:
    assert plan_partition(NAME, None, LogNow(5, 90)) == PartitionPlan((), 5, 90)


def test_a_known_partition_is_continued_at_its_end() -> None:
    assert plan_partition(NAME, BEFORE, LogNow(0, 130, 130)) == PartitionPlan(BEFORE.objects, 100, 130)


def test_objects_below_the_log_start_are_dropped() -> None:
    assert plan_partition(NAME, BEFORE, LogNow(40, 130)).kept == (stored(40, 100),)
    assert plan_partition(NAME, BEFORE, LogNow(39, 130)).kept == BEFORE.objects


def test_a_batch_that_crosses_the_end_is_not_read_twice() -> None:
    before = partition(0, 100, stored(0, 103))
    assert plan_partition(NAME, before, LogNow(0, 100)) == PartitionPlan(before.objects, 103, 103)


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (LogNow(0, 99), "the log ends at 99, but 100 was backed up"),
        (LogNow(0, 200, 70), "cut at 70 by an unclean leader election"),
        (LogNow(120, 200), "the offsets 100 to 120 were deleted"),
    ],
)
def test_another_log_is_read_anew_and_said(now: LogNow, words: str) -> None:
    plan = plan_partition(NAME, BEFORE, now)
    assert (plan.kept, plan.start, plan.end) == ((), now.log_start, now.high_watermark)
    assert words in plan.note


def test_the_newest_run_is_continued_also_an_interrupted_one() -> None:
    assert choose_base([], []) is None
    assert choose_base(["a", "c"], ["b"]) == ("c", True)
    assert choose_base(["a", "c"], ["d"]) == ("d", False)
