"""Controllers with two listeners, as while a quorum moves from PLAINTEXT to TLS: each node uses the configured one, and
never the address of the other."""

from __future__ import annotations

import asyncio
from typing import Any

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.vote import VoteRequest
from barnabas.server.broker.quorum.parts import at_listener
from barnabas.server.broker.quorum.votes import vote_response
from barnabas.server.node.config import build_config
from barnabas.server.node.setup.identity import Identity
from barnabas.server.node.typed_configs import build_quorum_config
from barnabas.server.quorum.network import QuorumNetwork
from barnabas.server.raft.machine import messages as raft
from barnabas.server.raft.machine.values import OffsetAndEpoch, RaftEndpoint, ReplicaKey

OLD, NEW = RaftEndpoint("CONTROLLER", "n1", 9093), RaftEndpoint("QUORUM", "n1", 9193)


def test_the_first_of_controller_listener_names_is_used_whatever_the_order_of_the_listeners() -> None:
    config = build_config(
        {
            "node.id": "1",
            "log.dirs": "/d",
            "listeners": "PLAINTEXT://n1:9092,CONTROLLER://n1:9093,QUORUM://n1:9193",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,QUORUM:PLAINTEXT",
            "controller.listener.names": "QUORUM,CONTROLLER",
            "controller.quorum.voters": "1@n1:9193,2@n2:9193",
        }
    )
    quorum = build_quorum_config(config, Identity("c", 1, is_new=False), config.controller_advertised)
    assert (quorum.listener, quorum.endpoints) == ("QUORUM", (OLD, NEW))


def test_a_response_has_the_leaders_address_at_the_listener_of_the_request() -> None:
    answer = raft.VoteResponse(ErrorCode.NONE, 5, 1, False, (OLD, NEW))

    def addresses(listener: str) -> list[tuple[str, int]]:
        wire = vote_response(at_listener(answer, listener), 1)
        return [(node.host, node.port) for node in wire.node_endpoints]

    assert addresses("CONTROLLER") == [("n1", 9093)]
    assert addresses("QUORUM") == [("n1", 9193)]
    assert addresses("OTHER") == [], "the sender then uses the address that it knows"


def test_a_request_goes_to_the_own_listener_and_its_response_names_it() -> None:
    sent: list[tuple[str, int]] = []

    class Sender:
        async def send(self, host: str, port: int, request: Any, **_: Any) -> Any:
            assert isinstance(request, VoteRequest)
            sent.append((host, port))
            return vote_response(raft.VoteResponse(ErrorCode.NONE, 5, 1, False, (NEW,)), 1)

    network = QuorumNetwork(Sender(), "cluster", 1_000, "QUORUM")
    request = raft.VoteRequest(5, ReplicaKey(2), ReplicaKey(1), OffsetAndEpoch(4, 10))
    response = asyncio.run(network.send(1, (OLD, NEW), request))
    assert sent == [("n1", 9193)]
    assert isinstance(response, raft.VoteResponse)
    assert response.endpoints == (NEW,)
