"""Shell: OffsetForLeaderEpoch (key 23), versions 2 to 4.

Where a leader epoch ended in this leader's log: what a consumer asks to notice truncation (KIP-320), and a follower to
find where its log and the leader's part (KIP-101, KIP-279). An epoch the log does not know gives epoch -1 and offset
-1.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.protocol.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(
    services: Services, ctx: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_end_of(services, topic.topic, p) for p in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _end_of(services: Services, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = services.partitions.require(topic, wanted.partition)
        end = partition.epoch_end_offset(wanted.leader_epoch, wanted.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(partition=wanted.partition, error_code=error.code)
    return EpochEndOffset(partition=wanted.partition, leader_epoch=end.leader_epoch, end_offset=end.end_offset)
