"""Port: the way to the active controller, wherever it runs, and a look at the quorum behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from barnabas.protocol.wire.schema import Message
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.raft.machine.raft import QuorumInfo


class ControllerChannel(Protocol):
    """Hands a request to the controller and gives its answer; the change it made is in this node's image by then.

    Raises KafkaError when no controller could be asked, or when it lost its office meanwhile (NOT_CONTROLLER).
    """

    async def call(self, request: Message, version: int, ctx: RequestContext | None = None) -> Message: ...


class QuorumView(Protocol):
    """How the metadata log stands, for DescribeQuorum."""

    @property
    def leader_id(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def kraft_version(self) -> int:
        """The version of the Raft protocol that the quorum uses; 0 where voters cannot change, or there is none."""
        ...

    def voters(self) -> Sequence[tuple[int, int]]:
        """(voter id, log end offset)"""
        ...

    def describe(self) -> QuorumInfo | None:
        """Everyone's progress, times by the wall clock; None where this node does not lead a quorum."""
        ...

    def leader_endpoint(self) -> tuple[str, int] | None:
        """(host, port) of the leader's controller listener, where it is known."""
        ...
