"""Shell: the offsets of share groups (KIP-932): list, alter and delete them.

`groups` lists, describes and deletes groups of all kinds, share groups included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from barnabas.client.admin.requests import Item, ask_coordinators, item_error, value_or_raise
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.cluster.fanout import by_topic
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.messages import alter_share_group_offsets as alter
from barnabas.protocol.wire.messages import delete_share_group_offsets as delete
from barnabas.protocol.wire.messages import describe_share_group_offsets as describe


@dataclass(frozen=True, slots=True)
class ShareOffset:
    """The state of a share group in a partition."""

    start_offset: int | None
    """All records below this offset are acknowledged; None if no member has fetched from the partition yet."""
    leader_epoch: int = -1
    lag: int | None = None
    """The number of records that are not acknowledged; None if the broker does not return it."""


_Topics = list[describe.DescribeShareGroupOffsetsResponseTopic]


async def list_share_group_offsets(
    cluster: Cluster, group_id: str, *, topics: Iterable[str] | None = None, deadline: float
) -> dict[TopicPartition, ShareOffset | KafkaError]:
    """The offsets of all partitions for which the group has state, or only of those of `topics`. Raises KafkaError."""
    chosen = None if topics is None else set(topics)

    def build(part: list[str]) -> describe.DescribeShareGroupOffsetsRequest:
        group = describe.DescribeShareGroupOffsetsRequestGroup(group_id=part[0], topics=None)
        return describe.DescribeShareGroupOffsetsRequest(groups=[group])

    def parse(response: describe.DescribeShareGroupOffsetsResponse) -> Iterable[Item[str, _Topics]]:
        for group in response.groups:
            yield group.group_id, group.error_code, group.error_message, group.topics

    found = await ask_coordinators(
        cluster, [group_id], build, parse, what="Listing the offsets of share group", deadline=deadline
    )
    offsets: dict[TopicPartition, ShareOffset | KafkaError] = {}
    for topic in value_or_raise(found, group_id):
        if chosen is not None and topic.topic_name not in chosen:
            continue
        for p in topic.partitions:
            name = TopicPartition(topic.topic_name, p.partition_index)
            if p.error_code:
                offsets[name] = item_error(p.error_code, p.error_message, f"The offset of {name}")
            else:
                start = None if p.start_offset < 0 else p.start_offset
                offsets[name] = ShareOffset(start, p.leader_epoch, None if p.lag < 0 else p.lag)
    return offsets


async def alter_share_group_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int], *, deadline: float
) -> dict[TopicPartition, KafkaError | None]:
    """Set the start offsets of a share group without members. Raises KafkaError."""

    def build(part: list[str]) -> alter.AlterShareGroupOffsetsRequest:
        return alter.AlterShareGroupOffsetsRequest(
            group_id=part[0],
            topics=[
                alter.AlterShareGroupOffsetsRequestTopic(
                    topic_name=topic,
                    partitions=[
                        alter.AlterShareGroupOffsetsRequestPartition(
                            partition_index=i, start_offset=offsets[TopicPartition(topic, i)]
                        )
                        for i in indexes
                    ],
                )
                for topic, indexes in by_topic(offsets).items()
            ],
        )

    def parse(
        response: alter.AlterShareGroupOffsetsResponse,
    ) -> Iterable[Item[str, alter.AlterShareGroupOffsetsResponse]]:
        yield group_id, response.error_code, response.error_message, response

    found = await ask_coordinators(cluster, [group_id], build, parse, what="Moving share group", deadline=deadline)
    return {
        TopicPartition(topic.topic_name, p.partition_index): (
            item_error(p.error_code, p.error_message, f"Moving {topic.topic_name}-{p.partition_index}")
            if p.error_code
            else None
        )
        for topic in value_or_raise(found, group_id).responses
        for p in topic.partitions
    }


async def delete_share_group_offsets(
    cluster: Cluster, group_id: str, topics: Iterable[str], *, deadline: float
) -> dict[str, KafkaError | None]:
    """Delete the state of whole topics from a share group without members. Raises KafkaError."""
    names = list(dict.fromkeys(topics))

    def build(part: list[str]) -> delete.DeleteShareGroupOffsetsRequest:
        return delete.DeleteShareGroupOffsetsRequest(
            group_id=part[0],
            topics=[delete.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names],
        )

    def parse(
        response: delete.DeleteShareGroupOffsetsResponse,
    ) -> Iterable[Item[str, delete.DeleteShareGroupOffsetsResponse]]:
        yield group_id, response.error_code, response.error_message, response

    found = await ask_coordinators(
        cluster, [group_id], build, parse, what="Deleting offsets of share group", deadline=deadline
    )
    return {
        topic.topic_name: (
            item_error(topic.error_code, topic.error_message, f"Forgetting {topic.topic_name}")
            if topic.error_code
            else None
        )
        for topic in value_or_raise(found, group_id).responses
    }
