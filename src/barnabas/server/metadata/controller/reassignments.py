"""Machine: reassignment of partitions: AlterPartitionReassignments, ListPartitionReassignments (KIP-455).

During a reassignment a partition has all its old and new replicas: `adding` are the new ones, `removing` those that
will be removed. The reassignment is complete when all remaining replicas are in sync; `partition_change` checks this at
every change of the partition. A second request replaces the first: replicas that only the first one added are removed
at once. Cancelling restores the original replicas.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from barnabas.core.decision import Decision
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from barnabas.protocol.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from barnabas.server.metadata.controller.answers import RefusedError, message_of
from barnabas.server.metadata.controller.assignments import check_manual_replicas
from barnabas.server.metadata.controller.partition_change import (
    Election,
    PartitionChangeRules,
    Target,
    change_partition,
)
from barnabas.server.metadata.controller.settings import DecideContext
from barnabas.server.metadata.controller.topic_rules import TopicRules
from barnabas.server.metadata.image.cluster import ClusterImage, PartitionImage, TopicImage
from barnabas.server.metadata.records.base import MetadataRecord


def decide_alter_partition_reassignments(
    image: ClusterImage, request: AlterPartitionReassignmentsRequest, ctx: DecideContext
) -> Decision[MetadataRecord, AlterPartitionReassignmentsResponse]:
    """For each partition by itself: begin a reassignment, change it, or, with null replicas, cancel it."""
    topic_rules = TopicRules(image, ctx)
    records: list[MetadataRecord] = []
    topics = []
    for wanted_topic in request.topics:
        outcomes = []
        for wanted in wanted_topic.partitions:
            outcome = ReassignablePartitionResponse(partition_index=wanted.partition_index, error_message=None)
            try:
                topic, partition = _find(image, wanted_topic.name, wanted.partition_index)
                record = _reassign(
                    image, topic_rules, topic, partition, wanted, request.allow_replication_factor_change
                )
                if record is not None:
                    records.append(record)
            except KafkaError as error:
                outcome.error_code, outcome.error_message = error.code, message_of(error)
            outcomes.append(outcome)
        topics.append(ReassignableTopicResponse(name=wanted_topic.name, partitions=outcomes))
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None, responses=topics
    )
    return Decision(response, records)


def decide_list_partition_reassignments(
    image: ClusterImage, request: ListPartitionReassignmentsRequest, ctx: DecideContext
) -> Decision[MetadataRecord, ListPartitionReassignmentsResponse]:
    """The reassignments in progress, of the requested partitions or of all."""
    found: dict[str, list[OngoingPartitionReassignment]] = {}
    for name, index, partition in _named(image, request):
        if partition.is_reassigning:
            ongoing = OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding_replicas),
                removing_replicas=list(partition.removing_replicas),
            )
            found.setdefault(name, []).append(ongoing)
    topics = [OngoingTopicReassignment(name=name, partitions=partitions) for name, partitions in sorted(found.items())]
    return Decision(ListPartitionReassignmentsResponse(error_message=None, topics=topics))


def original_replicas(partition: PartitionImage) -> tuple[int, ...]:
    """The replicas before the reassignment in progress."""
    return tuple(broker for broker in partition.replicas if broker not in partition.adding_replicas)


def _named(
    image: ClusterImage, request: ListPartitionReassignmentsRequest
) -> Iterator[tuple[str, int, PartitionImage]]:
    if request.topics is None:
        for topic in image.topics:
            for index, partition in enumerate(topic.partitions):
                yield topic.name, index, partition
        return
    for named in request.topics:
        for index in named.partition_indexes:
            found = image.topics.partition(named.name, index)
            if found is not None:
                yield named.name, index, found


def _find(image: ClusterImage, name: str, index: int) -> tuple[TopicImage, PartitionImage]:
    topic = image.topics.get(name)
    if topic is None:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    partition = topic.partition(index)
    if partition is None:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
    return topic, partition


def _reassign(
    image: ClusterImage,
    topic_rules: TopicRules,
    topic: TopicImage,
    partition: PartitionImage,
    wanted: ReassignablePartition,
    factor_may_change: bool,
) -> MetadataRecord | None:
    index = wanted.partition_index
    if wanted.replicas is None:
        if not partition.is_reassigning:
            raise RefusedError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        target = _back(partition)
    else:
        check_manual_replicas(image, wanted.replicas, None)
        original = original_replicas(partition)
        if not factor_may_change and len(wanted.replicas) != len(original):
            raise RefusedError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor is changed from {len(original)} to {len(wanted.replicas)}",
            )
        target = _towards(partition, tuple(wanted.replicas))
    election = topic_rules.election(topic)
    rules = topic_rules.rules(topic, partition, image.brokers.is_active)
    if election is not Election.UNCLEAN and _loses_too_many(partition, target, rules):
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The replicas of {topic.name}-{index} cannot be changed this way now: too few of the remaining replicas "
            "have all records. Wait until more of them are in sync, or allow unclean leader elections.",
        )
    return change_partition(topic.topic_id, index, partition, target, rules, election)


def _loses_too_many(partition: PartitionImage, target: Target, rules: PartitionChangeRules) -> bool:
    """Whether `target` keeps too few of the replicas that have all committed records (the ISR and the ELR).

    While eligible.leader.replicas.version is enabled, min.insync.replicas of them must remain, or all if there are
    fewer, so that the partition survives min.insync.replicas - 1 crashes. Otherwise one must remain; Kafka always
    requires only one."""
    if rules.elr_enabled and not partition.has_leader and not set(partition.last_known_elr) <= set(target.replicas):
        return True  # the last known leader may be the only replica that can lead
    complete = len({*partition.isr, *partition.elr})
    needed = min(rules.min_insync_replicas if rules.elr_enabled else 1, complete)
    return len({*target.isr, *target.elr}) < needed


def _towards(partition: PartitionImage, wanted: tuple[int, ...]) -> Target:
    original = original_replicas(partition)
    removing = tuple(sorted(broker for broker in original if broker not in wanted))
    adding = tuple(sorted(broker for broker in wanted if broker not in original))
    return _with_replicas(partition, (*wanted, *removing), removing, adding)


def _back(partition: PartitionImage) -> Target:
    return _with_replicas(partition, original_replicas(partition), (), ())


def _with_replicas(
    partition: PartitionImage, replicas: tuple[int, ...], removing: tuple[int, ...], adding: tuple[int, ...]
) -> Target:
    return replace(
        Target.of(partition),
        replicas=replicas,
        removing=removing,
        adding=adding,
        isr=tuple(broker for broker in partition.isr if broker in replicas),
        elr=tuple(broker for broker in partition.elr if broker in replicas),
    )
