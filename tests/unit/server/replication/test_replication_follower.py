"""A follower: where it fetches, where it cuts, when it waits."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from barnabas.core.errors import ErrorCode
from barnabas.server.replication.rules.follower import (
    AppendFetched,
    BoundsRequest,
    ContinueAbove,
    FetchAnswer,
    FetchFrom,
    FollowerStage,
    ReplicaBounds,
    RestartLog,
    TieredRequest,
    TruncateLog,
    after_append,
    after_truncation,
    follow,
    loses_committed,
    next_request,
    on_answer,
    on_bounds,
    on_error,
    on_tiered,
)
from barnabas.server.storage.epochs import EpochEntry, LeaderEpochs
from barnabas.server.storage.values import EpochEndOffset


class Log:
    """Ten records: 0..3 of epoch 1, 4..9 of epoch 3."""

    log_start_offset = 0
    local_log_start_offset = 0
    lacks_lineage = False
    log_end_offset = 10
    latest_epoch: int | None = 3

    def epoch_end_offset(self, epoch: int) -> EpochEndOffset:
        return LeaderEpochs([EpochEntry(1, 0), EpochEntry(3, 4)]).end_offset(epoch, self.log_end_offset)


STATE = follow(None, 2, 5)
ASKED = FetchFrom(5, 10, 3, 0)


def test_fetch_carries_the_last_leader_epoch() -> None:
    assert next_request(STATE, Log(), 0) == ASKED
    assert next_request(follow(STATE, -1, 6), Log(), 0) is None
    assert follow(STATE, 3, 4) is STATE, "an older epoch is no news"


@pytest.mark.parametrize(
    ("leader_end", "offset"),
    [
        (EpochEndOffset(3, 7), 7),  # the leader's epoch 3 ended earlier
        (EpochEndOffset(3, 12), 10),
        (EpochEndOffset(2, 6), 4),  # we have no epoch 2: everything after our epoch 1 goes
        (EpochEndOffset(1, 3), 3),
        (EpochEndOffset(0, 2), 0),  # older than anything we have
    ],
)
def test_follower_truncates_where_the_epochs_diverge(leader_end: EpochEndOffset, offset: int) -> None:
    _, step = on_answer(STATE, ASKED, FetchAnswer(9, 0, diverging=leader_end), Log())
    assert step == TruncateLog(offset)
    assert loses_committed(step, 9) == (offset < 9)


class EmptyLog(Log):
    """No records, and a log start that retention may have advanced, or an earlier topic of this name."""

    log_start_offset = 300
    local_log_start_offset = 300
    log_end_offset = 300


def test_an_empty_log_begins_again_where_the_leader_has_older_records() -> None:
    asked = FetchFrom(5, 300, 3, 300)
    hole, none = FetchAnswer(1200, 0, has_records=True), FetchAnswer(1200, 300, has_records=True)
    assert on_answer(STATE, asked, hole, EmptyLog()) == (STATE, RestartLog(0))
    assert on_answer(STATE, asked, none, EmptyLog()) == (STATE, AppendFetched(5))
    assert on_answer(STATE, asked, replace(none, log_start_offset=-1), EmptyLog()) == (STATE, AppendFetched(5))
    assert not loses_committed(RestartLog(0), 300)
    electable = follow(STATE, 2, 5, electable=True)
    assert on_answer(electable, asked, hole, EmptyLog()) == (electable, AppendFetched(5)), "it may have to lead"


def test_response_to_an_outdated_request_is_discarded() -> None:
    answer = FetchAnswer(9, 0, has_records=True)
    assert on_answer(STATE, ASKED, answer, Log()) == (STATE, AppendFetched(5))
    for asked in (replace(ASKED, leader_epoch=4), replace(ASKED, fetch_offset=9), replace(ASKED, last_fetched_epoch=1)):
        assert on_answer(STATE, asked, answer, Log()) == (STATE, None)


def test_follower_high_watermark_follows_the_leader_and_never_decreases() -> None:
    log = Log()
    assert after_append(FetchAnswer(8, 2), log, 5) == ReplicaBounds(8, 2)
    assert after_append(FetchAnswer(20, 15), log, 5) == ReplicaBounds(10, 10), "never beyond the own log"
    assert after_append(FetchAnswer(3, 0), log, 5) == ReplicaBounds(5, 0), "a new leader may know less than we do"
    assert after_truncation(log, 12) == ReplicaBounds(10, 0)


def test_fenced_follower_waits_for_an_image_and_other_errors_back_off() -> None:
    fenced = on_error(STATE, ASKED, ErrorCode.FENCED_LEADER_EPOCH, 0, backoff_ms=100)
    assert next_request(fenced, Log(), 1 << 40) is None
    assert follow(fenced, 2, 5) is fenced
    assert follow(fenced, 2, 6).stage is FollowerStage.FETCHING
    for code in (ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT):
        waiting = on_error(STATE, ASKED, code, 50, backoff_ms=1_000)
        assert next_request(waiting, Log(), 99) is None
        assert next_request(waiting, Log(), 100) == ASKED
    assert on_error(STATE, replace(ASKED, leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH, 0, backoff_ms=1) is STATE


def test_retries_come_less_often_up_to_the_backoff() -> None:
    state, waits = STATE, []
    for _ in range(7):
        state = on_error(state, ASKED, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, backoff_ms=1_000)
        waits.append(state.retry_at_ms)
    assert waits == [50, 100, 200, 400, 800, 1_000, 1_000]
    assert follow(state, 2, 6).retry_at_ms == 0, "a new leader is asked at once"


def test_out_of_range_follower_truncates_or_restarts() -> None:
    lost = on_error(STATE, ASKED, ErrorCode.OFFSET_OUT_OF_RANGE, 0, backoff_ms=100)
    ask = next_request(lost, Log(), 0)
    assert ask == BoundsRequest(5)
    assert on_bounds(lost, BoundsRequest(5), 20, 30, Log(), 0, backoff_ms=100) == (STATE, RestartLog(20))
    assert on_bounds(lost, BoundsRequest(5), 0, 6, Log(), 0, backoff_ms=100) == (STATE, TruncateLog(6))
    again, step = on_bounds(lost, BoundsRequest(5), 0, 12, Log(), 0, backoff_ms=100)
    assert (step, again.retry_at_ms, again.stage) == (None, 50, FollowerStage.FETCHING)
    assert on_bounds(lost, BoundsRequest(4), 20, 30, Log(), 0, backoff_ms=100) == (lost, None)


class TieredLog(Log):
    """The same records, of which 0..5 are only in the object store."""

    local_log_start_offset = 6


TIERED = TieredRequest(5)


def test_a_follower_below_the_local_start_of_its_leader_continues_above_the_copies() -> None:
    moved = on_error(STATE, ASKED, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE, 0, backoff_ms=100)
    assert moved.stage is FollowerStage.TIERED
    assert next_request(moved, Log(), 0) == TIERED
    assert on_tiered(moved, TIERED, 3, 40, Log()) == (STATE, ContinueAbove(40, 3))


def test_a_leader_without_copies_lets_the_follower_restart_at_its_log_start() -> None:
    moved = replace(STATE, stage=FollowerStage.TIERED)
    assert on_tiered(moved, TIERED, 40, 40, Log()) == (STATE, RestartLog(40))


def test_a_late_state_of_the_copies_is_discarded() -> None:
    assert on_tiered(STATE, TIERED, 3, 40, Log()) == (STATE, None)
    newer = replace(STATE, stage=FollowerStage.TIERED, leader_epoch=6)
    assert on_tiered(newer, TIERED, 3, 40, Log()) == (newer, None)


def test_a_failure_to_read_the_state_is_repeated_after_the_backoff() -> None:
    moved = replace(STATE, stage=FollowerStage.TIERED)
    failed = on_error(moved, TIERED, ErrorCode.KAFKA_STORAGE_ERROR, 50, backoff_ms=100)
    assert next_request(failed, Log(), 99) is None
    assert next_request(failed, Log(), 100) == TIERED


def test_a_tiered_log_is_not_truncated_below_its_local_start() -> None:
    """The log would lose the leader epochs of its copies, and could not find them as a leader."""
    answer = FetchAnswer(9, 0, diverging=EpochEndOffset(3, 5))
    assert on_answer(STATE, ASKED, answer, TieredLog()) == (replace(STATE, stage=FollowerStage.TIERED), None)
    answer = FetchAnswer(9, 0, diverging=EpochEndOffset(3, 6))
    assert on_answer(STATE, ASKED, answer, TieredLog()) == (STATE, TruncateLog(6))


def test_a_log_without_the_leader_epochs_of_its_copies_does_not_fetch() -> None:
    class Interrupted(TieredLog):
        lacks_lineage = True

    assert next_request(STATE, Interrupted(), 0) == TIERED
    assert on_tiered(STATE, TIERED, 3, 40, Interrupted()) == (STATE, ContinueAbove(40, 3))
