"""The remote segments of a partition: which one has a record, and what has been copied."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.server.tiering.lineage import epochs_between, find_segment, is_in_lineage, segments_of
from barnabas.server.tiering.remote_log import RemoteLog
from barnabas.server.tiering.values import (
    PartitionDeleteState,
    RemotePartitionDelete,
    RemoteSegment,
)
from tests.unit.server.tiering.segments import DELETED, DELETING, FINISHED, PARTITION, finish, lineage, segment


def test_a_segment_is_found_only_while_its_copy_is_complete_and_not_being_deleted() -> None:
    remote, one = RemoteLog(), segment(1, 0, 9)
    assert remote.apply(one)
    assert remote.find(0, 5) is None
    assert remote.apply(one.update(FINISHED, 1, 10))
    found = remote.find(0, 5)
    assert found is not None and (found.id, found.state, found.event_timestamp) == (one.id, FINISHED, 10)
    assert remote.find(0, 10) is None and remote.find(1, 5) is None
    assert remote.apply(one.update(DELETING, 1, 20))
    assert remote.find(0, 5) is None and [s.state for s in remote.segments()] == [DELETING]
    assert remote.apply(one.update(DELETED, 1, 30))
    assert remote.segments() == [] and remote.get(one.id) is None


def test_an_event_that_does_not_fit_changes_nothing() -> None:
    remote, one = RemoteLog(), segment(1, 0, 9)
    assert not remote.apply(one.update(FINISHED, 1, 0))  # unknown
    assert remote.apply(one)
    assert remote.apply(one)  # the record was written twice
    assert not remote.apply(one.update(DELETED, 1, 0))  # nothing says that the deletion has begun
    assert remote.apply(one.update(DELETING, 1, 0))
    assert not remote.apply(one.update(FINISHED, 1, 0))  # a leader that was replaced while it copied
    assert not remote.apply(one)
    assert remote.find(0, 5) is None


def test_the_epoch_tells_segments_with_the_same_offsets_apart() -> None:
    remote = RemoteLog()
    mine, theirs = segment(1, 0, 19, {0: 0, 1: 10}), segment(2, 10, 19, {2: 10})
    finish(remote, mine, theirs)
    for offset, entries, expected in (
        (5, lineage((0, 0), (2, 10)), mine),
        (15, lineage((0, 0), (1, 10)), mine),
        (15, lineage((0, 0), (2, 10)), theirs),
    ):
        found = find_segment(remote, entries, offset)
        assert found is not None and found.id == expected.id
    assert find_segment(remote, lineage((0, 0), (3, 10)), 15) is None
    assert find_segment(remote, lineage((0, 5)), 4) is None


def test_of_two_copies_the_one_with_more_records_is_read_and_the_other_takes_over() -> None:
    remote = RemoteLog()
    long, short, same = segment(1, 0, 19), segment(2, 5, 9), segment(3, 0, 19)
    finish(remote, long, short)
    found = remote.find(0, 7)
    assert found is not None and found.id == long.id
    finish(remote, same)  # of two equal copies, the later one
    found = remote.find(0, 7)
    assert found is not None and found.id == same.id
    for gone in (long, same):
        assert remote.apply(gone.update(DELETING, 1, 0))
    found = remote.find(0, 7)
    assert found is not None and found.id == short.id
    assert remote.find(0, 12) is None


def test_a_deletion_does_not_lower_the_highest_copied_offset() -> None:
    remote, one = RemoteLog(), segment(1, 0, 9)
    finish(remote, one)
    assert remote.apply(one.update(DELETING, 1, 0)) and remote.apply(one.update(DELETED, 1, 0))
    assert remote.highest_copied(lineage((0, 0)), 100) == 9


def test_the_highest_copied_offset_follows_the_lineage() -> None:
    remote = RemoteLog()
    finish(remote, segment(1, 0, 19, {0: 0, 1: 10}), segment(2, 20, 29, {1: 20}))
    assert RemoteLog().highest_copied(lineage((0, 0)), 100) == -1
    assert remote.highest_copied(lineage((0, 0), (1, 10)), 100) == 29
    assert remote.highest_copied(lineage((0, 0), (1, 10), (5, 40)), 100) == 29
    assert remote.highest_copied(lineage((0, 0), (1, 10), (5, 25)), 100) == 24  # 25 to 29 were lost
    assert remote.highest_copied(lineage((0, 0), (5, 15)), 100) == 9
    assert remote.highest_copied(lineage((0, 0), (1, 10)), 22) == 21  # the log ends below the copies
    assert remote.highest_copied(lineage((1, 35)), 100) == -1  # the log starts above the copies


def test_a_segment_is_in_the_lineage_if_the_epochs_agree_at_each_of_its_offsets() -> None:
    one = segment(1, 10, 29, {1: 10, 2: 20})
    assert is_in_lineage(one, lineage((0, 0), (1, 5), (2, 20)), 100)
    assert is_in_lineage(one, lineage((2, 25)), 100)  # the log starts inside the segment
    assert is_in_lineage(one, lineage((1, 5), (2, 20), (7, 30)), 100)
    assert not is_in_lineage(one, lineage((1, 5), (2, 21)), 100)
    assert not is_in_lineage(one, lineage((1, 5), (2, 20), (3, 29)), 100)
    assert not is_in_lineage(one, lineage((1, 5)), 100)
    assert not is_in_lineage(one, lineage((1, 5), (2, 20)), 29)  # the log has not all of it
    assert not is_in_lineage(one, lineage((2, 30)), 100)  # all of it lies below the log's start
    assert not is_in_lineage(one, (), 100)


def test_the_segments_of_a_log_have_each_offset_once() -> None:
    remote = RemoteLog()
    one, two, twice, foreign = segment(1, 0, 9), segment(2, 10, 19), segment(3, 5, 19), segment(4, 20, 29, {3: 20})
    finish(remote, two, twice, one, foreign)
    assert [s.id for s in segments_of(remote, lineage((0, 0)), 100)] == [one.id, twice.id]


def test_the_epochs_of_a_segment_begin_at_its_start() -> None:
    entries = lineage((0, 0), (2, 10), (3, 20), (4, 30))
    assert epochs_between(entries, 15, 30) == lineage((2, 15), (3, 20))
    assert epochs_between(entries, 10, 20) == lineage((2, 10))
    assert epochs_between((), 10, 20) == ()


def test_the_deletion_of_a_partition_goes_forward_only() -> None:
    remote = RemoteLog()
    marked, started, finished = (RemotePartitionDelete(PARTITION, 1, 0, state) for state in PartitionDeleteState)
    assert remote.apply(marked) and remote.apply(started) and not remote.apply(marked)
    assert remote.apply(finished) and remote.delete_state is PartitionDeleteState.DELETE_PARTITION_FINISHED


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 15)), max_size=8),
    st.lists(st.integers(0, 7), max_size=4),
)
def test_an_offset_is_found_exactly_if_a_readable_segment_has_it(
    spans: list[tuple[int, int]], deleted: list[int]
) -> None:
    remote = RemoteLog()
    live: list[RemoteSegment] = []
    for number, (start, length) in enumerate(spans):
        live.append(segment(number, start, start + length))
        finish(remote, live[-1])
    for number in deleted:
        if number < len(live):
            gone = live.pop(number)
            assert remote.apply(gone.update(DELETING, 1, 0))
    for offset in range(50):
        having = {s.id for s in live if s.start_offset <= offset <= s.end_offset}
        found = remote.find(0, offset)
        assert (found is None) == (not having)
        assert found is None or found.id in having
