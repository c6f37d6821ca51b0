"""With which quorum a node starts, and that it founds none where there is one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.server.metadata.errors import MetadataError
from barnabas.server.quorum.finding import quorum_exists
from barnabas.server.quorum.quorum_state import QuorumState
from barnabas.server.quorum.starting import starting_config
from barnabas.server.raft.machine.messages import FetchResponse, RaftRequest, RaftResponse
from barnabas.server.raft.machine.values import (
    Endpoints,
    LogSummary,
    RaftEndpoint,
    ReplicaKey,
    VoterNode,
    Voters,
)
from tests.configs import raft_config
from tests.unit.server.quorum.kit import disk_of, run

ME = ReplicaKey(1, disk_of(1))
HERE = (RaftEndpoint("CONTROLLER", "n1", 9093),)
NEW = LogSummary()
USED = LogSummary(end_offset=5, epochs=((1, 0),))
ADDRESSES = [("n1", 9093), ("n2", 9093)]


def start(
    summary: LogSummary = NEW, state: QuorumState | None = None, *, voters: tuple[int, ...] = (), found: bool = True,
    bootstrap: bool = False, can_vote: bool = True,
) -> tuple[Voters, int]:  # fmt: skip
    config = starting_config(
        raft_config(can_vote=can_vote),
        ME,
        summary,
        state,
        voters={node_id: (f"n{node_id}", 9093) for node_id in voters},
        bootstrap=ADDRESSES if bootstrap else [],
        endpoints=HERE,
        listener="CONTROLLER",
        may_found=found,
    )
    assert config.endpoints == HERE
    expected = [(-2, (RaftEndpoint("CONTROLLER", "n1", 9093),)), (-3, (RaftEndpoint("CONTROLLER", "n2", 9093),))]
    assert list(config.bootstrap) == (expected if bootstrap else [])
    return config.voters, config.kraft_version


def test_configured_voters_are_static() -> None:
    two = Voters(tuple(VoterNode(ReplicaKey(n), (RaftEndpoint("CONTROLLER", f"n{n}", 9093),)) for n in (1, 2)))
    assert start(voters=(2, 1)) == (two, 0)
    assert start(USED, QuorumState(2, 5, -1, (1, 2)), voters=(1, 2)) == (two, 0)


def test_voters_in_the_log_override_the_configuration() -> None:
    assert start(replace(USED, voters=((2, Voters((VoterNode(ME),))),))) == (Voters(), 0)


def test_new_node_founds_a_dynamic_quorum_if_allowed() -> None:
    assert start() == (Voters((VoterNode(ME, HERE),)), 1)
    assert start(bootstrap=True) == (Voters((VoterNode(ME, HERE),)), 1)
    assert start(found=False, bootstrap=True) == (Voters(), 0)
    assert start(can_vote=False, bootstrap=True) == (Voters(), 0)


def test_old_directory_stays_a_quorum_of_one() -> None:
    alone = Voters((VoterNode(ReplicaKey(1), HERE),))
    assert start(USED, QuorumState(1, 5, -1, (1,))) == (alone, 0)
    assert start(USED) == (alone, 0)
    with pytest.raises(MetadataError, match=r"\[1, 2, 3\].*cannot be its only voter"):
        start(USED, QuorumState(1, 5, -1, (1, 2, 3)))


class Others:
    """Controllers that answer a fetch with their epoch, or fail with an error; each answer is given once."""

    def __init__(self, **answers: list[int | ErrorCode]) -> None:
        self.answers = answers

    async def send(self, node_id: int, endpoints: Endpoints, request: RaftRequest) -> RaftResponse:
        answer = self.answers[endpoints[0].host].pop(0)
        if isinstance(answer, ErrorCode):
            raise KafkaError(answer)
        return FetchResponse(ErrorCode.FENCED_LEADER_EPOCH if answer else ErrorCode.NOT_LEADER_OR_FOLLOWER, answer)


@pytest.mark.parametrize(
    ("answers", "exists"),
    [
        ({"a": [0], "b": [0]}, False),
        ({"a": [0], "b": [7]}, True),
        ({"a": [ErrorCode.UNSUPPORTED_VERSION], "b": [0]}, False),  # a newcomer
        ({"a": [ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT, 3], "b": [0]}, True),
        ({"a": [ErrorCode.BROKER_NOT_AVAILABLE, 0], "b": [0]}, False),
        ({"a": [ErrorCode.BROKER_NOT_AVAILABLE], "b": [2]}, True),
    ],
)
def test_quorum_is_founded_only_if_no_controller_has_one(
    answers: dict[str, list[int | ErrorCode]], exists: bool
) -> None:
    async def main() -> None:
        network = Others(**answers)
        assert await quorum_exists(network, [("a", 1), ("b", 1)]) is exists
        assert network.answers == {"a": [], "b": []}

    run(main)
