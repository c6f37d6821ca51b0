"""Codec: the common parts of the quorum's messages: the cluster id, the metadata partition, the leader's endpoints.

another cluster id                                   top-level INCONSISTENT_CLUSTER_ID (a null id is accepted)
another topic or several (Fetch, Vote, ...)          top-level INVALID_REQUEST
another topic (FetchSnapshot, DescribeQuorum)        UNKNOWN_TOPIC_OR_PARTITION for that partition
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

from msgspec.structs import replace

from barnabas.core.errors import ErrorCode
from barnabas.core.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from barnabas.server.raft.machine import messages as raft
from barnabas.server.raft.machine.values import NO_NODE, Endpoints, RaftEndpoint

NO_EPOCH: Final = -1
LISTENER: Final = "CONTROLLER"
"""The listener name of an endpoint whose message contains only host and port."""
NodeT = TypeVar("NodeT")
ResponseT = TypeVar(
    "ResponseT",
    raft.VoteResponse,
    raft.BeginQuorumEpochResponse,
    raft.EndQuorumEpochResponse,
    raft.FetchResponse,
    raft.FetchSnapshotResponse,
    raft.UpdateVoterResponse,
)


def check_cluster(given: str | None, ours: str) -> ErrorCode:
    """INCONSISTENT_CLUSTER_ID if a request has the id of another cluster, else NONE."""
    return ErrorCode.NONE if given is None or given == ours else ErrorCode.INCONSISTENT_CLUSTER_ID


def check_request(given: str | None, topics: Sequence[Any], ours: str) -> ErrorCode:
    """The top-level error code of a request to the quorum, NONE if the cluster id and the partition are right."""
    error = check_cluster(given, ours)
    if not error and only_partition(topics) is None:
        error = ErrorCode.INVALID_REQUEST
    return error


def only_partition(topics: Sequence[Any]) -> Any | None:
    """The partition entry of `__cluster_metadata-0`; None if the request has any other entry.

    Topics have a name or an id, depending on the version.
    """
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    topic, partition = topics[0], topics[0].partitions[0]
    index = getattr(partition, "partition_index", getattr(partition, "partition", -1))
    return partition if index == 0 and _is_metadata(topic) else None


def _is_metadata(topic: Any) -> bool:
    name = getattr(topic, "topic_name", getattr(topic, "topic", getattr(topic, "name", "")))
    topic_id: UUID | None = getattr(topic, "topic_id", None)
    return bool(name == METADATA_TOPIC or (not name and topic_id == METADATA_TOPIC_ID))


def at_listener(response: ResponseT, listener: str) -> ResponseT:
    """The response with only that endpoint of the leader which has the name of the listener of the request.

    A response has one endpoint without a name, and the sender expects the listener that it uses itself. An endpoint of
    another listener may have another security protocol. Without an endpoint the sender uses the one that it knows.
    """
    endpoints = tuple(endpoint for endpoint in response.endpoints if endpoint.listener == listener)
    return response if endpoints == response.endpoints else replace(response, endpoints=endpoints)


def node_endpoints(node: type[NodeT], leader_id: int, endpoints: Endpoints) -> list[NodeT]:
    """The NodeEndpoints of a response: the leader's first endpoint, without the name of its listener."""
    if leader_id == NO_NODE or not endpoints:
        return []
    return [node(node_id=leader_id, host=endpoints[0].host, port=endpoints[0].port)]  # type: ignore[call-arg]  # each NodeT has these fields


def parse_node_endpoints(nodes: Iterable[Any], leader_id: int) -> Endpoints:
    return tuple(RaftEndpoint(LISTENER, node.host, node.port) for node in nodes if node.node_id == leader_id)


def parse_listeners(listeners: Iterable[Any]) -> Endpoints:
    """The endpoints, with listener names, of a voter or a leader."""
    return tuple(RaftEndpoint(listener.name, listener.host, listener.port) for listener in listeners)


def listeners(kind: type[NodeT], endpoints: Endpoints) -> list[NodeT]:
    return [
        kind(name=endpoint.listener, host=endpoint.host, port=endpoint.port)  # type: ignore[call-arg]  # each NodeT has these fields
        for endpoint in endpoints
    ]
