"""Shell: Metadata (key 3), versions 0 to 13.

- 0: brokers, and topics with the leader of each partition; an empty list requests all topics
- 1: null requests all topics, an empty list none; racks, controller id, internal topics
- 2: cluster id
- 3: throttle time
- 4: AllowAutoTopicCreation
- 5: offline replicas
- 6: as 5
- 7: leader epochs
- 8: authorized operations on request (KIP-430)
- 9: flexible
- 10: topic ids in the response (KIP-516)
- 11: without the cluster's authorized operations, which DescribeCluster returns (KIP-700)
- 12: topics by id, with a null name (KIP-516)
- 13: a top-level error code (KIP-1102)

A topic that does not exist is created if both the request and `auto.create.topics.enable` allow this. The response is
sent when the topic exists. The controller id is any live broker, because every broker forwards requests to the
controller.

Not implemented: the top-level error of version 13 (REBOOTSTRAP_REQUIRED) is never set.
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode
from barnabas.core.ids import INTERNAL_TOPICS, NO_TOPIC_ID, TopicId
from barnabas.core.work import Pauses
from barnabas.protocol.security.operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from barnabas.protocol.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.server.broker.handlers.cluster.port import ClusterPort
from barnabas.server.broker.metadata_cache import BrokerMetadataCache
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.metadata.controller.topic_names import name_problem
from barnabas.server.metadata.image.cluster import PartitionImage, TopicImage

_PARTITIONS_PER_SLICE = 1000
"""Topics and partitions that are described, before other tasks of the event loop may run."""
_NAMELESS = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INVALID_REQUEST})
"""Topics with these errors have no authorized operations, because their name is unknown."""


async def handle(port: ClusterPort, ctx: RequestContext, request: MetadataRequest) -> MetadataResponse:
    wanted = request.topics
    if wanted is None or (ctx.api_version == 0 and not wanted):
        cache, pauses = port.metadata.frozen(), Pauses(_PARTITIONS_PER_SLICE)
        topics = [
            await _found(cache, ctx, found, pauses)
            for found in sorted(cache.image.topics, key=lambda topic: topic.name)
        ]
    else:
        topics = await _named(port, ctx, wanted, create=request.allow_auto_topic_creation)
    if request.include_topic_authorized_operations:
        for topic in topics:
            if topic.error_code not in _NAMELESS:
                topic.topic_authorized_operations = TOPIC_OPERATIONS
    ctx.entries = len(topics) + sum(len(topic.partitions) for topic in topics)
    brokers = port.metadata.addresses(ctx.client.listener)
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=b.node_id, host=b.host, port=b.port, rack=b.rack) for b in brokers],
        cluster_id=port.metadata.image.cluster_id,
        # Any live broker, which forwards requests to the controller (`KRaftMetadataCache.getRandomAliveBrokerId`).
        controller_id=port.rng.choice(brokers).node_id if brokers else -1,
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


async def _named(
    port: ClusterPort, ctx: RequestContext, wanted: list[MetadataRequestTopic], *, create: bool
) -> list[MetadataResponseTopic]:
    cache = port.metadata
    missing = [
        topic.name
        for topic in wanted
        if topic.name is not None and topic.topic_id == NO_TOPIC_ID and topic.name not in cache.image.topics
    ]
    errors: dict[str, ErrorCode] = {}
    if missing and create and port.config.current.auto_create_topics_enable:
        errors = await port.topic_creation.create_missing(ctx, missing)
    cache, pauses = port.metadata.frozen(), Pauses(_PARTITIONS_PER_SLICE)
    return [
        await _answer(cache, ctx, name, topic_id, errors, pauses)
        for name, topic_id in dict.fromkeys((topic.name, topic.topic_id) for topic in wanted)
    ]


async def _answer(
    cache: BrokerMetadataCache,
    ctx: RequestContext,
    name: str | None,
    topic_id: TopicId,
    errors: dict[str, ErrorCode],
    pauses: Pauses,
) -> MetadataResponseTopic:
    topics = cache.image.topics
    if topic_id != NO_TOPIC_ID:
        # Versions 10 and 11 have topic ids in the request, but brokers reject them (KAFKA-13078).
        if ctx.api_version < 12:
            return MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=name or "", topic_id=topic_id)
        topic = topics.get_by_id(topic_id)
        if topic is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
        return await _found(cache, ctx, topic, pauses)
    if name is None:
        return MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=None if ctx.api_version >= 12 else "")
    topic = topics.get(name)
    if topic is None:
        code = errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if name_problem(name) is not None:
            code = ErrorCode.INVALID_TOPIC_EXCEPTION
        return MetadataResponseTopic(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS)
    return await _found(cache, ctx, topic, pauses)


async def _found(
    cache: BrokerMetadataCache, ctx: RequestContext, topic: TopicImage, pauses: Pauses
) -> MetadataResponseTopic:
    partitions = await _partitions(cache, ctx.client.listener, topic, pauses)
    await pauses.after(1)
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
    )


async def _partitions(
    cache: BrokerMetadataCache, listener: str, topic: TopicImage, pauses: Pauses
) -> list[MetadataResponsePartition]:
    partitions: list[MetadataResponsePartition] = []
    while (known := cache.descriptions.get(topic, listener)) is None:  # another request may have been faster
        start = len(partitions)
        chosen = topic.partitions[start : start + _PARTITIONS_PER_SLICE]
        partitions += [_partition(cache, listener, start + index, state) for index, state in enumerate(chosen)]
        if len(partitions) == len(topic.partitions):
            cache.descriptions.keep(topic, listener, partitions)
            return partitions
        await pauses.after(len(chosen))
    return known


def _partition(
    cache: BrokerMetadataCache, listener: str, index: int, partition: PartitionImage
) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=cache.leader_problem(partition, listener),
        partition_index=index,
        leader_id=cache.leader(partition, listener),
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=cache.offline_replicas(partition, listener),
    )
