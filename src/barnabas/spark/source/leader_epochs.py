"""Shell: asks the leaders of partitions where leader epochs end in their logs (KIP-101, KIP-320)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.client.cluster.cluster import Cluster
from barnabas.client.cluster.fanout import LeaderResult, by_topic, send_to_leaders
from barnabas.core.errors import KafkaError
from barnabas.core.ids import CONSUMER_REPLICA_ID, TopicPartition
from barnabas.protocol.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


async def epoch_ends(
    cluster: Cluster, epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[int, int] | KafkaError]:
    """The leader epoch that each leader has of the requested one or below, and its end offset. Both are -1 if the
    leader does not know."""

    def build(part: dict[TopicPartition, int]) -> OffsetForLeaderEpochRequest:
        return OffsetForLeaderEpochRequest(
            replica_id=CONSUMER_REPLICA_ID,
            topics=[
                OffsetForLeaderTopic(
                    topic=topic,
                    partitions=[
                        OffsetForLeaderPartition(partition=index, leader_epoch=part[TopicPartition(topic, index)])
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(part).items()
            ],
        )

    def parse(response: OffsetForLeaderEpochResponse) -> Iterable[LeaderResult[tuple[int, int]]]:
        for topic in response.topics:
            for end in topic.partitions:
                yield TopicPartition(topic.topic, end.partition), end.error_code, (end.leader_epoch, end.end_offset)

    return await send_to_leaders(
        cluster, epochs, build, parse, what="Listing the ends of leader epochs", deadline=cluster.deadline()
    )
