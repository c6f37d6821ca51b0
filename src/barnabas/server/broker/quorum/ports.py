"""Port: what handlers need of the quorum: to hand it a message, and a look at how it stands."""

from __future__ import annotations

from typing import Protocol

from barnabas.server.broker.forward import QuorumStatus
from barnabas.server.raft.machine.messages import RaftRequest, RaftResponse
from barnabas.server.raft.machine.values import Voters


class QuorumHandle(QuorumStatus, Protocol):
    """This node's replica of the metadata log."""

    async def handle(self, request: RaftRequest) -> RaftResponse:
        """Answer another replica. Raises KafkaError when this one is stopping or cannot keep up."""
        ...

    @property
    def voter_set(self) -> Voters:
        """The voters as this node knows them, with their endpoints."""
        ...


class QuorumServices(Protocol):
    """What both the broker's and the controller's services have."""

    @property
    def quorum(self) -> QuorumHandle: ...

    @property
    def node_id(self) -> int: ...

    @property
    def cluster_id(self) -> str: ...
