"""A follower's side of a fetch session: what each request names."""

from __future__ import annotations

from barnabas.server.replication.rules.fetch_session import FetchSessionHandler, FetchSessionRequest


def test_first_request_is_full_and_later_ones_incremental() -> None:
    session: FetchSessionHandler[str, int] = FetchSessionHandler()
    assert session.build({"a": 0, "b": 0}) == FetchSessionRequest(0, 0, [("a", 0), ("b", 0)], [])
    session.on_reply(7)
    assert session.build({}) == FetchSessionRequest(7, 1, [], [])
    session.on_reply(7)
    assert session.build({"a": 5, "b": 0, "c": 1}) == FetchSessionRequest(7, 2, [("a", 5), ("c", 1)], [])
    session.on_reply(7)
    assert session.build({"b": None, "gone": None}) == FetchSessionRequest(7, 3, [], ["b"])
    assert session.requested == {"a": 5, "c": 1}


def test_every_request_is_full_without_a_session_at_the_leader() -> None:
    session: FetchSessionHandler[str, int] = FetchSessionHandler()
    session.build({"a": 0, "b": 0})
    session.on_reply(0)
    session.to_back("a")
    assert session.build({"a": 3}) == FetchSessionRequest(0, 0, [("b", 0), ("a", 3)], [])


def test_lost_response_closes_the_session_and_opens_another() -> None:
    session: FetchSessionHandler[str, int] = FetchSessionHandler()
    session.build({"a": 0})
    session.on_reply(7)
    session.build({"a": 1})
    session.reset()
    assert session.build({"b": 0}) == FetchSessionRequest(7, 0, [("a", 1), ("b", 0)], [])
    session.on_reply(8)
    assert session.build({}) == FetchSessionRequest(8, 1, [], [])


def test_session_epoch_wraps_to_one() -> None:
    session: FetchSessionHandler[str, int] = FetchSessionHandler()
    session.build({"a": 0})
    session.on_reply(7)
    session._epoch = (1 << 31) - 1
    session.on_reply(7)
    assert session.build({}).epoch == 1
