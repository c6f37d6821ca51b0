"""Machine: who leads a partition and who is in sync: elections, and what brokers coming and going does to partitions.

The rules are those of Kafka's `PartitionChangeBuilder` without reassignments. Eligible leader replicas (KIP-966) that
Kafka wrote are honoured in elections, but none are added: a partition keeps its last replica in sync instead. Each
broker change looks through all partitions once; an index from broker to partitions would go here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from barnabas.core.decision import Decision
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import NO_LEADER
from barnabas.metadata.config_view import ConfigView
from barnabas.metadata.controller.answers import RefusedError, message_of
from barnabas.metadata.controller.settings import DecideContext
from barnabas.metadata.image import ClusterImage, PartitionImage, TopicImage
from barnabas.metadata.record_base import MetadataRecord
from barnabas.metadata.topics_image import LeaderRecoveryState
from barnabas.metadata.topics_records import PartitionChangeRecord
from barnabas.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

PREFERRED_ELECTION = 0
UNCLEAN_ELECTION = 1


def best_leader(
    partition: PartitionImage, is_usable: Callable[[int], bool], *, unclean: bool, keep_present: bool = True
) -> int:
    """Who should lead: the present leader if it still can, else the first replica that has every committed record (it
    is in sync, or eligible), else (unclean) any."""
    usable = [broker for broker in partition.replicas if is_usable(broker)]
    if keep_present and partition.leader in usable and partition.leader in partition.isr:
        return partition.leader
    for complete in (partition.isr, partition.elr):
        for broker in usable:
            if broker in complete:
                return broker
    if not partition.isr and not partition.elr and len(partition.last_known_elr) == 1:
        # Nobody is known to be complete; the last leader is the best there is (KIP-966).
        unclean = unclean or partition.last_known_elr[0] in usable
        usable = [broker for broker in usable if broker == partition.last_known_elr[0]] or usable
    return usable[0] if unclean and usable else NO_LEADER


def leadership_change(
    topic: TopicImage, index: int, partition: PartitionImage, leader: int, isr: tuple[int, ...]
) -> PartitionChangeRecord | None:
    """The record that makes `leader` lead and `isr` be in sync; None when both are so already."""
    record = PartitionChangeRecord(topic_id=topic.topic_id, partition_id=index)
    if leader != partition.leader:
        record.leader = leader
        if leader != NO_LEADER and leader not in partition.isr:
            isr = (leader,)
            if leader not in partition.elr:
                # Unclean: what the others have may be gone, so nobody but the new leader is in sync (KIP-704).
                record.leader_recovery_state = LeaderRecoveryState.RECOVERING
            if partition.elr or partition.last_known_elr:
                record.eligible_leader_replicas = []
                record.last_known_elr = []
    if isr != partition.isr:
        record.isr = list(isr)
    return record if leader != partition.leader or isr != partition.isr else None


def records_without_broker(image: ClusterImage, broker_id: int) -> list[MetadataRecord]:
    """When a broker is fenced or leaves: out of every ISR it is not alone in, and new leaders for what it led."""

    def usable(broker: int) -> bool:
        return broker != broker_id and image.brokers.is_active(broker)

    records: list[MetadataRecord] = []
    for topic, index, partition in _all_partitions(image):
        if broker_id not in partition.isr and partition.leader != broker_id:
            continue
        isr = tuple(broker for broker in partition.isr if broker != broker_id) or partition.isr
        unclean = partition.leader == broker_id and unclean_allowed(image, topic.name)
        leader = best_leader(partition._replace(isr=isr), usable, unclean=unclean)
        record = leadership_change(topic, index, partition, leader, isr)
        if record is not None:
            records.append(record)
    return records


def records_with_broker(image: ClusterImage, broker_id: int) -> list[MetadataRecord]:
    """When a broker becomes usable: it leads the leaderless partitions it is in sync with."""

    def usable(broker: int) -> bool:
        return broker == broker_id or image.brokers.is_active(broker)

    records: list[MetadataRecord] = []
    for topic, index, partition in _all_partitions(image):
        if partition.leader != NO_LEADER or broker_id not in partition.replicas:
            continue
        unclean = unclean_allowed(image, topic.name)
        leader = best_leader(partition, usable, unclean=unclean)
        record = leadership_change(topic, index, partition, leader, partition.isr)
        if record is not None:
            records.append(record)
    return records


def unclean_allowed(image: ClusterImage, topic: str) -> bool:
    """Dynamic settings only: the topic's, else the default of all brokers."""
    view = ConfigView(image.configs, node_id=-1)
    return bool(view.topic_value(topic, "unclean.leader.election.enable").value)


def decide_elect_leaders(
    image: ClusterImage, request: ElectLeadersRequest, ctx: DecideContext
) -> Decision[MetadataRecord, ElectLeadersResponse]:
    """Elect the preferred leader, or any surviving one, of the partitions named, or of all."""
    if request.election_type not in (PREFERRED_ELECTION, UNCLEAN_ELECTION):
        return Decision(ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST))
    everything = request.topic_partitions is None
    if request.topic_partitions is None:
        wanted = [(topic.name, list(range(len(topic.partitions)))) for topic in image.topics]
    else:
        wanted = [(named.topic, named.partitions) for named in request.topic_partitions]
    records: list[MetadataRecord] = []
    results = []
    for name, indexes in wanted:
        outcomes = []
        for index in indexes:
            try:
                records.append(_elect(image, name, index, unclean=request.election_type == UNCLEAN_ELECTION))
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


def _elect(image: ClusterImage, name: str, index: int, *, unclean: bool) -> MetadataRecord:
    topic = image.topics.get(name)
    if topic is None:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = topic.partition(index)
    if partition is None:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    if (unclean and partition.has_leader) or (not unclean and partition.leader == partition.preferred_leader):
        raise RefusedError(ErrorCode.ELECTION_NOT_NEEDED)
    is_usable = image.brokers.is_active
    leader = best_leader(partition, is_usable, unclean=unclean, keep_present=unclean)
    if unclean and leader == NO_LEADER:
        raise RefusedError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
    if not unclean and leader != partition.preferred_leader:
        raise RefusedError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
    record = leadership_change(topic, index, partition, leader, partition.isr)
    assert record is not None, "a partition that needs an election was not changed by it"
    return record


def _all_partitions(image: ClusterImage) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
    for topic in image.topics:
        for index, partition in enumerate(topic.partitions):
            yield topic, index, partition
