"""Shell: FetchSnapshot (key 59), versions 0 to 1.

- 0: returns a part of a snapshot of the metadata (KIP-630)
- 1: the replica's directory id, and the leader's endpoint in the response (KIP-853)

A follower sends this request when the response to its Fetch names a snapshot. It requests one part after the other
until it has Size bytes.
"""

from __future__ import annotations

from typing import cast

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PartitionSnapshotResponse,
    TopicSnapshotResponse,
)
from barnabas.server.broker.handlers.quorum.port import QuorumPort
from barnabas.server.broker.quorum.fetches import parse_snapshot_request, snapshot_response
from barnabas.server.broker.quorum.parts import at_listener, check_cluster, only_partition
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.raft.machine import messages as raft


async def handle(port: QuorumPort, ctx: RequestContext, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
    error = check_cluster(request.cluster_id, port.cluster_id)
    if error:
        return FetchSnapshotResponse(error_code=error)
    if only_partition(request.topics) is None:
        return _unknown(request)
    parsed = parse_snapshot_request(request)
    answer = await port.quorum.handle(parsed)
    return snapshot_response(
        at_listener(cast("raft.FetchSnapshotResponse", answer), ctx.client.listener),
        parsed.snapshot_id,
        ctx.api_version,
    )


def _unknown(request: FetchSnapshotRequest) -> FetchSnapshotResponse:
    """The response to a request that does not name the metadata partition, the only one with snapshots: each requested
    partition has the error UNKNOWN_TOPIC_OR_PARTITION."""
    return FetchSnapshotResponse(
        topics=[
            TopicSnapshotResponse(
                name=topic.name,
                partitions=[
                    PartitionSnapshotResponse(
                        index=partition.partition,
                        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        snapshot_id=partition.snapshot_id,
                        unaligned_records=b"",
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
