"""Shell: DescribeTopicPartitions (key 75), version 0.

- 0: topics page by page, with the eligible leader replicas of each partition (KIP-966)

Topics are returned in the order of their names. A response has at most ResponsePartitionLimit partitions, and never
more than `max.request.partition.size.limit`. NextCursor is the first partition of the next page. An empty list of
topics requests all topics.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.core.errors import ErrorCode
from barnabas.core.ids import INTERNAL_TOPICS
from barnabas.core.work import Pauses
from barnabas.protocol.security.operations import TOPIC_OPERATIONS
from barnabas.protocol.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from barnabas.server.broker.handlers.cluster.port import ClusterPort
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.metadata.controller.topic_names import name_problem
from barnabas.server.metadata.image.cluster import PartitionImage


async def handle(
    port: ClusterPort, ctx: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    topics = port.metadata.image.topics
    names = sorted({topic.name for topic in request.topics}) if request.topics else topics.names()
    first_index = 0
    if request.cursor is not None:
        cursor = request.cursor
        if cursor.partition_index < 0 or (request.topics and cursor.topic_name not in names):
            return _error(names, ErrorCode.INVALID_REQUEST)
        names = [name for name in names if name >= cursor.topic_name]
        if names and names[0] == cursor.topic_name:
            first_index = cursor.partition_index
    partitions_left = max(
        1, min(request.response_partition_limit, port.config.current.max_request_partition_size_limit)
    )
    answers: list[DescribeTopicPartitionsResponseTopic] = []
    pauses = Pauses()
    for position, name in enumerate(names):
        start = first_index if position == 0 else 0
        topic = topics.get(name)
        await pauses.after(1)
        if partitions_left <= 0:
            return _page(answers, Cursor(topic_name=name, partition_index=start))
        if topic is None:
            bad = name_problem(name) is not None
            answers.append(
                DescribeTopicPartitionsResponseTopic(
                    error_code=ErrorCode.INVALID_TOPIC_EXCEPTION if bad else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    name=name,
                    topic_authorized_operations=TOPIC_OPERATIONS,
                )
            )
            continue
        chosen = topic.partitions[start : start + partitions_left]
        answers.append(
            DescribeTopicPartitionsResponseTopic(
                name=name,
                topic_id=topic.topic_id,
                is_internal=name in INTERNAL_TOPICS,
                partitions=[_partition(port, ctx, start + i, state) for i, state in enumerate(chosen)],
                topic_authorized_operations=TOPIC_OPERATIONS,
            )
        )
        await pauses.after(len(chosen))
        partitions_left -= len(chosen)
        if start + len(chosen) < len(topic.partitions):
            return _page(answers, Cursor(topic_name=name, partition_index=start + len(chosen)))
    return _page(answers, None)


def _error(names: Iterable[str], code: ErrorCode) -> DescribeTopicPartitionsResponse:
    """A response in which each of the topics `names` carries the error, because there is no top-level error code."""
    return _page([DescribeTopicPartitionsResponseTopic(error_code=code, name=name) for name in names], None)


def _page(
    answers: list[DescribeTopicPartitionsResponseTopic], cursor: Cursor | None
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=answers, next_cursor=cursor)


def _partition(
    port: ClusterPort, ctx: RequestContext, index: int, state: PartitionImage
) -> DescribeTopicPartitionsResponsePartition:
    cache, listener = port.metadata, ctx.client.listener
    return DescribeTopicPartitionsResponsePartition(
        error_code=cache.leader_problem(state, listener),
        partition_index=index,
        leader_id=cache.leader(state, listener),
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        eligible_leader_replicas=list(state.elr),
        last_known_elr=list(state.last_known_elr),
        offline_replicas=cache.offline_replicas(state, listener),
    )
