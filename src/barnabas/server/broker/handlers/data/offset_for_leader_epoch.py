"""Shell: OffsetForLeaderEpoch (key 23), versions 2 to 4.

- 2: the end offset of a leader epoch in the leader's log; the epoch that the client knows fences requests by old
  metadata (KIP-320)
- 3: the replica id
- 4: flexible

A consumer detects truncation with the response (KIP-320); a follower finds the offset at which its log diverges from
the leader's (KIP-101, KIP-279). An epoch that is not in the log has epoch -1 and end offset -1.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.core.work import Pauses
from barnabas.protocol.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from barnabas.server.broker.handlers.data.port import DataPort
from barnabas.server.broker.request_context import RequestContext


async def handle(
    port: DataPort, ctx: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    pauses = Pauses()
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        ends = OffsetForLeaderTopicResult(topic=topic.topic)
        response.topics.append(ends)
        for p in topic.partitions:
            ends.partitions.append(_end_of(port, topic.topic, p))
            await pauses.after(1)
    return response


def _end_of(port: DataPort, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = port.partitions.require(topic, wanted.partition)
        end = partition.epoch_end_offset(wanted.leader_epoch, wanted.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(partition=wanted.partition, error_code=error.code)
    return EpochEndOffset(partition=wanted.partition, leader_epoch=end.leader_epoch, end_offset=end.end_offset)
