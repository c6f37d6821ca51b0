"""Incremental fetch sessions (KIP-227): conversations between a client and the cache of sessions."""

from __future__ import annotations

import random

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.fetch import PartitionData
from barnabas.server.broker.fetching.session import PartitionKey, RequestedPartition
from barnabas.server.broker.fetching.session_cache import EVICTION_MS, FetchContext, FetchSessionCache

A, B, C = ("t", 0), ("t", 1), ("u", 0)


def new_cache(slots: int = 2) -> FetchSessionCache:
    return FetchSessionCache(slots, random.Random(1))


def open_session(
    cache: FetchSessionCache,
    session_id: int,
    epoch: int,
    *requested: PartitionKey,
    forget: tuple[PartitionKey, ...] = (),
    now_ms: int = 0,
    ids: bool = False,
    privileged: bool = False,
) -> FetchContext | ErrorCode:
    return cache.open(
        session_id,
        epoch,
        [(key, RequestedPartition(0, 1000)) for key in requested],
        forget,
        now_ms,
        uses_topic_ids=ids,
        privileged=privileged,
    )


def good(high_watermark: int = 5, size: int = 0) -> PartitionData:
    return PartitionData(high_watermark=high_watermark, log_start_offset=0, records=b"x" * size)


def full(cache: FetchSessionCache, *requested: PartitionKey, now_ms: int = 0, privileged: bool = False) -> int:
    context = open_session(cache, 0, 0, *requested, now_ms=now_ms, privileged=privileged)
    assert isinstance(context, FetchContext)
    session_id, sent = context.finish([(key, good()) for key in requested], now_ms)
    assert all(sent)
    return session_id


def fetch(
    cache: FetchSessionCache, session_id: int, epoch: int, *answers: tuple[PartitionKey, PartitionData]
) -> list[bool]:
    """For each answer whether the response of an incremental request contains it."""
    context = open_session(cache, session_id, epoch)
    assert isinstance(context, FetchContext)
    assert {key for key, _ in context.to_read()} == {key for key, _ in answers}
    answered, sent = context.finish(answers, 0)
    assert answered == session_id
    return sent


def test_incremental_response_contains_changed_partitions_only() -> None:
    cache = new_cache()
    session = full(cache, A, B)
    assert fetch(cache, session, 1, (A, good()), (B, good())) == [False, False]
    assert fetch(cache, session, 2, (A, good(size=10)), (B, good(6))) == [True, True]
    assert fetch(cache, session, 3, (A, good()), (B, good(6))) == [False, False]


def test_response_contains_an_error_and_the_first_success_after_it() -> None:
    cache = new_cache()
    session = full(cache, A)
    broken = (A, PartitionData(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, high_watermark=-1, records=b""))
    assert fetch(cache, session, 1, broken) == [True]
    assert fetch(cache, session, 2, broken) == [True]
    assert fetch(cache, session, 3, (A, good())) == [True]
    assert fetch(cache, session, 4, (A, good())) == [False]


@pytest.mark.parametrize(
    ("now", "again"),
    [
        (RequestedPartition(7, 1000, current_leader_epoch=3, last_fetched_epoch=2), False),  # no change
        (RequestedPartition(9, 1000, current_leader_epoch=3, last_fetched_epoch=3), False),  # records were appended
        (RequestedPartition(6, 1000, current_leader_epoch=3, last_fetched_epoch=2), True),  # the log was truncated
        (
            RequestedPartition(7, 1000, current_leader_epoch=3, last_fetched_epoch=1),
            True,
        ),  # the same log end offset
        (RequestedPartition(7, 1000, current_leader_epoch=4, last_fetched_epoch=2), True),  # another leader epoch
    ],
)
def test_offsets_are_sent_again_after_a_client_discarded_the_response(now: RequestedPartition, again: bool) -> None:
    cache = new_cache()
    before = RequestedPartition(7, 1000, current_leader_epoch=3, last_fetched_epoch=2)
    context = cache.open(0, 0, [(A, before)], (), 0, uses_topic_ids=False)
    assert isinstance(context, FetchContext)
    session, _ = context.finish([(A, good())], 0)
    context = cache.open(session, 1, [(A, now)], (), 0, uses_topic_ids=False)
    assert isinstance(context, FetchContext)
    assert context.finish([(A, good())], 0) == (session, [again])


def test_incremental_request_adds_and_forgets_partitions() -> None:
    cache = new_cache()
    session = full(cache, A)
    context = open_session(cache, session, 1, B, forget=(A,))
    assert isinstance(context, FetchContext)
    assert [key for key, _ in context.to_read()] == [B]
    assert context.finish([(B, good())], 0) == (session, [True])


def test_partition_that_returned_data_is_read_last() -> None:
    cache = new_cache()
    session = full(cache, A, B, C)
    fetch(cache, session, 1, (A, good(size=1)), (B, good()), (C, good()))
    context = open_session(cache, session, 2)
    assert isinstance(context, FetchContext)
    assert [key for key, _ in context.to_read()] == [B, C, A]


def test_wrong_session_ids_epochs_and_topic_ids_are_rejected() -> None:
    cache = new_cache()
    session = full(cache, A)
    assert open_session(cache, session + 1, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert open_session(cache, session, 2) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert open_session(cache, session, 1, ids=True) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert isinstance(open_session(cache, session, 1), FetchContext)
    assert open_session(cache, session, 1) is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_epoch_minus_one_closes_a_session_and_epoch_zero_replaces_it() -> None:
    cache = new_cache()
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


def test_full_cache_creates_no_session_until_one_is_idle() -> None:
    cache = new_cache(slots=1)
    first = full(cache, A, now_ms=0)
    assert full(cache, B, now_ms=EVICTION_MS) == 0
    assert full(cache, B, now_ms=EVICTION_MS + 1) > 0
    assert open_session(cache, first, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_follower_takes_the_slot_of_a_consumer() -> None:
    cache = new_cache(slots=1)
    assert full(cache, A) > 0
    assert full(cache, B, privileged=True) > 0
    assert full(cache, C) == 0, "a consumer does not take the slot back"


def test_larger_session_takes_the_slot_of_a_smaller_session_of_two_minutes() -> None:
    cache = new_cache(slots=1)
    small = full(cache, A, now_ms=0)
    context = open_session(cache, small, 1, now_ms=EVICTION_MS)
    assert isinstance(context, FetchContext)
    assert full(cache, B, C, now_ms=EVICTION_MS + 1) > 0


def test_epoch_wraps_to_one_after_the_largest_number() -> None:
    cache = new_cache()
    session = full(cache, A)
    cache._sessions[session].epoch = 0x7FFFFFFF
    assert isinstance(open_session(cache, session, 0x7FFFFFFF), FetchContext)
    assert isinstance(open_session(cache, session, 1), FetchContext)


def test_session_may_have_no_partitions() -> None:
    assert full(new_cache()) != 0
