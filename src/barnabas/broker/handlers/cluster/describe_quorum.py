"""Shell: DescribeQuorum (key 55), versions 0 to 2 (KIP-595).

The voters and observers of the metadata log, and how far each has come. Only `__cluster_metadata-0` is a quorum;
anything else is UNKNOWN_TOPIC_OR_PARTITION. Version 2 adds directories and the voters' listeners (KIP-853).
"""

from __future__ import annotations

from barnabas.broker.request_context import RequestContext
from barnabas.broker.services import Services
from barnabas.core.errors import ErrorCode
from barnabas.core.ids import METADATA_TOPIC
from barnabas.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionDataResponse,
    ReplicaState,
    TopicDataResponse,
)


async def handle(services: Services, ctx: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        error_message=None,
        topics=[
            TopicDataResponse(
                topic_name=topic.topic_name,
                partitions=[
                    _describe(services, ctx, topic.topic_name, partition.partition_index)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _describe(services: Services, ctx: RequestContext, topic: str, index: int) -> PartitionDataResponse:
    if topic != METADATA_TOPIC or index != 0:
        return PartitionDataResponse(
            partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error_message=None
        )
    quorum = services.quorum
    return PartitionDataResponse(
        partition_index=0,
        error_message=None,
        leader_id=quorum.leader_id,
        leader_epoch=quorum.leader_epoch,
        high_watermark=quorum.high_watermark,
        current_voters=[
            ReplicaState(
                replica_id=voter,
                log_end_offset=end_offset,
                last_fetch_timestamp=ctx.now_ms,
                last_caught_up_timestamp=ctx.now_ms,
            )
            for voter, end_offset in quorum.voters()
        ],
    )
