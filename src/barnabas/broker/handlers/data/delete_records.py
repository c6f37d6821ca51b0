"""Shell: DeleteRecords (key 21), versions 0 to 2.

Moves the log start offset up to a given offset, or with -1 to the high watermark. The answer carries the low watermark,
the smallest log start offset among the replicas. A topic that is only compacted refuses (POLICY_VIOLATION), an internal
one too.
"""

from __future__ import annotations

from barnabas.broker.request_context import RequestContext
from barnabas.broker.services import Services
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import INTERNAL_TOPICS
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

NO_LOW_WATERMARK = -1


async def handle(services: Services, ctx: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name, partitions=[_delete(services, ctx, topic.name, p) for p in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _delete(
    services: Services, ctx: RequestContext, topic: str, wanted: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    index = wanted.partition_index
    try:
        partition = services.partitions.require(topic, index)
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        low = partition.delete_records(wanted.offset, ctx.now_ms)
    except KafkaError as error:
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=NO_LOW_WATERMARK, error_code=error.code
        )
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low)
