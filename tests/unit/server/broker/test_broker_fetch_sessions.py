"""The KIP-227 machine: conversations between a client and the cache."""

from __future__ import annotations

import random

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.server.broker.fetch_sessions import (
    EVICTION_MS,
    FetchContext,
    FetchSessions,
    Outcome,
    PartitionKey,
    Wanted,
)

A, B, C = ("t", 0), ("t", 1), ("u", 0)


def sessions(slots: int = 2) -> FetchSessions:
    return FetchSessions(slots, random.Random(1))


def open_session(
    cache: FetchSessions,
    session_id: int,
    epoch: int,
    *wanted: PartitionKey,
    forget: tuple[PartitionKey, ...] = (),
    now_ms: int = 0,
    ids: bool = False,
    privileged: bool = False,
) -> FetchContext | ErrorCode:
    return cache.open(
        session_id,
        epoch,
        [(key, Wanted(0, 1000)) for key in wanted],
        forget,
        now_ms,
        uses_topic_ids=ids,
        privileged=privileged,
    )


def good(high_watermark: int = 5, size: int = 0) -> Outcome:
    return Outcome(ErrorCode.NONE, size, high_watermark, 0)


def full(cache: FetchSessions, *wanted: PartitionKey, now_ms: int = 0, privileged: bool = False) -> int:
    context = open_session(cache, 0, 0, *wanted, now_ms=now_ms, privileged=privileged)
    assert isinstance(context, FetchContext)
    session_id, sent = context.finish([(key, good()) for key in wanted], now_ms)
    assert all(sent)
    return session_id


def ask(cache: FetchSessions, session_id: int, epoch: int, *outcomes: tuple[PartitionKey, Outcome]) -> list[bool]:
    context = open_session(cache, session_id, epoch)
    assert isinstance(context, FetchContext)
    assert {key for key, _ in context.to_read()} == {key for key, _ in outcomes}
    answered, sent = context.finish(outcomes, 0)
    assert answered == session_id
    return sent


def test_an_incremental_answer_holds_what_changed() -> None:
    cache = sessions()
    session = full(cache, A, B)
    assert ask(cache, session, 1, (A, good()), (B, good())) == [False, False]
    assert ask(cache, session, 2, (A, good(size=10)), (B, good(6))) == [True, True]
    assert ask(cache, session, 3, (A, good()), (B, good(6))) == [False, False]


def test_an_error_is_told_and_so_is_its_end() -> None:
    cache = sessions()
    session = full(cache, A)
    broken = (A, Outcome(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, -1, -1))
    assert ask(cache, session, 1, broken) == [True]
    assert ask(cache, session, 2, broken) == [True]
    assert ask(cache, session, 3, (A, good())) == [True]
    assert ask(cache, session, 4, (A, good())) == [False]


@pytest.mark.parametrize(
    ("now", "again"),
    [
        (Wanted(7, 1000, current_leader_epoch=3, last_fetched_epoch=2), False),  # it has nothing new to say
        (Wanted(9, 1000, current_leader_epoch=3, last_fetched_epoch=3), False),  # it has got records
        (Wanted(6, 1000, current_leader_epoch=3, last_fetched_epoch=2), True),  # it was told that its log diverges
        (Wanted(7, 1000, current_leader_epoch=3, last_fetched_epoch=1), True),  # the same: only an epoch was cut
        (Wanted(7, 1000, current_leader_epoch=4, last_fetched_epoch=2), True),  # the answer came in another epoch
    ],
)
def test_who_goes_back_is_told_again(now: Wanted, again: bool) -> None:
    cache = sessions()
    before = Wanted(7, 1000, current_leader_epoch=3, last_fetched_epoch=2)
    context = cache.open(0, 0, [(A, before)], (), 0, uses_topic_ids=False)
    assert isinstance(context, FetchContext)
    session, _ = context.finish([(A, good())], 0)
    context = cache.open(session, 1, [(A, now)], (), 0, uses_topic_ids=False)
    assert isinstance(context, FetchContext)
    assert context.finish([(A, good())], 0) == (session, [again])


def test_partitions_come_and_go() -> None:
    cache = sessions()
    session = full(cache, A)
    context = open_session(cache, session, 1, B, forget=(A,))
    assert isinstance(context, FetchContext)
    assert [key for key, _ in context.to_read()] == [B]
    assert context.finish([(B, good())], 0) == (session, [True])


def test_who_got_data_goes_to_the_back() -> None:
    cache = sessions()
    session = full(cache, A, B, C)
    ask(cache, session, 1, (A, good(size=1)), (B, good()), (C, good()))
    context = open_session(cache, session, 2)
    assert isinstance(context, FetchContext)
    assert [key for key, _ in context.to_read()] == [B, C, A]


def test_wrong_ids_epochs_and_kinds() -> None:
    cache = sessions()
    session = full(cache, A)
    assert open_session(cache, session + 1, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert open_session(cache, session, 2) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert open_session(cache, session, 1, ids=True) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert isinstance(open_session(cache, session, 1), FetchContext)
    assert open_session(cache, session, 1) is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_epoch_minus_one_closes_and_zero_replaces() -> None:
    cache = sessions()
    first = full(cache, A)
    context = open_session(cache, first, 0, A)
    assert isinstance(context, FetchContext)
    second, _ = context.finish([(A, good())], 0)
    assert second not in (0, first)
    assert len(cache) == 1
    context = open_session(cache, second, -1, A)
    assert isinstance(context, FetchContext)
    assert context.finish([(A, good())], 0) == (0, [True])
    assert len(cache) == 0


def test_a_full_cache_gives_no_session_until_one_is_idle() -> None:
    cache = sessions(slots=1)
    first = full(cache, A, now_ms=0)
    assert full(cache, B, now_ms=EVICTION_MS) == 0
    assert full(cache, B, now_ms=EVICTION_MS + 1) > 0
    assert open_session(cache, first, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.evictions == 1


def test_a_follower_takes_the_slot_of_a_client() -> None:
    cache = sessions(slots=1)
    assert full(cache, A) > 0
    assert full(cache, B, privileged=True) > 0
    assert full(cache, C) == 0, "a client does not take it back"


def test_a_larger_session_takes_the_slot_of_a_smaller_one_in_use_for_long() -> None:
    cache = sessions(slots=1)
    small = full(cache, A, now_ms=0)
    context = open_session(cache, small, 1, now_ms=EVICTION_MS)
    assert isinstance(context, FetchContext)
    assert full(cache, B, C, now_ms=EVICTION_MS + 1) > 0


def test_the_epoch_wraps_past_the_largest_number() -> None:
    cache = sessions()
    session = full(cache, A)
    cache._sessions[session].epoch = 0x7FFFFFFF
    assert isinstance(open_session(cache, session, 0x7FFFFFFF), FetchContext)
    assert isinstance(open_session(cache, session, 1), FetchContext)


def test_a_session_may_begin_empty() -> None:
    assert full(sessions()) != 0
