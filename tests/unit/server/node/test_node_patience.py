"""How long a broker waits for its controlled shutdown when controllers stop answering."""

from __future__ import annotations

import asyncio
import socket

from barnabas.server.node.patience import MAJORITY_GONE_S, NO_ANSWER_S, PROGRESS_S, ShutdownPatience
from barnabas.server.quorum.majority import majority_may_run
from barnabas.server.raft.machine.values import RaftEndpoint, ReplicaKey, VoterNode, Voters


def test_broker_waits_while_a_controller_answers() -> None:
    patience = ShutdownPatience(0)
    for second in range(100):
        assert patience.reason_to_stop(second, second - 0.1, majority_may_run=True) is None


def test_broker_gives_up_without_an_answer() -> None:
    patience = ShutdownPatience(0)
    assert patience.reason_to_stop(2, 1, majority_may_run=True) is None
    assert patience.reason_to_stop(1 + NO_ANSWER_S - 0.1, 1, majority_may_run=True) is None
    reason = patience.reason_to_stop(1 + NO_ANSWER_S, 1, majority_may_run=True)
    assert reason == "no controller has answered for 6 s"


def test_broker_gives_up_soon_without_a_majority() -> None:
    patience = ShutdownPatience(0)
    assert patience.reason_to_stop(1, 0, majority_may_run=False) is None
    reason = patience.reason_to_stop(1 + MAJORITY_GONE_S, 0, majority_may_run=False)
    assert reason == "so many controllers refuse connections that the others cannot elect a leader"


def test_majority_that_comes_back_or_answers_is_waited_for() -> None:
    patience = ShutdownPatience(0)
    assert patience.reason_to_stop(1, 0, majority_may_run=False) is None
    assert patience.reason_to_stop(1.5, 0, majority_may_run=True) is None
    assert patience.reason_to_stop(2.4, 0, majority_may_run=False) is None
    assert patience.reason_to_stop(3.3, 3.2, majority_may_run=False) is None, "a controller answered meanwhile"
    assert patience.reason_to_stop(4.2, 3.2, majority_may_run=False) is None
    assert patience.reason_to_stop(5.2, 3.2, majority_may_run=False) is not None


def test_wait_is_reported_at_an_interval() -> None:
    patience = ShutdownPatience(0)
    due = [patience.is_report_due(0.25 * step) for step in range(1, 17)]
    assert [0.25 * step for step, is_due in enumerate(due, 1) if is_due] == [PROGRESS_S, 2 * PROGRESS_S]


def test_majority_is_gone_when_hosts_refuse_connections() -> None:
    async def main() -> None:
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
        ports = [sock.getsockname()[1] for sock in sockets]
        voters = Voters(
            tuple(
                VoterNode(ReplicaKey(node_id), (RaftEndpoint("CONTROLLER", "127.0.0.1", port),))
                for node_id, port in enumerate(ports, 1)
            )
        )
        assert await majority_may_run(voters, 9)
        sockets[0].close()
        assert await majority_may_run(voters, 9)
        assert await majority_may_run(voters, 1)
        sockets[1].close()
        assert not await majority_may_run(voters, 9)
        assert await majority_may_run(voters, 2), "this node runs, whatever its listener does"
        sockets[2].close()
        assert not await majority_may_run(voters, 2)
        assert await majority_may_run(Voters(), 2), "ZooKeeper"
        assert await majority_may_run(Voters((VoterNode(ReplicaKey(1)),)), 2), "the address is unknown"

    asyncio.run(main())
