"""Shell: ListOffsets (key 2), versions 1 to 11.

- 1: the offset and timestamp of the first record at or after a timestamp; -1 latest, -2 earliest
- 2: the isolation level, which decides what "latest" is (KIP-98)
- 3: as 2
- 4: leader epochs (KIP-320)
- 5: OFFSET_NOT_AVAILABLE from a new leader that does not know yet what is committed; older versions get
  LEADER_NOT_AVAILABLE (KIP-207)
- 6: flexible
- 7: -3, the offset of the largest timestamp (KIP-734)
- 8: -4, the earliest offset in the local log (KIP-405)
- 9: -5, the latest offset in remote storage (KIP-1005)
- 10: the timeout of a remote read (KIP-1075)
- 11: -6, the earliest offset that is not uploaded yet (KIP-1023)

A negative timestamp that the version does not know is UNSUPPORTED_VERSION. A replica, and a debugging consumer
(replica id -2), can list offsets up to the log end offset. A debugging consumer may also send the request to a
follower.

For -5 and -6 the response is offset -1 if the topic is not in tiered storage. Time stamps are looked up in remote
segments, too, for at most remote.list.offsets.request.timeout.ms.
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.work import Pauses
from barnabas.protocol.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.server.broker.handlers.data.port import DataPort
from barnabas.server.broker.request_context import RequestContext
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


async def handle(port: DataPort, ctx: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    # Offsets above the high watermark are hidden from consumers, but not from replicas and debugging consumers (-2).
    isolation = request.isolation_level if request.replica_id == -1 else None
    leader_only = request.replica_id != DEBUGGING_REPLICA
    seen: set[tuple[str, int]] = set()
    duplicate: set[tuple[str, int]] = set()
    for topic in request.topics:
        for p in topic.partitions:
            key = (topic.name, p.partition_index)
            (duplicate if key in seen else seen).add(key)
    response = ListOffsetsResponse(topics=[])
    pauses = Pauses()
    for topic in request.topics:
        answers = ListOffsetsTopicResponse(name=topic.name, partitions=[])
        response.topics.append(answers)
        for p in topic.partitions:
            if (topic.name, p.partition_index) in duplicate:
                answer = _failed(p.partition_index, ErrorCode.INVALID_REQUEST)
            else:
                answer = await _list(port, ctx.api_version, topic.name, p, isolation, leader_only=leader_only)
            answers.partitions.append(answer)
            await pauses.after(1)
    return response


async def _list(
    port: DataPort,
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
        found = await port.partitions.require(topic, index).list_offset(
            wanted.timestamp,
            isolation=isolation,
            current_leader_epoch=wanted.current_leader_epoch,
            leader_only=leader_only,
            find=port.checker.find,
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
