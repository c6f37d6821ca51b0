"""The lease of the active controller: what renews the lease, what does not, and how often it is renewed."""

from __future__ import annotations

from uuid import UUID

from barnabas.server.metadata.ports import LoadedSnapshot
from barnabas.server.metadata.records.codec import TopicRecord
from barnabas.server.quorum.zookeeper.entries import encode_snapshot
from barnabas.server.quorum.zookeeper.layout import BROKER_IDS, CONTROLLER, CONTROLLER_EPOCH, TAIL, read_tail
from barnabas.server.quorum.zookeeper.machine.effects import NodesRegistered
from barnabas.server.quorum.zookeeper.machine.node import ControllerCandidate, ZooKeeperMachine
from barnabas.server.quorum.zookeeper.machine.requests import (
    Check,
    Children,
    Create,
    Delete,
    Done,
    FailureReason,
    Get,
    Multi,
    Request,
    RequestFailed,
    SyncRequest,
)
from tests.property.zookeeper_model import Ensemble, Session

SESSION_MS = 18_000
LEASE_MS = 12_000
HEARTBEAT_MS = 3_000
HEARTBEAT = Multi((Check(CONTROLLER_EPOCH, 1),))


def join(ensemble: Ensemble, node_id: int) -> tuple[ZooKeeperMachine, Session]:
    """It has read all, and stands for election if nobody leads."""
    machine = ZooKeeperMachine(ControllerCandidate(node_id, "h", 9000 + node_id), b"me")
    session = ensemble.open_session(SESSION_MS, 0)
    machine.on_connected(session.id, SESSION_MS)
    machine.campaigning = True
    run(machine, ensemble, session, 0)
    return machine, session


def run(machine: ZooKeeperMachine, ensemble: Ensemble, session: Session, now_ms: int) -> list[Request]:
    """Everything that it asks now is answered at once."""
    asked: list[Request] = []
    while (request := machine.next_request(now_ms, now_ms)) is not None:
        asked.append(request)
        machine.on_answer(ensemble.execute(ensemble.servers[0], session, request))
    return asked


def lead() -> tuple[ZooKeeperMachine, Ensemble, Session]:
    """Elected at 0 ms."""
    ensemble = Ensemble()
    machine, session = join(ensemble, 1)
    assert machine.is_leading(LEASE_MS - 1)
    assert not machine.is_leading(LEASE_MS)
    return machine, ensemble, session


def propose(machine: ZooKeeperMachine, now_ms: int) -> None:
    machine.propose([TopicRecord(name="t", topic_id=UUID(int=1))], now_ms, now_ms)


def test_idle_leader_sends_a_heartbeat_every_sixth_of_the_session() -> None:
    machine, ensemble, session = lead()
    asked: list[tuple[int, Request]] = []
    while (now_ms := machine.wake_at()) is not None and now_ms <= 60_000:
        asked += [(now_ms, request) for request in run(machine, ensemble, session, now_ms)]
    assert asked == [(at_ms, HEARTBEAT) for at_ms in range(HEARTBEAT_MS, 60_001, HEARTBEAT_MS)]


def test_append_renews_the_lease() -> None:
    machine, ensemble, session = lead()
    for now_ms in range(0, 60_000, HEARTBEAT_MS - 1):
        propose(machine, now_ms)
        assert HEARTBEAT not in run(machine, ensemble, session, now_ms)
        assert machine.is_leading(now_ms + LEASE_MS - 1)


def test_read_does_not_renew_the_lease() -> None:
    """A server that is cut off from the others answers it."""
    machine, ensemble, session = lead()
    machine.on_changed(CONTROLLER)
    assert run(machine, ensemble, session, 2_000) == [Get(CONTROLLER, watch=True)]
    assert not machine.is_leading(LEASE_MS)


def test_sync_does_not_renew_the_lease() -> None:
    """It is answered by a leader that was replaced."""
    machine, ensemble, session = lead()
    machine.on_suspended(1_000)
    machine.on_connected(session.id, SESSION_MS)
    asked = run(machine, ensemble, session, 2_000)
    assert len(asked) > 1
    assert HEARTBEAT not in asked
    assert not machine.is_leading(LEASE_MS)


def test_heartbeat_is_sent_during_long_reads() -> None:
    """Whoever reads all of the log once more asks for a long time."""
    machine, ensemble, session = lead()
    machine.add_reader()
    assert machine.next_request(HEARTBEAT_MS, 0) == HEARTBEAT
    machine.on_answer(ensemble.execute(ensemble.servers[0], session, HEARTBEAT))
    assert machine.is_leading(HEARTBEAT_MS + LEASE_MS - 1)


def test_lease_starts_when_the_transaction_is_sent() -> None:
    machine, _, _ = lead()
    assert machine.next_request(HEARTBEAT_MS, 0) == HEARTBEAT
    assert (machine.next_request(8_000, 0), machine.wake_at()) == (None, LEASE_MS)
    machine.on_answer(Done((0,)))
    assert machine.is_leading(HEARTBEAT_MS + LEASE_MS - 1)
    assert not machine.is_leading(HEARTBEAT_MS + LEASE_MS)


def test_lost_answer_does_not_renew_the_lease() -> None:
    machine, ensemble, session = lead()
    machine.next_request(HEARTBEAT_MS, 0)
    machine.on_answer(RequestFailed(FailureReason.CONNECTION_LOSS))
    assert not machine.is_leading(LEASE_MS)
    assert run(machine, ensemble, session, 4_000)[0] == HEARTBEAT
    assert machine.is_leading(4_000 + LEASE_MS - 1)


def test_heartbeat_detects_a_later_controller() -> None:
    """The watch has not told it yet."""
    machine, ensemble, session = lead()
    ensemble._transaction((Delete(CONTROLLER),), session)
    later, _ = join(ensemble, 2)
    assert later.is_leading(0)
    assert machine.is_leading(HEARTBEAT_MS)
    assert run(machine, ensemble, session, HEARTBEAT_MS)[0] == HEARTBEAT
    assert not machine.is_leading(HEARTBEAT_MS)
    assert machine.leader_id(HEARTBEAT_MS) == 2


def test_failed_heartbeat_ends_the_leadership() -> None:
    """ZooKeeper was emptied. It does not ask again and again."""
    machine, _, _ = lead()
    machine.next_request(HEARTBEAT_MS, 0)
    machine.on_answer(RequestFailed(FailureReason.NO_NODE, 0, CONTROLLER_EPOCH))
    assert not machine.is_leading(HEARTBEAT_MS)


def win_unheard() -> tuple[ZooKeeperMachine, Ensemble, Session]:
    """It won the election, and the answer was lost."""
    ensemble = Ensemble()
    machine = ZooKeeperMachine(ControllerCandidate(1, "h", 9001), b"me")
    session = ensemble.open_session(SESSION_MS, 0)
    machine.on_connected(session.id, SESSION_MS)
    machine.campaigning = True
    while CONTROLLER not in ensemble.tree:
        request = machine.next_request(0, 0)
        assert request is not None
        answer = ensemble.execute(ensemble.servers[0], session, request)
        machine.on_answer(RequestFailed(FailureReason.CONNECTION_LOSS) if CONTROLLER in ensemble.tree else answer)
    return machine, ensemble, session


def ask_until_delete(machine: ZooKeeperMachine, ensemble: Ensemble, session: Session) -> Multi:
    """The request that deletes /controller after an election whose answer was lost; it is not executed."""
    while True:
        request = machine.next_request(1_000, 0)
        assert request is not None
        if isinstance(request, Multi):
            return request
        machine.on_answer(ensemble.execute(ensemble.servers[0], session, request))


def test_election_with_lost_answer_is_given_up_and_repeated() -> None:
    machine, ensemble, session = win_unheard()
    request = ask_until_delete(machine, ensemble, session)
    assert request == Multi((Check(CONTROLLER_EPOCH, 1), Delete(CONTROLLER)))
    machine.on_answer(ensemble.execute(ensemble.servers[0], session, request))
    run(machine, ensemble, session, 1_000)
    assert (machine.is_leading(1_000), machine.epoch) == (True, 2)


def test_late_deletion_does_not_end_the_leadership_of_another_node() -> None:
    """The client writes the request in its next session, when another node was elected."""
    machine, ensemble, session = win_unheard()
    request = ask_until_delete(machine, ensemble, session)
    ensemble.end_session(session)
    ensemble.catch_up(ensemble.servers[0])
    later, _ = join(ensemble, 2)
    assert later.is_leading(0)
    again = ensemble.open_session(SESSION_MS, 2_000)
    machine.on_expired()
    machine.on_connected(again.id, SESSION_MS)
    machine.on_answer(ensemble.execute(ensemble.servers[0], again, request))
    assert CONTROLLER in ensemble.tree
    run(machine, ensemble, again, 2_000)
    assert machine.leader_id(2_000) == 2


def test_new_session_ends_the_leadership() -> None:
    """Even if nobody told of the end of the one before."""
    machine, _, _ = lead()
    machine.on_connected(99, SESSION_MS)
    assert not machine.is_leading(0)


def test_sync_of_an_earlier_connection_is_ignored() -> None:
    machine, _, session = lead()
    for _ in range(2):
        machine.on_suspended(1_000)
        machine.on_connected(session.id, SESSION_MS)
        assert machine.next_request(1_000, 0) in (SyncRequest(), None)
    machine.on_answer(Done())
    assert machine.next_request(1_000, 0) == SyncRequest()
    machine.on_answer(Done())
    assert machine.next_request(1_000, 0) != SyncRequest()


def test_full_queue_does_not_delay_snapshots() -> None:
    machine, ensemble, session = lead()
    propose(machine, 0)
    run(machine, ensemble, session, 0)
    snapshot = LoadedSnapshot(machine.position, 1, 0, [])
    machine.write_snapshot(snapshot, encode_snapshot(snapshot, machine.metadata_version, 1_000))
    for _ in range(20):
        propose(machine, 0)
        request = machine.next_request(0, 0)
        assert request is not None
        machine.on_answer(ensemble.execute(ensemble.servers[0], session, request))
    assert not machine.wants_snapshot(snapshot.end_offset)
    assert read_tail(ensemble.tree[TAIL].data).snapshot is not None
    run(machine, ensemble, session, 0)
    assert machine.position == 1 + 20


def test_resigning_leader_writes_pending_proposals_first() -> None:
    machine, ensemble, session = lead()
    propose(machine, 0)
    sent = machine.next_request(0, 0)
    assert sent is not None
    propose(machine, 0)
    machine.resign()
    machine.on_answer(ensemble.execute(ensemble.servers[0], session, sent))
    append, resignation, *_ = run(machine, ensemble, session, 0)
    assert isinstance(append, Multi)
    assert isinstance(append.ops[-1], Create)
    assert resignation == Multi((Check(CONTROLLER_EPOCH, 1), Delete(CONTROLLER)))
    assert machine.resigned
    assert read_tail(ensemble.tree[TAIL].data).end_offset == 2


def test_leader_is_notified_of_the_nodes_that_have_a_session() -> None:
    machine, ensemble, session = lead()
    assert NodesRegistered(frozenset({1})) in machine.take_effects()
    other, other_session = join(ensemble, 2)
    machine.on_changed(BROKER_IDS)
    assert run(machine, ensemble, session, 1_000) == [Children(BROKER_IDS, watch=True)]
    assert machine.take_effects() == [NodesRegistered(frozenset({1, 2}))]
    ensemble.end_session(other_session)
    ensemble.catch_up(ensemble.servers[0])
    machine.on_changed(BROKER_IDS)
    run(machine, ensemble, session, 2_000)
    assert machine.take_effects() == [NodesRegistered(frozenset({1}))]
    assert not any(isinstance(effect, NodesRegistered) for effect in other.take_effects()), "only the leader watches"
