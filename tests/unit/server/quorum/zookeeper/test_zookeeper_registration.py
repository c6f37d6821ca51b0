"""The node's id in ZooKeeper: taken, waited for, taken over, refused."""

from __future__ import annotations

from barnabas.server.quorum.zookeeper.layout import broker_path
from barnabas.server.quorum.zookeeper.machine.effects import Effect, Fatal
from barnabas.server.quorum.zookeeper.machine.reader import ZooKeeperCall
from barnabas.server.quorum.zookeeper.machine.registration import BrokerIdRegistration
from barnabas.server.quorum.zookeeper.machine.requests import (
    Answer,
    Create,
    Done,
    FailureReason,
    Get,
    Multi,
    Request,
    RequestFailed,
    Znode,
)

PATH = broker_path(7)
TIMEOUT_MS = 2_000
CREATE = Create(PATH, b"me", ephemeral=True)
EXISTS = RequestFailed(FailureReason.NODE_EXISTS, 0)


def new(session: int = 1) -> BrokerIdRegistration:
    registration = BrokerIdRegistration(7, b"me")
    registration.on_session(session, TIMEOUT_MS)
    return registration


def step(registration: BrokerIdRegistration, request: Request, answer: Answer, now_ms: int = 0) -> list[Effect]:
    """It asks for exactly this, and gets that answer."""
    ask = registration.ask(now_ms)
    assert ask is not None
    assert ask.request == request
    return ask.on_answer(answer)


def test_free_node_id_is_registered() -> None:
    registration = new()
    assert step(registration, Multi((CREATE,)), Done((0,))) == []
    assert registration.held
    assert registration.ask(0) is None


def test_registration_is_read_after_a_lost_answer() -> None:
    registration = new()
    step(registration, Multi((CREATE,)), RequestFailed(FailureReason.CONNECTION_LOSS))
    assert not registration.held
    step(registration, Get(PATH, watch=True), Znode(b"me", 0, owner=1))
    assert registration.held


def test_registration_waits_for_the_end_of_another_session() -> None:
    registration = new()
    step(registration, Multi((CREATE,)), EXISTS, 100)
    assert step(registration, Get(PATH, watch=True), Znode(b"old", 0, owner=99), 100) == []
    assert (registration.ask(200), registration.wake_at) == (None, 3_100)
    registration.on_changed()  # its session has ended
    step(registration, Get(PATH, watch=True), RequestFailed(FailureReason.NO_NODE), 1_500)
    step(registration, Multi((CREATE,)), Done((0,)), 1_500)
    assert registration.held


def test_registration_fails_while_another_node_is_active() -> None:
    registration = new()
    step(registration, Multi((CREATE,)), EXISTS, 100)
    step(registration, Get(PATH, watch=True), Znode(b"other", 0, owner=99), 100)
    assert registration.ask(3_099) is None
    [effect] = step(registration, Get(PATH, watch=True), Znode(b"other", 0, owner=99), 3_100)
    assert isinstance(effect, Fatal)
    assert "Another active node is registered in ZooKeeper with the id 7" in effect.reason
    assert not registration.held


def test_wait_restarts_with_a_new_connection() -> None:
    """While there was no ensemble, no session could end."""
    registration = new()
    step(registration, Multi((CREATE,)), EXISTS, 100)
    step(registration, Get(PATH, watch=True), Znode(b"other", 0, owner=99), 100)
    registration.on_session(1, TIMEOUT_MS)
    step(registration, Multi((CREATE,)), EXISTS, 50_000)
    assert step(registration, Get(PATH, watch=True), Znode(b"other", 0, owner=99), 50_000) == []
    assert registration.wake_at == 53_000


def test_registration_waits_for_an_earlier_session_of_this_process() -> None:
    """However long it takes; nothing is deleted, for it could be another node's by then."""
    registration = new(session=1)
    step(registration, Multi((CREATE,)), Done((0,)))
    registration.on_expired()
    registration.on_session(2, TIMEOUT_MS)
    step(registration, Multi((CREATE,)), EXISTS)
    step(registration, Get(PATH, watch=True), Znode(b"me", 0, owner=1))
    assert (registration.ask(2_999), registration.wake_at) == (None, 3_000)
    assert step(registration, Get(PATH, watch=True), Znode(b"me", 0, owner=1), 3_000) == []
    assert (registration.ask(5_999), registration.wake_at) == (None, 6_000)
    registration.on_changed()
    step(registration, Get(PATH, watch=True), RequestFailed(FailureReason.NO_NODE), 4_000)
    step(registration, Multi((CREATE,)), Done((0,)), 4_000)
    assert registration.held


def test_reconnected_session_keeps_the_node_id() -> None:
    registration = new()
    step(registration, Multi((CREATE,)), Done((0,)))
    registration.on_session(1, TIMEOUT_MS)
    assert registration.held
    registration.on_expired()
    assert not registration.held


def ask_now(registration: BrokerIdRegistration) -> ZooKeeperCall:
    ask = registration.ask(0)
    assert ask is not None
    return ask


def test_late_answer_of_an_ended_session_is_ignored() -> None:
    """The znode went with its session: a second node with this id may be there."""
    registration = new(session=1)
    late = ask_now(registration)
    registration.on_expired()
    registration.on_session(2, TIMEOUT_MS)
    assert late.on_answer(Done((0,))) == []
    assert not registration.held
    step(registration, Get(PATH, watch=True), Znode(b"other", 0, owner=99))
    assert not registration.held


def test_node_id_is_not_held_between_two_sessions() -> None:
    registration = new(session=1)
    late = ask_now(registration)
    registration.on_expired()
    late.on_answer(Done((0,)))
    assert not registration.held


def test_registration_is_read_after_a_late_answer_of_the_same_session() -> None:
    registration = new(session=1)
    late = ask_now(registration)
    registration.on_session(1, TIMEOUT_MS)
    late.on_answer(Done((0,)))
    step(registration, Get(PATH, watch=True), Znode(b"me", 0, owner=1))
    assert registration.held


def test_registration_is_read_if_the_session_changed_before_sending() -> None:
    """The client wrote it when it had a new one."""
    registration = new(session=1)
    late = ask_now(registration)
    registration.on_expired()
    registration.on_session(2, TIMEOUT_MS)
    late.on_answer(Done((0,)))
    step(registration, Get(PATH, watch=True), Znode(b"me", 0, owner=2))
    assert registration.held


def test_owner_is_read_again_after_a_new_connection() -> None:
    """The watch went with the connection: nobody would tell when the holder is gone."""
    registration = new(session=1)
    step(registration, Multi((CREATE,)), EXISTS)
    late = ask_now(registration)
    registration.on_session(1, TIMEOUT_MS)
    assert late.on_answer(Znode(b"other", 0, owner=99)) == []
    step(registration, Multi((CREATE,)), Done((0,)))
    assert registration.held
