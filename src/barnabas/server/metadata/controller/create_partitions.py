"""Machine: CreatePartitions (`ReplicationControlManager.createPartitions`). The number of partitions can only grow."""

from __future__ import annotations

from barnabas.core.decision import Decision
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from barnabas.server.metadata.controller.answers import (
    RefusedError,
    check_mutation_quota,
    duplicates,
    invalid_request,
    message_of,
)
from barnabas.server.metadata.controller.assignments import (
    active_replicas,
    check_manual_replicas,
    in_sync_of_manual,
    new_partition,
    place,
)
from barnabas.server.metadata.controller.settings import MAX_PARTITIONS_PER_BATCH, DecideContext
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.records.base import MetadataRecord


def decide_create_partitions(
    image: ClusterImage, request: CreatePartitionsRequest, ctx: DecideContext
) -> Decision[MetadataRecord, CreatePartitionsResponse]:
    """The records of the new partitions of every valid topic; no records with `validate_only`."""
    twice = duplicates(topic.name for topic in request.topics)
    records: list[MetadataRecord] = []
    results: dict[str, CreatePartitionsTopicResult] = {}
    for topic in request.topics:
        if topic.name in results:
            continue
        try:
            if topic.name in twice:
                raise invalid_request("Duplicate topic name.")
            made = _grow(image, topic, ctx)
            check_mutation_quota(ctx.charge, len(made))
            if len(records) + len(made) > MAX_PARTITIONS_PER_BATCH:
                raise RefusedError(
                    ErrorCode.POLICY_VIOLATION,
                    f"A request may add at most {MAX_PARTITIONS_PER_BATCH} partitions; use several requests.",
                )
        except KafkaError as error:
            results[topic.name] = CreatePartitionsTopicResult(
                name=topic.name, error_code=error.code, error_message=message_of(error)
            )
            continue
        records += made
        results[topic.name] = CreatePartitionsTopicResult(name=topic.name)
    response = CreatePartitionsResponse(results=list(results.values()))
    return Decision(response, () if request.validate_only else records)


def _grow(image: ClusterImage, wanted: CreatePartitionsTopic, ctx: DecideContext) -> list[MetadataRecord]:
    topic = image.topics.get(wanted.name)
    if topic is None:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    present = len(topic.partitions)
    if wanted.count == present:
        raise RefusedError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if wanted.count < present:
        raise RefusedError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {wanted.name} currently has {present} partition(s); {wanted.count} would not be an increase.",
        )
    additional = wanted.count - present
    if additional > MAX_PARTITIONS_PER_BATCH:
        raise RefusedError(
            ErrorCode.POLICY_VIOLATION,
            f"A request may add at most {MAX_PARTITIONS_PER_BATCH} partitions; use several requests.",
        )
    factor = len(topic.partitions[0].replicas)
    records: list[MetadataRecord] = []
    if wanted.assignments is not None:
        if len(wanted.assignments) != additional:
            raise RefusedError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {additional} additional partition(s), but only {len(wanted.assignments)} "
                "assignment(s) were specified.",
            )
        for index, assignment in enumerate(wanted.assignments, start=present):
            check_manual_replicas(image, assignment.broker_ids, factor)
            in_sync = in_sync_of_manual(image, assignment.broker_ids, index)
            records.append(new_partition(image, topic.topic_id, index, assignment.broker_ids, in_sync))
        return records
    existing = [partition.replicas for partition in topic.partitions]
    try:
        placed = place(image, additional, factor, ctx.rng, existing)
    except KafkaError as error:
        raise RefusedError(error.code, f"Unable to replicate the partition {factor} time(s): {error}") from error
    for index, replicas in enumerate(placed, start=present):
        records.append(new_partition(image, topic.topic_id, index, replicas, active_replicas(image, replicas)))
    return records
