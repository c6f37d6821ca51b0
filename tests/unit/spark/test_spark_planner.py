"""Planning micro-batches: limits, waiting, and data loss."""

from __future__ import annotations

import pytest

from barnabas.core.ids import TopicPartition
from barnabas.spark.errors import DataLossError
from barnabas.spark.options import OnDataLoss
from barnabas.spark.source.options import Limits
from barnabas.spark.source.planner import (
    LogOffsets,
    Loss,
    LossKind,
    PartitionRange,
    Plan,
    StreamPlanner,
    divide_limit,
    missing_ends,
    plan_ranges,
)
from barnabas.spark.source.positions import Offsets, Position

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def view(latest: Offsets, earliest: Offsets | None = None) -> LogOffsets:
    return LogOffsets({**dict.fromkeys(latest, 0), **(earliest or {})}, latest)


def planner(on_data_loss: OnDataLoss = OnDataLoss.FAIL, **limits: int) -> StreamPlanner:
    return StreamPlanner(Limits(**limits), on_data_loss)


def test_batch_without_limits_ends_at_the_latest_offsets() -> None:
    plan = planner().plan(Position({A0: 3, A1: 0}), view({A0: 10, A1: 20}), now_ms=0)
    assert plan == Plan(Position({A0: 10, A1: 20}))


def test_plan_without_new_records_returns_the_start() -> None:
    start = Position({A0: 10})
    assert planner(max_offsets=5).plan(start, view({A0: 10}), now_ms=0).end == start


def test_new_partitions_start_at_their_earliest_offset() -> None:
    plan = planner().plan(Position({A0: 10}), view({A0: 10, A1: 4}), now_ms=0)
    assert plan.end == Position({A0: 10, A1: 4})
    assert plan_ranges({A0: 10}, plan.end.offsets, {A0: 0, A1: 0}) == ([PartitionRange(A1, 0, 4)], [])


def test_limit_is_divided_in_proportion_and_never_exceeded() -> None:
    plan = planner(max_offsets=10).plan(Position({A0: 0, A1: 0, B0: 0}), view({A0: 300, A1: 100, B0: 1}), now_ms=0)
    taken = plan.end.offsets
    assert sum(taken.values()) == 10
    assert taken == {A0: 6, A1: 3, B0: 1}


def test_more_partitions_than_the_limit_take_turns() -> None:
    wishes = {TopicPartition("t", p): 100 for p in range(5)}
    seen: set[TopicPartition] = set()
    for turn in range(3):
        shares = divide_limit(2, wishes, turn)
        assert sum(shares.values()) == 2
        seen |= {tp for tp, n in shares.items() if n}
    assert seen == set(wishes)


def test_max_bytes_follows_the_density_of_each_partition() -> None:
    plan = planner(max_bytes=10_000).plan(
        Position({A0: 0, A1: 0}), view({A0: 1000, A1: 1000}), now_ms=0, bytes_per_offset={A0: 10.0, A1: 90.0}
    )
    taken = plan.end.offsets
    assert (taken[A0], taken[A1]) == (100, 99)
    assert taken[A0] * 10 + taken[A1] * 90 <= 10_000


def test_a_record_larger_than_the_byte_limit_is_read_eventually() -> None:
    machine = planner(max_bytes=100)
    position = Position({A0: 0, A1: 0})
    log = view({A0: 4, A1: 1000})
    for _ in range(8):
        position = machine.plan(position, log, now_ms=0, bytes_per_offset={A0: 10_000_000.0, A1: 1.0}).end
    assert position.offsets[A0] == 4


def test_a_batch_waits_for_min_offsets_but_not_longer_than_the_delay() -> None:
    machine = planner(min_offsets=100, max_delay_ms=1000)
    first = machine.plan(Position({A0: 0}), view({A0: 5}), now_ms=0).end
    assert first == Position({A0: 5})  # the first batch does not wait, as in Spark's own connector
    assert machine.plan(first, view({A0: 50}), now_ms=999).end == first
    assert machine.plan(first, view({A0: 105}), now_ms=999).end == Position({A0: 105})
    assert machine.plan(Position({A0: 105}), view({A0: 106}), now_ms=1998).end == Position({A0: 105})
    assert machine.plan(Position({A0: 105}), view({A0: 106}), now_ms=1999).end == Position({A0: 106})


def test_available_now_reads_to_its_target_and_ends() -> None:
    machine = planner(max_offsets=6, min_offsets=6)
    machine.fix_target({A0: 10})
    log = view({A0: 30, A1: 5})  # more arrived, and a partition was added
    first = machine.plan(Position({A0: 0}), log, now_ms=0).end
    second = machine.plan(first, log, now_ms=1).end
    assert [first, second] == [Position({A0: 6}), Position({A0: 10})]
    assert machine.plan(second, log, now_ms=2).end == second


def test_available_now_ends_when_the_checkpoint_is_beyond_the_target() -> None:
    machine = planner()
    machine.fix_target({A0: 10})
    start = Position({A0: 12})
    assert machine.plan(start, view({A0: 30}), now_ms=0).end == start


LOSSES = [
    (view({A0: 50}, {A0: 20}), {A0: 50}, Loss(A0, LossKind.AGED_OUT, 5, 20, 15)),
    (view({A0: 3}), {A0: 3}, Loss(A0, LossKind.TRUNCATED, 5, 3, 2)),
    (view({A0: 5, A1: 9}, {A1: 4}), {A0: 5, A1: 9}, Loss(A1, LossKind.STARTED_LATE, 0, 4, 4)),
    (view({A1: 0}), {A1: 0}, Loss(A0, LossKind.GONE, 5, 0, 0)),
]


@pytest.mark.parametrize(("log", "end", "loss"), LOSSES)
def test_losses_stop_the_query_are_skipped_or_are_counted(log: LogOffsets, end: Offsets, loss: Loss) -> None:
    start = Position({A0: 5})
    with pytest.raises(DataLossError) as stopped:
        planner(OnDataLoss.FAIL).plan(start, log, now_ms=0)
    assert str(loss.tp) in str(stopped.value)
    assert "failOnDataLoss=report" in str(stopped.value)
    assert planner(OnDataLoss.SKIP).plan(start, log, now_ms=0) == Plan(Position(end), (loss,))
    counted = {loss.tp: loss.records} if loss.records else {}
    assert planner(OnDataLoss.REPORT).plan(start, log, now_ms=0) == Plan(Position(end, counted), (loss,))


def test_reported_losses_accumulate() -> None:
    start = Position({A0: 5}, {A0: 10, B0: 1})
    end = planner(OnDataLoss.REPORT).plan(start, view({A0: 30}, {A0: 8}), now_ms=0).end
    assert end == Position({A0: 30}, {A0: 13, B0: 1})


def test_start_beyond_end_is_empty_and_no_loss() -> None:
    # Spark replays batch 0 with a new initial offset that is beyond the batch's planned end.
    assert plan_ranges({A0: 138}, {A0: 100}, {A0: 0}) == ([], [])
    assert plan_ranges({A0: 138}, {A0: 100}, {A0: 120}) == ([], [])


def test_ranges_below_the_log_start_begin_there_and_report_the_loss() -> None:
    ranges, losses = plan_ranges({A0: 5, A1: 5}, {A0: 50, A1: 9}, {A0: 20, A1: 30})
    assert ranges == [PartitionRange(A0, 20, 50)]
    assert losses == [Loss(A0, LossKind.AGED_OUT, 5, 20, 15), Loss(A1, LossKind.AGED_OUT, 5, 9, 4)]


def test_deleted_partitions_are_losses() -> None:
    assert plan_ranges({A0: 5}, {A0: 50, A1: 7}, {A1: 0}) == (
        [PartitionRange(A1, 0, 7)],
        [Loss(A0, LossKind.GONE, 5, 0, 45)],
    )


def test_losses_found_while_reading_are_counted_by_the_next_plan() -> None:
    machine = planner(OnDataLoss.REPORT)
    begin = Position({A0: 5})
    end = machine.plan(begin, view({A0: 50}, {A0: 20}), now_ms=0).end
    assert end == Position({A0: 50}, {A0: 15})
    machine.record_late_losses(
        plan_ranges(begin.offsets, end.offsets, {A0: 30})[1], begin, end
    )  # ten more aged out meanwhile
    assert machine.plan(end, view({A0: 50}, {A0: 30}), now_ms=1).end == Position({A0: 50}, {A0: 25})


def test_batch_end_beyond_the_log_is_a_loss() -> None:
    assert missing_ends({A0: 10, A1: 7}, {A0: 10, A1: 4}) == [Loss(A1, LossKind.BEYOND_END, 7, 4, 3)]
