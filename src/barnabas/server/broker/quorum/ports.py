"""Port: the metadata quorum, as the request handlers use it: its messages and its state."""

from __future__ import annotations

from typing import Protocol

from barnabas.server.broker.forward import QuorumStatus
from barnabas.server.raft.machine.messages import RaftRequest, RaftResponse
from barnabas.server.raft.machine.values import Voters


class QuorumHandle(QuorumStatus, Protocol):
    """This node's replica of the metadata log, which takes part in the quorum."""

    async def handle(self, request: RaftRequest) -> RaftResponse:
        """The response to a request of another replica. Raises KafkaError if this replica is stopping or overloaded."""
        ...

    @property
    def voter_set(self) -> Voters:
        """The voters of the quorum with their endpoints, as far as this node has read the log."""
        ...
