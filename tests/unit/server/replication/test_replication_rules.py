"""The leader's arithmetic: high watermark, acknowledgement, epochs."""

from __future__ import annotations

from barnabas.core.errors import ErrorCode
from barnabas.server.replication.rules.leader import (
    LeaderState,
    acknowledge,
    check_leader_epoch,
    effective_min_insync,
    refuse_append,
)
from barnabas.server.replication.rules.watermark import high_watermark


def state(*isr: int, replicas: tuple[int, ...] = (1, 2, 3), proposed: tuple[int, ...] = ()) -> LeaderState:
    return LeaderState(1, 4, 0, replicas, frozenset(isr), frozenset(proposed))


def test_high_watermark_of_a_single_replica_is_the_log_end_offset() -> None:
    assert high_watermark(state(1), 10, 3) == 10


def test_high_watermark_waits_for_the_slowest_in_sync_replica() -> None:
    leader = state(1, 2, 3)
    assert high_watermark(leader, 10, 3) == 3, "nothing is known of the followers yet"
    leader = leader.on_fetch(2, 8, 10, 100).on_fetch(3, 6, 10, 100)
    assert high_watermark(leader, 10, 3) == 6
    leader = leader.on_fetch(3, 10, 10, 100)
    assert high_watermark(leader, 10, 6) == 8


def test_proposed_isr_member_holds_the_high_watermark_back() -> None:
    leader = state(1, 2, proposed=(3,)).on_fetch(2, 10, 10, 0)
    assert high_watermark(leader, 10, 5) == 5
    assert high_watermark(leader.on_fetch(3, 7, 10, 0), 10, 5) == 7


def test_high_watermark_never_decreases() -> None:
    leader = state(1, 2).on_fetch(2, 2, 10, 0)
    assert high_watermark(leader, 10, 5) == 5


def test_caught_up_time_advances_only_when_caught_up() -> None:
    leader = state(1, 2).on_fetch(2, 10, 10, 100).on_fetch(2, 10, 12, 200)
    assert leader.followers[2].caught_up_ms == 100
    assert leader.on_fetch(2, 12, 12, 300).followers[2].caught_up_ms == 300


def test_acks_all_requires_min_insync_replicas_before_and_after_the_append() -> None:
    assert refuse_append(state(1), -1, 2) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert refuse_append(state(1, 2), -1, 2) is ErrorCode.NONE
    assert refuse_append(state(1), 1, 2) is ErrorCode.NONE
    assert acknowledge(state(1, 2), 10, 9, 2) is None
    assert acknowledge(state(1, 2), 10, 10, 2) is ErrorCode.NONE
    assert acknowledge(state(1), 10, 10, 2) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_effective_min_insync_is_at_most_the_replica_count() -> None:
    assert effective_min_insync((1,), 2) == 1
    assert refuse_append(state(1, replicas=(1,)), -1, 2) is ErrorCode.NONE


def test_leader_epoch_of_a_request_is_checked() -> None:
    assert check_leader_epoch(5, -1) is ErrorCode.NONE
    assert check_leader_epoch(5, 5) is ErrorCode.NONE
    assert check_leader_epoch(5, 4) is ErrorCode.FENCED_LEADER_EPOCH
    assert check_leader_epoch(5, 6) is ErrorCode.UNKNOWN_LEADER_EPOCH
