"""Which records a micro-batch copies, where copying begins, and what is noticed as lost."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from barnabas.core.ids import NO_TOPIC_ID, TopicPartition
from barnabas.spark.mirror.copying.planner import (
    TRUNCATION_GRACE_MS,
    CopyPlanner,
    LossReason,
    SourceView,
    StartAt,
    divide,
)
from barnabas.spark.mirror.copying.stored import TARGET_IDS, Stored, companions, decode_topic_id, encode_progress
from barnabas.spark.mirror.copying.values import PartitionCopied, RangeToCopy
from barnabas.spark.mirror.errors import MirrorConfigError, MirrorDataLossError

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
OLD, NEW = UUID(int=1), UUID(int=2)
COUNTS = {"x.a": 2, "x.b": 1}


def planner(positions: dict[TopicPartition, int] | None = None, **options: Any) -> CopyPlanner:
    return CopyPlanner({"a": "x.a", "b": "x.b"}, positions or {}, {}, **options)


def view(
    latest: dict[TopicPartition, int], earliest: dict[TopicPartition, int] | None = None, topic_id: UUID = OLD
) -> SourceView:
    return SourceView(dict.fromkeys(latest, 0) | (earliest or {}), latest, {tp.topic: topic_id for tp in latest})


def wanted(tp: TopicPartition, target: str, start: int, end: int, topic_id: UUID = OLD) -> RangeToCopy:
    return RangeToCopy(tp, target, start, end, topic_id)


def test_a_step_copies_from_the_positions_to_the_ends() -> None:
    plan = planner({A0: 5, A1: 9})
    step = plan.plan(view({A0: 8, A1: 9, B0: 2}, {B0: 1}), COUNTS, 0)
    assert step.ranges == (wanted(A0, "x.a", 5, 8), wanted(B0, "x.b", 1, 2))
    plan.advance([PartitionCopied(A0, 7), PartitionCopied(B0, 4)], {})
    assert plan.positions == {A0: 7, A1: 9, B0: 4}


def test_positions_of_other_topics_are_ignored() -> None:
    assert planner({TopicPartition("c", 0): 5}).positions == {}


def test_a_partition_waits_until_the_target_has_it() -> None:
    plan = planner()
    step = plan.plan(view({A0: 3, A1: 3, B0: 3}), {"x.a": 1}, 0)
    assert (step.ranges, step.waiting) == ((wanted(A0, "x.a", 0, 3),), (A1, B0))
    assert plan.plan(view({A0: 3, A1: 3, B0: 3}), COUNTS, 0).waiting == ()


def test_latest_is_for_the_partitions_of_the_first_look_and_is_stored() -> None:
    plan = planner({A0: 1}, start_at=StartAt.LATEST)
    first = plan.plan(view({A0: 4, B0: 7}), COUNTS, 0)
    assert (first.ranges, first.besides.positions) == ((wanted(A0, "x.a", 1, 4),), {B0: 7})
    later = plan.plan(view({A0: 4, A1: 3, B0: 7}), COUNTS, 0)
    assert later.besides.positions == {A1: 0}, "a new partition is copied from its beginning, also after a restart"
    assert wanted(A1, "x.a", 0, 3) in later.ranges


@pytest.mark.parametrize("text", ["none", "by_duration:PT1H"])
def test_other_starts_are_refused(text: str) -> None:
    with pytest.raises(MirrorConfigError, match="set it to earliest or latest"):
        StartAt.parse(text)


def test_deleted_records_stop_the_copier_or_are_counted() -> None:
    seen = view({A0: 20}, {A0: 8})
    with pytest.raises(MirrorDataLossError, match="a-0: offsets 5 to 7 were deleted before they were copied"):
        planner({A0: 5}).plan(seen, COUNTS, 0)
    plan = planner({A0: 5}, fail_on_data_loss=False)
    step = plan.plan(seen, COUNTS, 0)
    assert (step.ranges, step.besides.positions) == ((wanted(A0, "x.a", 8, 20),), {A0: 8})
    assert [(loss.reason, loss.records) for loss in step.losses] == [(LossReason.DELETED, 3)]
    assert (plan.take_lost(A0), plan.take_lost(A0)) == (3, 0)


def test_a_shorter_log_is_a_loss_only_if_it_stays_so() -> None:
    plan = planner({A0: 5}, fail_on_data_loss=False)
    assert plan.plan(view({A0: 3}), COUNTS, 1_000).losses == ()
    assert plan.plan(view({A0: 6}), COUNTS, 2_000).ranges == (wanted(A0, "x.a", 5, 6),)
    assert plan.plan(view({A0: 4}), COUNTS, 3_000).losses == ()
    (loss,) = plan.plan(view({A0: 4}), COUNTS, 3_000 + TRUNCATION_GRACE_MS).losses
    assert (loss.reason, loss.expected, loss.found, loss.records) == (LossReason.TRUNCATED, 5, 4, 1)
    assert plan.positions == {A0: 4}


def test_a_log_that_was_truncated_and_written_again_is_noticed_although_it_is_longer() -> None:
    seen = view({A0: 30, A1: 4})
    seen = SourceView(seen.earliest, seen.latest, seen.topic_ids, epochs={A0: 6, A1: 6}, diverged={A0: 3})
    with pytest.raises(MirrorDataLossError, match=r"a-0: records up to offset 5 were copied, .* from offset 3 on"):
        planner({A0: 5, A1: 2}).plan(seen, COUNTS, 0)
    plan = planner({A0: 5, A1: 2}, epochs={A0: 5, A1: 5}, fail_on_data_loss=False)
    step = plan.plan(seen, COUNTS, 0)
    assert step.ranges == (wanted(A0, "x.a", 3, 30), wanted(A1, "x.a", 2, 4))
    assert (step.besides.positions, step.besides.epochs, step.epochs) == ({A0: 3}, {A0: 6}, {A0: 6, A1: 6})
    assert plan.epochs == {A0: 6, A1: 5}
    plan.advance([PartitionCopied(A1, 4)], step.epochs)
    assert plan.epochs == {A0: 6, A1: 6}


def test_an_open_transaction_before_the_position_is_no_shorter_log() -> None:
    plan = planner({A0: 5})
    seen = view({A0: 3})
    committed = SourceView(seen.earliest, seen.latest, seen.topic_ids, ends={A0: 9})
    for now in (0, 2 * TRUNCATION_GRACE_MS):
        assert plan.plan(committed, COUNTS, now).ranges == ()


def test_a_topic_that_was_created_anew_is_noticed_by_its_id() -> None:
    plan = planner({A0: 5, A1: 2}, fail_on_data_loss=False)
    plan.plan(view({A0: 5, A1: 2}), COUNTS, 0)
    step = plan.plan(view({A0: 9, A1: 1}, topic_id=NEW), COUNTS, 0)
    assert [(loss.partition, loss.reason) for loss in step.losses] == [
        (A0, LossReason.RECREATED),
        (A1, LossReason.RECREATED),
    ]
    assert step.ranges == (wanted(A0, "x.a", 0, 9, NEW), wanted(A1, "x.a", 0, 1, NEW))
    assert step.besides == Stored({A0: 0, A1: 0}, {"a": NEW}), "stored together: a crash in between repeats nothing"
    later = plan.plan(view({A0: 9, A1: 1}, topic_id=NEW), COUNTS, 0)
    assert (later.losses, later.besides) == ((), Stored())


def test_a_topic_that_was_created_anew_stops_the_copier_also_after_a_restart() -> None:
    plan = CopyPlanner({"a": "x.a"}, {A0: 5}, {"a": OLD})
    with pytest.raises(
        MirrorDataLossError, match=f"the topic a was replaced: .*{OLD}.*{NEW} now.* copied up to offset 5"
    ):
        plan.plan(view({A0: 9}, topic_id=NEW), COUNTS, 0)
    with pytest.raises(MirrorDataLossError):
        plan.plan(view({A0: 9}, topic_id=NEW), COUNTS, 0)


def test_brokers_without_topic_ids_are_not_suspected() -> None:
    plan = planner({A0: 5})
    plan.plan(view({A0: 5}), COUNTS, 0)
    assert plan.plan(view({A0: 6}, topic_id=NO_TOPIC_ID), COUNTS, 0).losses == ()
    assert plan.plan(view({A0: 6}, topic_id=OLD), COUNTS, 0).besides == Stored()


def test_a_deleted_source_topic_keeps_its_position() -> None:
    plan = planner({A0: 5, B0: 1})
    assert plan.plan(view({B0: 2}), COUNTS, 0).ranges == (wanted(B0, "x.b", 1, 2),)
    assert plan.positions[A0] == 5


def test_ranges_are_divided_by_their_size_and_no_partition_is_cut() -> None:
    ranges = [RangeToCopy(TopicPartition("t", i), "t", 0, size) for i, size in enumerate([100, 10, 60, 50, 0])]
    groups = divide(ranges, 2)
    assert [[r.partition.partition for r in group] for group in groups] == [[0, 1, 4], [2, 3]]
    assert len(divide(ranges, 50)) == 5
    assert divide([], 3) == []


def test_a_topic_of_the_target_that_was_created_anew_is_copied_again() -> None:
    first, other = UUID(int=7), UUID(int=8)
    plan = planner({A0: 5, B0: 5}, target_ids={"x.a": first})
    with pytest.raises(
        MirrorDataLossError, match=f"the topic x.a of the target cluster was replaced: .*{first}.*{other}"
    ):
        plan.plan(view({A0: 9, B0: 5}, {A0: 2}), COUNTS, 0, {"x.a": other})
    plan = planner({A0: 5, B0: 5}, target_ids={"x.a": first}, fail_on_data_loss=False)
    step = plan.plan(view({A0: 9, B0: 5}, {A0: 2}), COUNTS, 0, {"x.a": other, "x.b": first})
    assert step.ranges == (wanted(A0, "x.a", 2, 9),)
    assert step.besides == Stored({A0: 2}, step.besides.topic_ids, {"x.a": other, "x.b": first})
    assert plan.plan(view({A0: 9}, {A0: 2}), COUNTS, 0, {"x.a": other}).losses == ()
    stored = companions("mm2-offsets.A.internal", "A", [encode_progress(step.besides)])
    found = [decode_topic_id(record.key, record.value, TARGET_IDS) for record in stored]
    assert [one for one in found if one] == [("A", "x.a", other), ("A", "x.b", first)]
