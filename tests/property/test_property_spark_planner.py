"""Planning holds its promises for any log, limit and history."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.ids import TopicPartition
from barnabas.spark.options import OnDataLoss
from barnabas.spark.source.options import Limits, Splitting
from barnabas.spark.source.planner import LogOffsets, PartitionRange, StreamPlanner, divide_limit, plan_ranges
from barnabas.spark.source.positions import Position
from barnabas.spark.source.splits import split_ranges

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b.c", "d-e"]), st.integers(0, 12))
offsets = st.dictionaries(partitions, st.integers(0, 10_000), max_size=8)
some = st.integers(1, 5_000)


@given(offsets, some, st.integers(0, 50))
def test_shares_never_exceed_limit_or_wish(wishes: dict[TopicPartition, int], limit: int, turn: int) -> None:
    shares = divide_limit(limit, wishes, turn)
    assert sum(shares.values()) == min(limit, sum(wishes.values()))
    assert all(0 <= shares[tp] <= wishes[tp] for tp in wishes)


@given(offsets, offsets, st.none() | some, st.none() | st.integers(1, 100_000))
def test_a_stream_reads_every_offset_once_and_in_order(
    start: dict[TopicPartition, int], ahead: dict[TopicPartition, int], max_offsets: int | None, max_bytes: int | None
) -> None:
    latest = {tp: start.get(tp, 0) + ahead.get(tp, 0) for tp in start.keys() | ahead.keys()}
    log = LogOffsets(dict.fromkeys(latest, 0), latest)
    density = {tp: 1.0 + tp.partition * 37.0 for tp in latest}
    planner = StreamPlanner(Limits(max_offsets=max_offsets, max_bytes=max_bytes), OnDataLoss.FAIL)
    planner.fix_target(latest)
    position, read = Position(start), dict(start)
    for _ in range(200):
        end = planner.plan(position, log, now_ms=0, bytes_per_offset=density).end
        ranges, losses = plan_ranges(position.offsets, end.offsets, log.earliest)
        assert not losses
        assert max_offsets is None or sum(r.size for r in ranges) <= max_offsets
        for r in ranges:
            assert r.start == read.get(r.tp, 0)
            read[r.tp] = r.end
        if end == position:
            break
        assert ranges or end.offsets.keys() != position.offsets.keys()
        position = end
    else:
        return  # a small limit and a long log: progress was shown by the assertions above
    assert read == latest or position.offsets == latest


@given(
    st.lists(
        st.builds(
            lambda p, s, n: PartitionRange(TopicPartition("t", p), s, s + n),
            st.integers(0, 9),
            some,
            st.integers(0, 400),
        )
    ),
    st.none() | st.integers(1, 60),
    st.none() | st.integers(1, 300),
    st.floats(0, 1e6),
)
def test_splits_cover_exactly_what_was_planned(
    ranges: list[PartitionRange], min_tasks: int | None, max_records: int | None, density: float
) -> None:
    splitting = Splitting(min_tasks, max_records, 1 << 20)
    pieces = split_ranges(ranges, splitting, {r.tp: density for r in ranges})
    assert all(piece.size > 0 for piece in pieces)
    covered = [offset for piece in pieces for offset in range(piece.start, piece.end)]
    assert covered == [offset for r in ranges for offset in range(r.start, r.end)]
    assert max_records is None or all(piece.size <= max_records for piece in pieces)
    assert len(pieces) >= min(min_tasks or 0, sum(r.size for r in ranges))


@given(offsets, offsets)
def test_checkpoints_round_trip(at: dict[TopicPartition, int], lost: dict[TopicPartition, int]) -> None:
    position = Position(at, lost)
    assert Position.from_json(position.to_json()) == position
