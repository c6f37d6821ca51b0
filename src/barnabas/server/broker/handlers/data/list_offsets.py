"""Shell: ListOffsets (key 2), versions 1 to 11.

Finds the offset of a timestamp, or one of the special offsets: -1 latest, -2 earliest, -3 that of the largest timestamp
(v7, KIP-734), -4 earliest on local disk (v8), -5 latest in remote storage (v9), -6 earliest not yet uploaded (v11).
`isolation_level` (v2) decides what "latest" means. A special offset that the version does not know is
UNSUPPORTED_VERSION. A new leader that does not know yet what has been committed says OFFSET_NOT_AVAILABLE (v5, KIP-207;
before, LEADER_NOT_AVAILABLE). Replicas, and whoever debugs (-2), see the log's end; the latter on followers, too.
Gaps: there is no remote storage, so -5 and -6 find nothing, which is what Kafka answers without it.
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services
from barnabas.server.replication.partition import SpecialTimestamp

DEBUGGING_REPLICA = -2
NOT_AVAILABLE_SINCE = 5
_SINCE = {
    SpecialTimestamp.LATEST: 0,
    SpecialTimestamp.EARLIEST: 0,
    SpecialTimestamp.MAX_TIMESTAMP: 7,
    SpecialTimestamp.EARLIEST_LOCAL: 8,
    SpecialTimestamp.LATEST_TIERED: 9,
    SpecialTimestamp.EARLIEST_PENDING_UPLOAD: 11,
}


async def handle(services: Services, ctx: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    # A consumer must not see beyond the watermark; replicas and debuggers (-2) may.
    isolation = request.isolation_level if request.replica_id == -1 else None
    leader_only = request.replica_id != DEBUGGING_REPLICA
    seen: set[tuple[str, int]] = set()
    doubled: set[tuple[str, int]] = set()
    for topic in request.topics:
        for p in topic.partitions:
            key = (topic.name, p.partition_index)
            (doubled if key in seen else seen).add(key)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _failed(p.partition_index, ErrorCode.INVALID_REQUEST)
                    if (topic.name, p.partition_index) in doubled
                    else _list(services, ctx.api_version, topic.name, p, isolation, leader_only=leader_only)
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _list(
    services: Services,
    version: int,
    topic: str,
    wanted: ListOffsetsPartition,
    isolation: int | None,
    *,
    leader_only: bool,
) -> ListOffsetsPartitionResponse:
    index = wanted.partition_index
    if wanted.timestamp < 0 and version < _SINCE.get(wanted.timestamp, 1 << 15):  # type: ignore[call-overload]
        return _failed(index, ErrorCode.UNSUPPORTED_VERSION)
    try:
        found = services.partitions.require(topic, index).list_offset(
            wanted.timestamp,
            isolation=isolation,
            current_leader_epoch=wanted.current_leader_epoch,
            leader_only=leader_only,
        )
    except KafkaError as error:
        code = error.code
        if code is ErrorCode.OFFSET_NOT_AVAILABLE and version < NOT_AVAILABLE_SINCE:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        return _failed(index, code)
    return ListOffsetsPartitionResponse(
        partition_index=index,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch if version >= 4 else -1,
    )


def _failed(index: int, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=index, error_code=code)
