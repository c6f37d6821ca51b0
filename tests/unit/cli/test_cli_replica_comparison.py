"""The comparison of a partition's replicas, without brokers."""

from __future__ import annotations

from barnabas.cli.kafka.cluster.replica_comparison import ReplicaComparison, ReplicaRecords, compare
from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.build import SimpleRecord, build_batch

P = TopicPartition("orders", 0)


def batch(records: int, size: int, base_offset: int) -> bytes:
    return build_batch([SimpleRecord(None, bytes(size), 1_000, ())] * records, base_offset=base_offset)


TWO = batch(2, 10, 0) + batch(3, 10, 2)


def test_equal_replicas_are_compared_up_to_the_smallest_high_watermark() -> None:
    ahead, behind = ReplicaRecords(5, TWO), ReplicaRecords(4, TWO)
    assert compare(P, 0, {1: ahead, 2: ahead}) == ReplicaComparison(5, 5)
    assert compare(P, 0, {1: ahead, 2: behind}) == ReplicaComparison(2, 5)


def test_a_replica_without_records_stops_the_comparison() -> None:
    assert compare(P, 0, {1: ReplicaRecords(5, TWO), 2: ReplicaRecords(-1, b"")}) == ReplicaComparison(0, 5)
    assert compare(P, 7, {}) == ReplicaComparison(7, -1)


def test_different_bytes_are_reported_and_the_comparison_goes_on() -> None:
    other = batch(2, 11, 0) + batch(3, 10, 2)
    found = compare(P, 0, {2: ReplicaRecords(5, other), 1: ReplicaRecords(5, TWO)})
    assert (found.next_offset, found.is_fatal) == (5, False)
    (difference,) = found.differences
    assert difference.startswith("partition orders-0 has unmatched checksum at offset 1; replica 1's checksum ")


def test_batches_of_different_offsets_end_the_comparison() -> None:
    other = batch(3, 10, 0) + batch(2, 10, 3)
    assert compare(P, 0, {1: ReplicaRecords(5, TWO), 2: ReplicaRecords(5, other)}) == ReplicaComparison(
        0, 5, ("partition orders-0: replica 1's offset 1 doesn't match replica 2's offset 2",), is_fatal=True
    )
