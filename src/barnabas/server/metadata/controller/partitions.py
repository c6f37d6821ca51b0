"""Machine: changes partitions when brokers come and go, and elects leaders on request and periodically.

`partition_change.py` changes one partition; this module selects the partitions. Each change of a broker scans all
partitions once. The scan takes about a tenth of the time of such a change, so an index from brokers to
partitions would save little.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from barnabas.core.decision import Decision
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import NO_LEADER
from barnabas.protocol.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from barnabas.server.metadata.controller.answers import RefusedError, message_of
from barnabas.server.metadata.controller.partition_change import Election, Target, change_partition, elect
from barnabas.server.metadata.controller.settings import DecideContext
from barnabas.server.metadata.controller.topic_rules import TopicRules
from barnabas.server.metadata.image.cluster import ClusterImage, PartitionImage, TopicImage
from barnabas.server.metadata.records.base import MetadataRecord

PREFERRED_ELECTION = 0
UNCLEAN_ELECTION = 1
PARTITIONS_PER_DECISION: Final = 5_000
"""The limit of changed partitions for one decision of a task that is split into several decisions, so that other
requests do not wait long."""


def records_without_broker(
    image: ClusterImage, broker_id: int, ctx: DecideContext, *, unclean: bool = False, limit: int | None = None
) -> list[MetadataRecord]:
    """The records for a broker that is fenced, shuts down, is unregistered or registers again: remove the broker from
    every ISR, and elect new leaders for its partitions. While eligible.leader.replicas.version is disabled, the last
    member of an ISR stays in the ISR, and the partition has no leader.

    `unclean`: the broker registers without proof of a clean shutdown. The broker may have lost records, so it is also
    removed from the eligible leader replicas. `limit`: the largest number of records; None for no limit.
    """
    return _without_broker(image, image.topics, broker_id, ctx, unclean=unclean, limit=limit)


def _without_broker(
    image: ClusterImage,
    topics: Iterable[TopicImage],
    broker_id: int,
    ctx: DecideContext,
    *,
    unclean: bool = False,
    limit: int | None = None,
) -> list[MetadataRecord]:
    def usable(broker: int) -> bool:
        return broker != broker_id and image.brokers.is_active(broker)

    lost = (broker_id,) if unclean else ()
    topic_rules = TopicRules(image, ctx)
    records: list[MetadataRecord] = []
    for topic in topics:
        for index, partition in enumerate(topic.partitions):
            concerned = broker_id in partition.isr or broker_id == partition.leader
            if not concerned and not (unclean and broker_id in partition.elr):
                continue
            isr = tuple(broker for broker in partition.isr if broker != broker_id)
            target = replace(Target.of(partition), isr=isr)
            rules = topic_rules.rules(topic, partition, usable, unclean_shutdown=lost)
            election = topic_rules.election(topic)
            record = change_partition(topic.topic_id, index, partition, target, rules, election)
            if record is not None:
                records.append(record)
            if len(records) == limit:
                return records
    return records


def decide_move_away(
    image: ClusterImage, broker_id: int, ctx: DecideContext, first_topic: int, limit: int = PARTITIONS_PER_DECISION
) -> Decision[MetadataRecord, int | None]:
    """One part of `records_without_broker`, for a broker with very many partitions: start at the topic with the number
    `first_topic`, and stop after the topic with which there are `limit` records. The response is the number of the
    topic at which to continue, or None after the last topic. The numbers may shift when topics are created or deleted;
    the decision that fences or unregisters the broker changes the partitions that were missed."""
    records: list[MetadataRecord] = []
    for number, topic in enumerate(image.topics):
        if number < first_topic:
            continue
        if len(records) >= limit:
            return Decision(number, records)
        records += _without_broker(image, [topic], broker_id, ctx)
    return Decision(None, records)


def records_with_broker(
    image: ClusterImage, broker_id: int, ctx: DecideContext, *, limit: int | None = None
) -> list[MetadataRecord]:
    """The records for a broker that becomes usable: elect leaders for the partitions that have a replica on this broker
    and no leader. `limit`: the largest number of records; None for no limit."""

    def usable(broker: int) -> bool:
        return broker == broker_id or image.brokers.is_active(broker)

    topic_rules = TopicRules(image, ctx)
    records: list[MetadataRecord] = []
    for topic, index, partition in all_partitions(image):
        if partition.leader != NO_LEADER or broker_id not in partition.replicas:
            continue
        rules = topic_rules.rules(topic, partition, usable)
        record = change_partition(
            topic.topic_id, index, partition, Target.of(partition), rules, topic_rules.election(topic)
        )
        if record is not None:
            records.append(record)
        if len(records) == limit:
            break
    return records


def decide_leaderless(
    image: ClusterImage, ctx: DecideContext, limit: int = PARTITIONS_PER_DECISION
) -> Decision[MetadataRecord, bool]:
    """Elect leaders for partitions that have no leader, although an active broker can lead them. `records_with_broker`
    leaves such partitions when it reaches its limit. The response is whether there may be more."""
    topic_rules = TopicRules(image, ctx)
    records: list[MetadataRecord] = []
    for topic, index, partition in all_partitions(image):
        if partition.has_leader:
            continue
        rules = topic_rules.rules(topic, partition, image.brokers.is_active)
        election = topic_rules.election(topic)
        record = change_partition(topic.topic_id, index, partition, Target.of(partition), rules, election)
        if record is not None:
            records.append(record)
        if len(records) == limit:
            return Decision(True, records)
    return Decision(False, records)


def decide_balance_leaders(
    image: ClusterImage, ctx: DecideContext, limit: int = 1_000
) -> Decision[MetadataRecord, bool]:
    """Elect preferred leaders (`auto.leader.rebalance.enable`), for at most `limit` partitions. The response is whether
    there are more."""
    topic_rules = TopicRules(image, ctx)
    records: list[MetadataRecord] = []
    for topic, index, partition in all_partitions(image):
        preferred = partition.preferred_leader
        if partition.leader in (NO_LEADER, preferred) or preferred not in partition.isr:
            continue
        if not image.brokers.is_active(preferred):
            continue
        if len(records) >= limit:
            return Decision(True, records)
        rules = topic_rules.rules(topic, partition, image.brokers.is_active)
        record = change_partition(topic.topic_id, index, partition, Target.of(partition), rules, Election.PREFERRED)
        if record is not None:
            records.append(record)
    return Decision(False, records)


def decide_unclean_elections(
    image: ClusterImage, ctx: DecideContext, limit: int = 1_000
) -> Decision[MetadataRecord, bool]:
    """Elect leaders for partitions without a leader, if their topic allows unclean elections
    (`unclean.leader.election.interval.ms`). The topic config `unclean.leader.election.enable` may have been set after
    the last in-sync replica was lost. The response is whether there are more."""
    topic_rules = TopicRules(image, ctx)
    records: list[MetadataRecord] = []
    for topic, index, partition in all_partitions(image):
        if partition.has_leader or topic_rules.election(topic) is not Election.UNCLEAN:
            continue
        if len(records) >= limit:
            return Decision(True, records)
        rules = topic_rules.rules(topic, partition, image.brokers.is_active)
        record = change_partition(topic.topic_id, index, partition, Target.of(partition), rules, Election.UNCLEAN)
        if record is not None:
            records.append(record)
    return Decision(False, records)


def decide_elect_leaders(
    image: ClusterImage, request: ElectLeadersRequest, ctx: DecideContext
) -> Decision[MetadataRecord, ElectLeadersResponse]:
    """Handle ElectLeaders: elect the preferred leaders, or with an unclean election any usable replica, of the
    requested partitions, or of all partitions if the request names none."""
    if request.election_type not in (PREFERRED_ELECTION, UNCLEAN_ELECTION):
        return Decision(ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST))
    everything = request.topic_partitions is None
    if request.topic_partitions is None:
        wanted = [(topic.name, list(range(len(topic.partitions)))) for topic in image.topics]
    else:
        wanted = [(named.topic, named.partitions) for named in request.topic_partitions]
    topic_rules = TopicRules(image, ctx)
    records: list[MetadataRecord] = []
    results = []
    for name, indexes in wanted:
        outcomes = []
        for index in indexes:
            try:
                unclean = request.election_type == UNCLEAN_ELECTION
                records.append(_elect(image, topic_rules, name, index, unclean=unclean))
                outcomes.append(PartitionResult(partition_id=index, error_message=None))
            except KafkaError as error:
                if everything and error.code is ErrorCode.ELECTION_NOT_NEEDED:
                    continue
                outcomes.append(
                    PartitionResult(partition_id=index, error_code=error.code, error_message=message_of(error))
                )
        if outcomes:
            results.append(ReplicaElectionResult(topic=name, partition_result=outcomes))
    return Decision(ElectLeadersResponse(replica_election_results=results), records)


def _elect(image: ClusterImage, topic_rules: TopicRules, name: str, index: int, *, unclean: bool) -> MetadataRecord:
    topic = image.topics.get(name)
    if topic is None:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = topic.partition(index)
    if partition is None:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    if (unclean and partition.has_leader) or (not unclean and partition.leader == partition.preferred_leader):
        raise RefusedError(ErrorCode.ELECTION_NOT_NEEDED)
    election = Election.UNCLEAN if unclean else Election.PREFERRED
    rules = topic_rules.rules(topic, partition, image.brokers.is_active)
    target = Target.of(partition)
    leader = elect(partition, target, rules, election).leader
    if unclean and leader == NO_LEADER:
        raise RefusedError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
    if not unclean and leader != partition.preferred_leader:
        raise RefusedError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
    record = change_partition(topic.topic_id, index, partition, target, rules, election)
    assert record is not None, "a partition that needs an election was not changed by it"
    return record


def all_partitions(image: ClusterImage) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
    for topic in image.topics:
        for index, partition in enumerate(topic.partitions):
            yield topic, index, partition
