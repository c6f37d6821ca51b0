"""Port: requests to the active controller, wherever it runs, and the state of the metadata quorum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from barnabas.protocol.wire.schema import Message
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.raft.machine.raft import QuorumInfo


class ControllerChannel(Protocol):
    """Sends requests to the active controller."""

    async def call(self, request: Message, version: int, ctx: RequestContext | None = None) -> Message:
        """The controller's response. By then this node's image contains the changes that the request has made.

        Raises KafkaError if no controller answers, or NOT_CONTROLLER if the controller has lost its leadership.
        """
        ...


class QuorumStatus(Protocol):
    """The state of the metadata quorum, for DescribeQuorum."""

    @property
    def leader_id(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def kraft_version(self) -> int:
        """The quorum's finalized kraft.version; 0 if the voters cannot change or there is no quorum."""
        ...

    def voters(self) -> Sequence[tuple[int, int]]:
        """The id and the log end offset of each voter."""
        ...

    def describe(self) -> QuorumInfo | None:
        """The progress of all replicas, with wall-clock times; None if this node does not lead the quorum."""
        ...

    def leader_endpoint(self) -> tuple[str, int] | None:
        """Host and port of the leader's controller listener; None if unknown."""
        ...
