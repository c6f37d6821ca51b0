"""Who is in sync: expansion, shrinking, and every way in which AlterPartition may end."""

from __future__ import annotations

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.server.replication.rules.isr import (
    CommittedIsr,
    Next,
    joining_soon,
    on_outcome,
    out_of_sync,
    try_expand,
    try_shrink,
)
from barnabas.server.replication.rules.leader import (
    IsrProposal,
    LeaderState,
    begin_leadership,
    is_stale_fetch,
    latest_is_known,
)
from barnabas.server.replication.rules.watermark import high_watermark

ACTIVE = {1: 10, 2: 20, 3: 30}
LAG_MS = 1_000


def leader(*isr: int, start: int = 5) -> LeaderState:
    return begin_leadership(1, 4, 7, (1, 2, 3), isr, start, now_ms=0)


def test_follower_joins_the_isr_with_all_committed_records_and_the_epoch_start() -> None:
    state = leader(1, 2)
    behind_epoch = state.on_fetch(3, 4, 10, 1, broker_epoch=30)
    assert try_expand(behind_epoch, 3, ACTIVE) is None, "it has the watermark, not the start of the epoch"
    behind_watermark = state.on_fetch(3, 6, 10, 1, broker_epoch=30)
    assert try_expand(behind_watermark, 7, ACTIVE) is None
    proposed = try_expand(state.on_fetch(3, 7, 10, 1, broker_epoch=30), 7, ACTIVE)
    assert proposed is not None
    after, proposal = proposed
    assert proposal == IsrProposal(4, 7, ((1, 10), (2, -1), (3, 30)))
    assert after.maximal_isr == {1, 2, 3}
    assert after.isr == {1, 2}
    assert try_expand(after, 7, ACTIVE) is None, "one proposal at a time"


@pytest.mark.parametrize("active", [{1: 10, 2: 20}, {1: 10, 2: 20, 3: 31}], ids=["fenced", "another life"])
def test_only_the_registered_process_may_join_the_isr(active: dict[int, int]) -> None:
    state = leader(1, 2).on_fetch(3, 9, 9, 1, broker_epoch=30)
    assert try_expand(state, 9, active) is None
    assert joining_soon(state, 9, active, LAG_MS, 1) == []
    assert joining_soon(state, 9, ACTIVE, LAG_MS, 1) == [3]


def test_follower_lag_is_the_time_since_it_was_caught_up() -> None:
    state = leader(1, 2, 3).on_fetch(2, 9, 9, 500, broker_epoch=20)
    assert out_of_sync(state, 12, LAG_MS, 1_000) == set(), "both had a full lag time from the beginning"
    assert out_of_sync(state, 12, LAG_MS, 1_001) == {3}
    assert out_of_sync(state, 12, LAG_MS, 1_501) == {2, 3}
    assert out_of_sync(state, 9, LAG_MS, 9_999) == {3}, "who has everything is never late"
    shrunk = try_shrink(state, 12, ACTIVE, LAG_MS, 1_001)
    assert shrunk is not None
    assert shrunk[1].members == {1, 2}
    assert shrunk[0].maximal_isr == {1, 2, 3}, "until it is committed, 3 still counts"


def proposed() -> tuple[LeaderState, IsrProposal]:
    found = try_expand(leader(1, 2).on_fetch(3, 9, 9, 1, broker_epoch=30), 9, ACTIVE)
    assert found is not None
    return found


def test_committed_proposal_becomes_the_isr() -> None:
    state, proposal = proposed()
    after, todo = on_outcome(state, proposal, ErrorCode.NONE, CommittedIsr(4, 8, (1, 2, 3)))
    assert todo is Next.DONE
    assert (after.isr, after.partition_epoch, after.inflight, after.proposed_isr) == ({1, 2, 3}, 8, None, set())
    assert on_outcome(after, proposal, ErrorCode.NONE, CommittedIsr(4, 8, (1,))) == (after, Next.DONE), "a late double"
    assert after.on_image(7, (1, 2, 3), (1, 2)) is after, "an image from before the answer"


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_rejected_proposal_leaves_the_isr_unchanged(code: ErrorCode) -> None:
    state, proposal = proposed()
    after, todo = on_outcome(state, proposal, code)
    assert todo is Next.DONE
    assert (after.isr, after.maximal_isr, after.inflight) == ({1, 2}, {1, 2}, None)


@pytest.mark.parametrize(
    "code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.NEW_LEADER_ELECTED]
)
def test_outdated_proposal_waits_for_the_image(code: ErrorCode) -> None:
    state, proposal = proposed()
    after, todo = on_outcome(state, proposal, code)
    assert (after, todo) == (state, Next.WAIT)
    settled = after.on_image(8, (1, 2, 3), (1,))
    assert (settled.isr, settled.maximal_isr, settled.inflight) == ({1}, {1}, None)


def test_proposal_without_a_response_may_still_take_effect() -> None:
    state, proposal = proposed()
    for code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH):
        state, todo = on_outcome(state, proposal, code)
        assert todo is Next.RETRY
    refused, _ = on_outcome(state, proposal, ErrorCode.INELIGIBLE_REPLICA)
    assert refused.inflight is None
    assert refused.maximal_isr == {1, 2, 3}, "the first attempt may find the replica eligible"
    assert high_watermark(refused.on_fetch(2, 12, 12, 2), 12, 5, min_insync_replicas=2) == 9, "so 3 is waited for"
    assert refused.on_image(8, (1, 2, 3), (1, 2)).maximal_isr == {1, 2}


def test_high_watermark_does_not_move_below_min_insync_replicas() -> None:
    state = leader(1)
    assert high_watermark(state, 12, 5, min_insync_replicas=2) == 5
    assert high_watermark(state, 12, 5, min_insync_replicas=1) == 12
    assert high_watermark(state.on_fetch(3, 9, 12, 2), 12, 5, joining=[3]) == 9


def test_stale_fetch_and_unknown_latest_offset() -> None:
    assert is_stale_fetch(20, 21)
    assert not is_stale_fetch(21, 21)
    assert not is_stale_fetch(-1, 21)
    assert not is_stale_fetch(20, None)
    assert not latest_is_known(leader(1, 2), 4)
    assert latest_is_known(leader(1, 2), 5)
