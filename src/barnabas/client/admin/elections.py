"""Shell: elections of leaders: the preferred replica, or any that survives (KIP-460)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from barnabas.client.cluster.cluster import Cluster
from barnabas.client.cluster.fanout import by_topic
from barnabas.client.cluster.versions import Versioned
from barnabas.core.errors import ErrorCode, KafkaError, error_code
from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions

ELECTION_TYPES_SINCE = 1


class ElectionType(IntEnum):
    """The kinds of elections; the values are those of the protocol."""

    PREFERRED = 0
    UNCLEAN = 1
    """Elect any live replica, even if records are lost. This is only for partitions without a leader."""


async def elect_leaders(
    cluster: Cluster, kind: ElectionType, partitions: Iterable[TopicPartition] | None, *, deadline: float
) -> dict[TopicPartition, KafkaError | None]:
    """Elect leaders. The result is None for each partition with a new leader; it is the error ELECTION_NOT_NEEDED if
    the replica that would be elected already leads."""
    topics = None
    if partitions is not None:
        topics = [TopicPartitions(topic=t, partitions=indexes) for t, indexes in by_topic(partitions).items()]
    timeout_ms = max(int((deadline - cluster.now()) * 1000), 1)

    def build(version: int) -> ElectLeadersRequest:
        if version < ELECTION_TYPES_SINCE and kind is not ElectionType.PREFERRED:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, "This broker only supports elections of preferred leaders (KIP-460)."
            )
        return ElectLeadersRequest(election_type=int(kind), topic_partitions=topics, timeout_ms=timeout_ms)

    async def attempt() -> ElectLeadersResponse:
        request = Versioned(ApiKey.ELECT_LEADERS, build)
        response: ElectLeadersResponse = await cluster.send_controller(request, deadline=deadline)
        if response.error_code:
            raise KafkaError(response.error_code)
        return response

    answer: ElectLeadersResponse = await cluster.retrying("Electing leaders", attempt, deadline=deadline)
    results: dict[TopicPartition, KafkaError | None] = {}
    for topic in answer.replica_election_results:
        for result in topic.partition_result:
            partition = TopicPartition(topic.topic, result.partition_id)
            code = error_code(result.error_code)
            wrong = KafkaError(code, f"Electing a leader of {partition}: {result.error_message or code.message}")
            results[partition] = None if code is ErrorCode.NONE else wrong
    cluster.metadata.mark_stale({partition.topic for partition in results})
    return results
