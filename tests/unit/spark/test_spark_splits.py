"""Dividing ranges of offsets among tasks."""

from __future__ import annotations

from barnabas.core.ids import TopicPartition
from barnabas.spark.source.options import Splitting
from barnabas.spark.source.planner import PartitionRange
from barnabas.spark.source.splits import split_ranges

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def test_one_task_per_partition_when_they_are_small() -> None:
    ranges = [PartitionRange(A0, 0, 100), PartitionRange(A1, 5, 5)]
    assert split_ranges(ranges, Splitting(), {A0: 100.0}) == [PartitionRange(A0, 0, 100)]


def test_a_long_partition_is_split_by_bytes() -> None:
    pieces = split_ranges([PartitionRange(A0, 10, 1010)], Splitting(max_bytes=25_000), {A0: 100.0})
    assert pieces == [
        PartitionRange(A0, 10, 260),
        PartitionRange(A0, 260, 510),
        PartitionRange(A0, 510, 760),
        PartitionRange(A0, 760, 1010),
    ]


def test_tasks_have_at_most_max_records() -> None:
    assert split_ranges([PartitionRange(A0, 0, 25)], Splitting(max_records=10)) == [
        PartitionRange(A0, 0, 8),
        PartitionRange(A0, 8, 16),
        PartitionRange(A0, 16, 25),
    ]


def test_min_tasks_splits_the_longest_range_first() -> None:
    pieces = split_ranges([PartitionRange(A0, 0, 10), PartitionRange(A1, 0, 90)], Splitting(min_tasks=4))
    assert pieces == [
        PartitionRange(A0, 0, 10),
        PartitionRange(A1, 0, 30),
        PartitionRange(A1, 30, 60),
        PartitionRange(A1, 60, 90),
    ]


def test_min_tasks_stops_at_single_offsets() -> None:
    assert split_ranges([PartitionRange(A0, 0, 2)], Splitting(min_tasks=10)) == [
        PartitionRange(A0, 0, 1),
        PartitionRange(A0, 1, 2),
    ]
