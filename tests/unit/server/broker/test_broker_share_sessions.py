"""Share sessions: epochs, the limit, and their end with the connection."""

from __future__ import annotations

from uuid import UUID

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.server.broker.share_sessions import EPOCH_MAX, PartitionKey, ShareSessionCache

A: PartitionKey = (UUID(int=1), 0)
B: PartitionKey = (UUID(int=1), 1)
C: PartitionKey = (UUID(int=2), 0)
KEY = ("g", "m")


def begin(sessions: ShareSessionCache, key: tuple[str, str] = KEY, connection: int = 1) -> list[PartitionKey]:
    return sessions.open(key, 0, [A, B], [], connection, acknowledges=False)


def rejected(code: ErrorCode) -> pytest.RaisesExc[KafkaError]:
    return pytest.RaisesExc(KafkaError, check=lambda error: error.code is code)


def test_session_keeps_its_partitions_and_rotates_them() -> None:
    sessions = ShareSessionCache(10)
    assert begin(sessions) == [A, B]
    assert sessions.open(KEY, 1, [C], [], 1, acknowledges=True) == [B, C, A]
    assert sessions.open(KEY, 2, [], [B], 1, acknowledges=False) == [A, C]
    sessions.acknowledge(KEY, 3)
    assert sessions.open(KEY, 4, [], [], 1, acknowledges=False) == [A, C]
    assert sessions.open(KEY, -1, [], [], 1, acknowledges=True) == []
    closed = sessions.close(KEY)
    assert closed is not None
    assert list(closed.touched) == [A, B, C]  # the member may hold records of the forgotten partition
    assert not sessions.has_members("g")


def test_unexpected_epochs_are_rejected() -> None:
    sessions = ShareSessionCache(10)
    with rejected(ErrorCode.SHARE_SESSION_NOT_FOUND):
        sessions.open(KEY, 1, [], [], 1, acknowledges=False)
    with rejected(ErrorCode.SHARE_SESSION_NOT_FOUND):
        sessions.open(KEY, -1, [], [], 1, acknowledges=False)
    with rejected(ErrorCode.SHARE_SESSION_NOT_FOUND):
        sessions.acknowledge(KEY, 1)
    with rejected(ErrorCode.INVALID_SHARE_SESSION_EPOCH):
        sessions.acknowledge(KEY, 0)
    begin(sessions)
    with rejected(ErrorCode.INVALID_SHARE_SESSION_EPOCH):
        sessions.open(KEY, 2, [], [], 1, acknowledges=False)
    with rejected(ErrorCode.INVALID_REQUEST):
        sessions.open(KEY, 0, [A], [], 1, acknowledges=True)
    sessions.acknowledge(KEY, 1)


def test_epoch_wraps_to_one_after_the_largest_number() -> None:
    sessions = ShareSessionCache(1)
    begin(sessions)
    sessions._sessions[KEY].epoch = EPOCH_MAX
    sessions.acknowledge(KEY, EPOCH_MAX)
    assert sessions._sessions[KEY].epoch == 1
    sessions.acknowledge(KEY, 1)
    assert sessions._sessions[KEY].epoch == 2


def test_limit_counts_members_and_allows_a_member_to_replace_its_session() -> None:
    sessions = ShareSessionCache(2)
    begin(sessions)
    begin(sessions, ("h", "n"))
    begin(sessions)
    with rejected(ErrorCode.SHARE_SESSION_LIMIT_REACHED):
        begin(sessions, ("g", "other"))
    assert len(sessions) == 2
    sessions.close(KEY)
    begin(sessions, ("g", "other"))
    assert set(sessions._sessions) == {("h", "n"), ("g", "other")}


def test_disconnect_removes_the_sessions_of_the_connection() -> None:
    sessions = ShareSessionCache(10)
    begin(sessions, connection=1)
    begin(sessions, ("g", "n"), connection=2)
    (lost,) = sessions.on_disconnect(1)
    assert (lost.member_id, list(lost.touched)) == ("m", [A, B])
    assert sessions.has_members("g")
    assert sessions.on_disconnect(1) == []
