"""Shell: sends requests to other replicas of the quorum; implements `NetworkChannel` of the raft package.

Three connections to each node are used, so that a delayed response never delays a vote: a Fetch waits for records, and
a change of the voters waits for its commit.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from msgspec import structs

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.transport.node_client import NodeRefusedError
from barnabas.protocol.wire.errors import VersionError, WireError
from barnabas.protocol.wire.schema import Request
from barnabas.server.raft.machine import messages as raft
from barnabas.server.raft.machine.messages import RaftRequest, RaftResponse
from barnabas.server.raft.machine.values import Endpoints

VOTE_PURPOSE: Final = "raft"
FETCH_PURPOSE: Final = "raft-fetch"
CHANGE_PURPOSE: Final = "raft-change"


class QuorumSender(Protocol):
    """The method of `NodeClient` (transport package) that `QuorumNetwork` uses."""

    async def send(
        self,
        host: str,
        port: int,
        request: Request,
        *,
        timeout_ms: int,
        purpose: str = "",
        version_max: int | None = None,
    ) -> Any: ...


class QuorumNetwork:
    """Encodes a request, sends it, and decodes the response."""

    def __init__(self, sender: QuorumSender, cluster_id: str, timeout_ms: int, listener: str = "") -> None:
        self._sender = sender
        self._cluster_id = cluster_id
        self._timeout_ms = timeout_ms
        self._listener = listener
        """The name of the listener to use if another node has several."""
        self.contacts: dict[tuple[str, int], tuple[int, str]] = {}
        """For each address to which a request was sent: the node id (-1 if unknown), and what became of the last
        request."""

    async def send(self, node_id: int, endpoints: Endpoints, request: RaftRequest) -> RaftResponse:
        """Send a request to a node and return its response. Raises KafkaError, and ConnectionRefusedError if no process
        listens at the address."""
        endpoint = next((e for e in endpoints if e.listener == self._listener), None) or next(iter(endpoints), None)
        outcome = "no answer"
        try:
            response = await self._send(node_id, endpoints, request)
            outcome = _describe(response)
            return response
        except (KafkaError, OSError) as error:
            outcome = "refused the connection" if isinstance(error, ConnectionRefusedError) else str(error)
            raise
        finally:
            if endpoint is not None:
                self.contacts[endpoint[1:]] = max(node_id, -1), outcome

    async def _send(self, node_id: int, endpoints: Endpoints, request: RaftRequest) -> RaftResponse:
        from barnabas.server.quorum.messages import decode, encode  # imported lazily, see messages.py

        if not endpoints:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"The address of node {node_id} is unknown.")
        endpoint = next((e for e in endpoints if e.listener == self._listener), endpoints[0])
        match request:
            case raft.FetchRequest() | raft.FetchSnapshotRequest():
                purpose = FETCH_PURPOSE
            case raft.AddVoterRequest() | raft.RemoveVoterRequest():
                purpose = CHANGE_PURPOSE
            case _:
                purpose = VOTE_PURPOSE
        message = encode(request, self._cluster_id)
        try:
            response = await self._sender.send(
                endpoint.host, endpoint.port, message, timeout_ms=self._timeout_ms, purpose=purpose
            )
        except NodeRefusedError as error:
            raise ConnectionRefusedError(str(error)) from error
        except (VersionError, KafkaError) as error:
            too_old = isinstance(error, VersionError) or error.code is ErrorCode.UNSUPPORTED_VERSION
            if too_old and isinstance(request, raft.VoteRequest) and request.pre_vote:
                return _grant(request.epoch)
            if isinstance(error, KafkaError):
                raise
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"Node {node_id} does not support the request: {error}"
            ) from error
        except WireError as error:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"The response of node {node_id} cannot be decoded: {error}"
            ) from error
        return self._named(decode(request, response))

    def _named(self, response: RaftResponse) -> RaftResponse:
        """The response, whose endpoint of the leader has no name: it is the one of the listener that this node uses."""
        endpoints: Endpoints = getattr(response, "endpoints", ())
        if not endpoints or not self._listener:
            return response
        named = tuple(endpoint._replace(listener=self._listener) for endpoint in endpoints)
        return structs.replace(response, endpoints=named)


def _describe(response: RaftResponse) -> str:
    """What a response says about the quorum, for the log."""
    error, leader = getattr(response, "error", ErrorCode.NONE), getattr(response, "leader_id", -1)
    if error is not ErrorCode.NONE:
        return f"answered {error.name}"
    return f"answered, and names {leader} as the leader" if leader >= 0 else "answered, and knows no leader"


def _grant(epoch: int) -> RaftResponse:
    """The assumed response of a voter without support for pre-votes: granted (KIP-996). The real vote follows."""
    return raft.VoteResponse(ErrorCode.NONE, epoch, granted=True)
