"""Shell: requests to other replicas, over the node's outgoing connections: fills `raft.Network`.

Three connections to each node, so that a request that is answered late (a Fetch waits for records, a change of the
voters for its commit) never delays a vote.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

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


class Sender(Protocol):
    """`transport.NodeClient`, as far as it is needed here."""

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
    """One request, one response."""

    def __init__(self, sender: Sender, cluster_id: str, timeout_ms: int, listener: str = "") -> None:
        self._sender = sender
        self._cluster_id = cluster_id
        self._timeout_ms = timeout_ms
        self._listener = listener
        """Which listener of the others to use, where they have several."""

    async def send(self, node_id: int, endpoints: Endpoints, request: RaftRequest) -> RaftResponse:
        """Raises KafkaError, and ConnectionRefusedError where nothing listens."""
        from barnabas.server.node.quorum.messages import decode, encode  # see there

        if not endpoints:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"Nobody has said where node {node_id} is.")
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
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Node {node_id} is too old: {error}") from error
        except WireError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node {node_id} made no sense: {error}") from error
        return decode(request, response)


def _grant(epoch: int) -> RaftResponse:
    """A voter that does not know pre-votes stands in nobody's way (KIP-996); it is asked again for its real vote."""
    return raft.VoteResponse(ErrorCode.NONE, epoch, granted=True)
