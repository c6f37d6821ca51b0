"""Shell: DeleteRecords (key 21), versions 0 to 2.

- 0: moves the log start offset of partitions forward (KIP-107)
- 1: as 0
- 2: flexible

The records below the given offset are deleted; offset -1 stands for the high watermark. The response carries the low
watermark, the smallest log start offset among the replicas. The response is sent when the low watermark has reached
the offset, or with REQUEST_TIMED_OUT after TimeoutMs; by then the leader has deleted the records, and the followers
will.

A topic whose cleanup.policy is only `compact` is rejected with POLICY_VIOLATION, an internal topic with
INVALID_TOPIC_EXCEPTION.
"""

from __future__ import annotations

import asyncio

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import INTERNAL_TOPICS
from barnabas.core.work import Pauses
from barnabas.protocol.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from barnabas.server.broker.handlers.data.port import DataPort
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.purgatory import COMPLETE_NOW, wait_for_bytes

NO_LOW_WATERMARK = -1
HIGH_WATERMARK = -1
_UNITS = 5
"""The units of work (`core/work`) of the deletion of one partition's records."""


async def handle(port: DataPort, ctx: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    waiting: list[tuple[DeleteRecordsPartitionResult, Partition, int]] = []
    response = DeleteRecordsResponse(topics=[])
    pauses = Pauses()
    for topic in request.topics:
        result = DeleteRecordsTopicResult(name=topic.name, partitions=[])
        response.topics.append(result)
        for p in topic.partitions:
            result.partitions.append(_delete(port, ctx, topic.name, p, waiting))
            await pauses.after(_UNITS)
    deadline = ctx.deadline(request.timeout_ms)
    for answer, partition, offset in waiting:
        await _wait(answer, partition, offset, deadline)
    return response


def _delete(
    port: DataPort,
    ctx: RequestContext,
    topic: str,
    wanted: DeleteRecordsPartition,
    waiting: list[tuple[DeleteRecordsPartitionResult, Partition, int]],
) -> DeleteRecordsPartitionResult:
    index = wanted.partition_index
    try:
        partition = port.partitions.require(topic, index)
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        target = partition.high_watermark if wanted.offset == HIGH_WATERMARK else wanted.offset
        low = partition.delete_records(target, ctx.now_ms)
    except KafkaError as error:
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=NO_LOW_WATERMARK, error_code=error.code
        )
    answer = DeleteRecordsPartitionResult(partition_index=index, low_watermark=low)
    if low < target:
        waiting.append((answer, partition, target))
    return answer


async def _wait(answer: DeleteRecordsPartitionResult, partition: Partition, offset: int, deadline: float) -> None:
    """Wait until the low watermark has reached `offset`, or until the deadline."""
    loop = asyncio.get_running_loop()
    try:
        while (low := partition.low_watermark()) < offset and loop.time() < deadline:
            await wait_for_bytes([partition.delayed_deletes], COMPLETE_NOW, deadline)
    except KafkaError as error:
        answer.error_code, answer.low_watermark = error.code, NO_LOW_WATERMARK
        return
    answer.low_watermark = low
    if low < offset:
        answer.error_code = ErrorCode.REQUEST_TIMED_OUT
