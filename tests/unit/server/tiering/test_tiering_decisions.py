"""Which segments are copied, and which remote segments are deleted."""

from __future__ import annotations

from msgspec.structs import replace

from barnabas.server.tiering.copying import ClosedSegment, CopyLag, copy_lag, segments_to_copy
from barnabas.server.tiering.expiring import LocalLogView, expired_segments, remote_size_bytes
from barnabas.server.tiering.lineage import copied_through
from barnabas.server.tiering.remote_log import RemoteLog
from tests.unit.server.tiering.segments import DELETING, finish, lineage, segment

CLOSED = [ClosedSegment(0, 10, 100), ClosedSegment(10, 20, 100), ClosedSegment(20, 30, 100)]
LOG = LocalLogView(
    lineage=lineage((0, 0)),
    log_start_offset=0,
    local_log_start_offset=30,
    log_end_offset=100,
    bytes_only_local=50,
    retention_ms=-1,
    retention_bytes=-1,
    deletes=True,
)


def bases(segments: list[ClosedSegment]) -> list[int]:
    return [each.base_offset for each in segments]


def test_segments_are_copied_in_order_below_the_last_stable_offset() -> None:
    assert bases(segments_to_copy(CLOSED, -1, 0, 100)) == [0, 10, 20]
    assert bases(segments_to_copy(CLOSED, -1, 0, 20)) == [0, 10]
    assert bases(segments_to_copy(CLOSED, -1, 0, 19)) == [0]
    assert bases(segments_to_copy(CLOSED, 9, 0, 100)) == [10, 20]
    assert bases(segments_to_copy(CLOSED, 29, 0, 100)) == []


def test_a_segment_that_is_copied_in_part_is_copied_again_as_a_whole() -> None:
    """The previous leader's segments had other boundaries."""
    assert bases(segments_to_copy(CLOSED, 14, 0, 100)) == [10, 20]


def test_segments_below_the_log_start_are_not_copied() -> None:
    assert bases(segments_to_copy(CLOSED, -1, 20, 100)) == [20]
    assert bases(segments_to_copy(CLOSED, -1, 25, 100)) == [20]


def test_an_empty_segment_is_not_copied() -> None:
    assert segments_to_copy([ClosedSegment(0, 10, 0)], -1, 0, 100) == []


def test_the_copy_lag_counts_segments_that_may_not_be_copied_yet() -> None:
    assert copy_lag(CLOSED, 9, 0) == CopyLag(200, 2)


def remote_with_three() -> RemoteLog:
    remote = RemoteLog()
    finish(
        remote,
        segment(1, 0, 9, max_timestamp=1_000),
        segment(2, 10, 19, max_timestamp=2_000),
        segment(3, 20, 29, max_timestamp=3_000),
    )
    return remote


def starts_of(remote: RemoteLog, log: LocalLogView, now_ms: int = 0) -> tuple[int, list[int]]:
    expiry = expired_segments(remote, log, now_ms)
    return expiry.log_start_offset, [each.start_offset for each in expiry.segments]


def test_nothing_expires_without_limits() -> None:
    assert starts_of(remote_with_three(), LOG, 1_000_000) == (0, [])


def test_segments_expire_by_their_youngest_record() -> None:
    log = replace(LOG, retention_ms=500)
    assert starts_of(remote_with_three(), log, 1_500) == (0, [])
    assert starts_of(remote_with_three(), log, 1_501) == (10, [0])
    assert starts_of(remote_with_three(), log, 9_999) == (30, [0, 10, 20])


def test_retention_bytes_counts_remote_and_local_records_once() -> None:
    assert remote_size_bytes(remote_with_three(), LOG.lineage, 100) == 300
    assert starts_of(remote_with_three(), replace(LOG, retention_bytes=350)) == (0, [])
    assert starts_of(remote_with_three(), replace(LOG, retention_bytes=251)) == (0, [])
    assert starts_of(remote_with_three(), replace(LOG, retention_bytes=250)) == (10, [0])
    assert starts_of(remote_with_three(), replace(LOG, retention_bytes=0)) == (30, [0, 10, 20])


def test_without_delete_in_the_policy_only_the_log_start_counts() -> None:
    log = replace(LOG, retention_ms=1, retention_bytes=0, deletes=False)
    assert starts_of(remote_with_three(), log, 9_999) == (0, [])
    assert starts_of(remote_with_three(), replace(log, log_start_offset=15, lineage=lineage((0, 15))), 9_999) == (
        15,
        [0],
    )


def test_a_segment_that_was_never_finished_is_deleted_unless_it_is_being_copied() -> None:
    remote, one = RemoteLog(), segment(1, 0, 9)
    assert remote.apply(one)
    assert expired_segments(remote, LOG, 0, copying=[one.id]).segments == ()
    assert expired_segments(remote, LOG, 0).segments == (one,)


def test_a_deletion_that_was_interrupted_is_continued() -> None:
    remote, one = RemoteLog(), segment(1, 0, 9)
    finish(remote, one)
    assert remote.apply(one.update(DELETING, 1, 0))
    assert starts_of(remote, replace(LOG, log_start_offset=10, lineage=lineage((0, 10)))) == (10, [0])


def test_a_log_start_below_deleted_copies_is_raised() -> None:
    remote = remote_with_three()
    first, second, third = remote.readable_segments()
    assert starts_of(remote, LOG) == (0, [])
    for gone, start in ((first, 10), (second, 20), (third, 30)):
        assert remote.apply(gone.update(DELETING, 1, 0))
        assert starts_of(remote, replace(LOG, deletes=False))[0] == start


def test_a_log_start_below_records_that_were_never_copied_stays() -> None:
    assert starts_of(RemoteLog(), replace(LOG, local_log_start_offset=0)) == (0, [])
    assert starts_of(RemoteLog(), LOG) == (0, [])


def test_segments_of_another_lineage_stay_until_their_epochs_are_gone() -> None:
    remote = RemoteLog()
    finish(remote, segment(1, 0, 9, {1: 0}, max_timestamp=0))
    log = replace(LOG, lineage=lineage((0, 0), (2, 5)), retention_ms=10)
    assert starts_of(remote, log, 9_999) == (0, [])
    assert starts_of(remote, replace(log, lineage=lineage((2, 5)), log_start_offset=5), 9_999) == (5, [0])


def test_what_may_be_deleted_locally_has_a_copy_without_a_gap() -> None:
    one, two, three = segment(1, 0, 9), segment(2, 10, 19), segment(3, 20, 29)
    assert copied_through([one, two, three], 0) == 29
    assert copied_through([one, three], 0) == 9
    assert copied_through([two, three], 0) == -1
    assert copied_through([one, two], 15) == 19
    assert copied_through([one], 15) == -1


def test_a_log_that_has_lost_its_epochs_takes_no_segment_for_an_older_one() -> None:
    remote = remote_with_three()
    assert starts_of(remote, replace(LOG, lineage=lineage((5, 30)))) == (0, [])
