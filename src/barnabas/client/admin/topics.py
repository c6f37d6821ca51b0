"""Shell: topics: create, delete, grow, list, describe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from barnabas.client.admin.requests import Item, ask_controller
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.cluster.fanout import LeaderResult, by_topic, send_to_leaders
from barnabas.client.cluster.metadata import TopicDescription
from barnabas.client.cluster.versions import Versioned
from barnabas.client.values import CreatedTopic, NewTopic, TopicListing
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from barnabas.protocol.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from barnabas.protocol.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState


async def create_topics(
    cluster: Cluster, topics: Iterable[NewTopic], *, validate_only: bool, deadline: float
) -> dict[str, CreatedTopic | KafkaError]:
    wanted = {topic.name: topic for topic in topics}

    def build(names: list[str]) -> CreateTopicsRequest:
        return CreateTopicsRequest(
            topics=[_creatable(wanted[name]) for name in names],
            timeout_ms=_timeout_ms(cluster, deadline),
            validate_only=validate_only,
        )

    def parse(response: CreateTopicsResponse) -> Iterable[Item[str, CreatedTopic]]:
        for t in response.topics:
            configs = {config.name: config.value for config in t.configs or ()}
            created = CreatedTopic(t.name, t.topic_id, t.num_partitions, t.replication_factor, configs)
            yield t.name, t.error_code, t.error_message, created

    results = await ask_controller(cluster, wanted, build, parse, what="Creating topic", deadline=deadline)
    cluster.metadata.mark_stale(wanted)
    return results


def _creatable(topic: NewTopic) -> CreatableTopic:
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
        for index, brokers in (topic.replica_assignment or {}).items()
    ]
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if assignments else topic.num_partitions,
        replication_factor=-1 if assignments else topic.replication_factor,
        assignments=assignments,
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )


async def delete_topics(cluster: Cluster, names: Iterable[str], *, deadline: float) -> dict[str, KafkaError | None]:
    def build(part: list[str]) -> Versioned:
        def for_version(version: int) -> DeleteTopicsRequest:
            states = [DeleteTopicState(name=name) for name in part] if version >= 6 else []
            return DeleteTopicsRequest(topics=states, topic_names=part, timeout_ms=_timeout_ms(cluster, deadline))

        return Versioned(ApiKey.DELETE_TOPICS, for_version)

    def parse(response: DeleteTopicsResponse) -> Iterable[Item[str, None]]:
        for t in response.responses:
            yield t.name or "", t.error_code, t.error_message, None

    wanted = list(dict.fromkeys(names))
    results = await ask_controller(cluster, wanted, build, parse, what="Deleting topic", deadline=deadline)
    for name, result in results.items():
        if result is None:
            cluster.metadata.forget(name)
    return results


async def create_partitions(
    cluster: Cluster,
    totals: Mapping[str, int],
    *,
    assignments: Mapping[str, Sequence[Sequence[int]]] | None,
    validate_only: bool,
    deadline: float,
) -> dict[str, KafkaError | None]:
    def build(names: list[str]) -> CreatePartitionsRequest:
        topics = []
        for name in names:
            given = (assignments or {}).get(name)
            replicas = None if given is None else [CreatePartitionsAssignment(broker_ids=list(ids)) for ids in given]
            topics.append(CreatePartitionsTopic(name=name, count=totals[name], assignments=replicas))
        return CreatePartitionsRequest(
            topics=topics, timeout_ms=_timeout_ms(cluster, deadline), validate_only=validate_only
        )

    def parse(response: CreatePartitionsResponse) -> Iterable[Item[str, None]]:
        for t in response.results:
            yield t.name, t.error_code, t.error_message, None

    results = await ask_controller(cluster, totals, build, parse, what="Adding partitions to topic", deadline=deadline)
    cluster.metadata.mark_stale(totals)
    return results


async def list_topics(cluster: Cluster, *, include_internal: bool, deadline: float) -> list[TopicListing]:
    views = await cluster.all_topics(deadline=deadline)
    return [
        TopicListing(view.name, view.topic_id, view.is_internal, len(view.partitions))
        for _, view in sorted(views.items())
        if view.error is ErrorCode.NONE and (include_internal or not view.is_internal)
    ]


async def describe_topics(
    cluster: Cluster, names: Iterable[str], *, deadline: float
) -> dict[str, TopicDescription | KafkaError]:
    wanted = list(dict.fromkeys(names))
    if not wanted:
        return {}
    await cluster.refresh(wanted, deadline=deadline)
    results: dict[str, TopicDescription | KafkaError] = {}
    for name in wanted:
        view = cluster.metadata.topics.get(name)
        if view is None or view.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            results[name] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name!r}.")
        elif view.error is not ErrorCode.NONE:
            results[name] = KafkaError(view.error, f"Topic {name!r}: {view.error.message}")
        else:
            results[name] = view
    return results


async def delete_records(
    cluster: Cluster, before: Mapping[TopicPartition, int], *, deadline: float
) -> dict[TopicPartition, int | KafkaError]:
    def build(part: dict[TopicPartition, int]) -> DeleteRecordsRequest:
        return DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=topic,
                    partitions=[
                        DeleteRecordsPartition(partition_index=index, offset=part[TopicPartition(topic, index)])
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(part).items()
            ],
            timeout_ms=_timeout_ms(cluster, deadline),
        )

    def parse(response: DeleteRecordsResponse) -> Iterable[LeaderResult[int]]:
        for topic in response.topics:
            for p in topic.partitions:
                yield TopicPartition(topic.name, p.partition_index), p.error_code, p.low_watermark

    return await send_to_leaders(cluster, before, build, parse, what="Deleting records", deadline=deadline)


def _timeout_ms(cluster: Cluster, deadline: float) -> int:
    """The time-out for the broker: the rest of the call's time, at most one request time-out."""
    left = int((deadline - cluster.now()) * 1000)
    return max(min(left, cluster.options.request_timeout_ms), 1)
