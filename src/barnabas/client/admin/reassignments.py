"""Shell: starts, cancels and lists reassignments of partitions (KIP-455)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from barnabas.client.admin.requests import item_error
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.cluster.fanout import by_topic
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)

Replicas = Sequence[int]
"""Broker ids, the preferred leader first."""


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A reassignment in progress. `replicas` are all present replicas, old and new, as broker ids."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)

    @property
    def original(self) -> tuple[int, ...]:
        """The replicas if the reassignment is cancelled."""
        return tuple(broker for broker in self.replicas if broker not in self.adding)


async def alter_reassignments(
    cluster: Cluster, targets: Mapping[TopicPartition, Replicas | None], *, deadline: float
) -> dict[TopicPartition, KafkaError | None]:
    """Begin reassignments; None as a target cancels one. The result is None for each accepted partition."""
    topics = [
        ReassignableTopic(
            name=topic,
            partitions=[
                ReassignablePartition(partition_index=index, replicas=_as_list(targets[TopicPartition(topic, index)]))
                for index in indexes
            ],
        )
        for topic, indexes in by_topic(targets).items()
    ]
    timeout_ms = max(int((deadline - cluster.now()) * 1000), 1)

    async def attempt() -> AlterPartitionReassignmentsResponse:
        request = AlterPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=topics)
        response: AlterPartitionReassignmentsResponse = await cluster.send_controller(request, deadline=deadline)
        if response.error_code:
            raise item_error(response.error_code, response.error_message, "Moving replicas")
        return response

    answer: AlterPartitionReassignmentsResponse = await cluster.retrying("Moving replicas", attempt, deadline=deadline)
    results: dict[TopicPartition, KafkaError | None] = {}
    for topic in answer.responses:
        for p in topic.partitions:
            tp = TopicPartition(topic.name, p.partition_index)
            results[tp] = item_error(p.error_code, p.error_message, f"Moving {tp}") if p.error_code else None
    return results


async def list_reassignments(
    cluster: Cluster, partitions: Iterable[TopicPartition] | None, *, deadline: float
) -> dict[TopicPartition, Reassignment]:
    """The reassignments in progress, of all partitions or of some."""
    topics = None
    if partitions is not None:
        topics = [
            ListPartitionReassignmentsTopics(name=topic, partition_indexes=indexes)
            for topic, indexes in by_topic(partitions).items()
        ]

    async def attempt() -> ListPartitionReassignmentsResponse:
        request = ListPartitionReassignmentsRequest(topics=topics)
        response: ListPartitionReassignmentsResponse = await cluster.send_controller(request, deadline=deadline)
        if response.error_code:
            raise item_error(response.error_code, response.error_message, "Listing moves of replicas")
        return response

    answer: ListPartitionReassignmentsResponse = await cluster.retrying(
        "Listing moves of replicas", attempt, deadline=deadline
    )
    return {
        TopicPartition(topic.name, p.partition_index): Reassignment(
            tuple(p.replicas), tuple(p.adding_replicas), tuple(p.removing_replicas)
        )
        for topic in answer.topics
        for p in topic.partitions
    }


def _as_list(target: Replicas | None) -> list[int] | None:
    return None if target is None else list(target)
