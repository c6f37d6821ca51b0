"""Shell: requests that only Barnabas brokers support: explanations of partitions and groups, and maintenance on demand.

The results are numbers, and words of a fixed vocabulary (`verdict`, `pending`, `phase`). The broker's modules
`storage.cleaner.cleanable`, `storage.retention` and `coordination.group.explain` define these words. Other brokers do
not have these APIs, so that calls fail with UnsupportedApiError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, TypeVar

from barnabas.client.admin.requests import Item, ask_coordinators
from barnabas.client.admin.transactions import describe_transactions, list_transactions
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.cluster.fanout import by_topic, send_to_leaders
from barnabas.core.errors import KafkaError, error_code
from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.messages import explain_group, explain_partition, run_maintenance

V = TypeVar("V")

_COMPACT: Final = 0
_ENFORCE_RETENTION: Final = 1


@dataclass(frozen=True, slots=True)
class OpenTransactionFacts:
    """A transaction that is still open. `transactional_id` is None if no coordinator has the producer."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    first_timestamp: int
    last_timestamp: int
    transactional_id: str | None
    transaction_state: str | None
    coordinator_id: int
    started_ms: int
    timeout_ms: int
    in_transaction: bool
    """Whether the coordinator lists this partition as part of the transaction."""


@dataclass(frozen=True, slots=True)
class LastPassFacts:
    """The last complete compaction since the broker started."""

    ended_ms: int
    end_offset: int
    records_read: int
    records_kept: int
    bytes_read: int
    bytes_written: int
    seconds: float


@dataclass(frozen=True, slots=True)
class CleanerFailureFacts:
    """Why the last compaction failed, since when and how often compactions have failed without a success, and the time
    from which the next one may begin."""

    reason: str
    since_ms: int
    count: int
    retry_ms: int


@dataclass(frozen=True, slots=True)
class CompactionFacts:
    """The state of a partition's compaction: the next pass and the last one."""

    verdict: str
    limit: str
    """The reason why records from `first_uncleanable_offset` on cannot be compacted."""
    detail: str
    enabled: bool
    running: bool
    dirty_ratio: float
    min_dirty_ratio: float
    min_lag_ms: int
    max_lag_ms: int
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    last_pass: LastPassFacts | None
    failure: CleanerFailureFacts | None


@dataclass(frozen=True, slots=True)
class RetentionFacts:
    """The oldest segment, with the facts by which retention decides."""

    verdict: str
    retention_ms: int
    retention_bytes: int
    is_local: bool
    """Whether the two limits are local.retention.ms and local.retention.bytes, those of a tiered log."""
    first_offset: int
    end_offset: int
    size: int
    is_active: bool
    youngest_ms: int
    expires_ms: int
    excess_bytes: int
    check_interval_ms: int


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """The state of a partition, from its leader. Times are milliseconds of the broker's clock."""

    now_ms: int
    leader_epoch: int
    cleanup_policy: str
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int
    segments: int
    producers: int
    open_transaction_count: int
    unreplicated_transaction_count: int
    open_transactions: tuple[OpenTransactionFacts, ...]
    """The ten oldest open transactions, oldest first."""
    compaction: CompactionFacts
    retention: RetentionFacts


@dataclass(frozen=True, slots=True)
class HoldingFacts:
    """A partition and the member that owns it."""

    topic: str
    partition: int
    member_id: str


@dataclass(frozen=True, slots=True)
class MemberFacts:
    """A member and its next step (`pending`). Remaining times are -1 without a running timer."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    epoch: int
    pending: str
    session_left_ms: int
    rebalance_left_ms: int
    assigned_count: int
    target_count: int
    to_revoke: tuple[HoldingFacts, ...]
    awaited: tuple[HoldingFacts, ...]


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """The state of a group, from its coordinator."""

    group_id: str
    now_ms: int
    group_type: str
    protocol_type: str
    state: str
    state_since_ms: int
    epoch: int
    assignment_epoch: int
    assignor: str
    leader_id: str | None
    phase: str
    phase_left_ms: int
    reason: str
    members: tuple[MemberFacts, ...]
    offset_count: int
    pending_offset_count: int
    kept_offset_count: int
    offsets_retention_ms: int
    first_offset_expiry_ms: int
    next_offset_check_left_ms: int


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """The result of a pass on one partition, or the reason why nothing was done (`verdict`)."""

    done: bool
    verdict: str
    detail: str
    bytes_before: int
    bytes_after: int
    segments_before: int
    segments_after: int
    segments_deleted: int
    records_read: int
    records_kept: int
    dirty_ratio: float
    cleaned_offset: int
    log_start_offset: int
    seconds: float


async def explain_partitions(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, deadline: float
) -> dict[TopicPartition, PartitionFacts | KafkaError]:
    """Request the state of partitions from their leaders, and of their open transactions from the coordinators."""

    def build(part: dict[TopicPartition, None]) -> explain_partition.ExplainPartitionRequest:
        return explain_partition.ExplainPartitionRequest(
            topics=[
                explain_partition.TopicRequest(name=name, partition_indexes=indexes)
                for name, indexes in by_topic(part).items()
            ]
        )

    def parse(
        response: explain_partition.ExplainPartitionResponse,
    ) -> Iterable[tuple[TopicPartition, int, PartitionFacts]]:
        for topic in response.topics:
            for p in topic.partitions:
                yield TopicPartition(topic.name, p.partition_index), p.error_code, partition_facts(p)

    wanted: Mapping[TopicPartition, None] = dict.fromkeys(partitions)
    found = await send_to_leaders(cluster, wanted, build, parse, what="Explaining", deadline=deadline)
    return await _with_holders(cluster, found, deadline)


async def explain_groups(
    cluster: Cluster, group_ids: Iterable[str], *, deadline: float
) -> dict[str, GroupFacts | KafkaError]:
    """Request the state of groups from their coordinators."""

    def build(part: list[str]) -> explain_group.ExplainGroupRequest:
        return explain_group.ExplainGroupRequest(group_ids=part)

    def parse(response: explain_group.ExplainGroupResponse) -> Iterable[Item[str, GroupFacts]]:
        for group in response.groups:
            yield group.group_id, group.error_code, group.error_message, group_facts(group)

    return await ask_coordinators(cluster, group_ids, build, parse, what="Explaining group", deadline=deadline)


async def compact(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    *,
    roll: bool,
    force: bool,
    dry_run: bool,
    deadline: float,
) -> dict[TopicPartition, MaintenanceReport | KafkaError]:
    """Compact the partitions that are due; `AsyncAdmin.compact` explains the arguments."""
    return await _run_maintenance(
        cluster, _COMPACT, partitions, roll=roll, force=force, dry_run=dry_run, deadline=deadline
    )


async def enforce_retention(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, dry_run: bool, deadline: float
) -> dict[TopicPartition, MaintenanceReport | KafkaError]:
    """Delete the segments that exceed retention.ms or retention.bytes; `dry_run` only reports the effect."""
    return await _run_maintenance(cluster, _ENFORCE_RETENTION, partitions, dry_run=dry_run, deadline=deadline)


async def _run_maintenance(
    cluster: Cluster,
    operation: int,
    partitions: Iterable[TopicPartition],
    *,
    roll: bool = False,
    force: bool = False,
    dry_run: bool = False,
    deadline: float,
) -> dict[TopicPartition, MaintenanceReport | KafkaError]:
    """Compact partitions or enforce their retention now.

    Each request waits for at most request.timeout.ms, which must be longer than a pass over the largest log.
    """
    refusals: dict[TopicPartition, KafkaError] = {}

    def build(part: dict[TopicPartition, None]) -> run_maintenance.RunMaintenanceRequest:
        topics = [
            run_maintenance.TopicRequest(name=name, partition_indexes=ids) for name, ids in by_topic(part).items()
        ]
        return run_maintenance.RunMaintenanceRequest(
            operation=operation, roll=roll, force=force, dry_run=dry_run, topics=topics
        )

    def parse(
        response: run_maintenance.RunMaintenanceResponse,
    ) -> Iterable[tuple[TopicPartition, int, MaintenanceReport]]:
        for topic in response.topics:
            for p in topic.partitions:
                name = TopicPartition(topic.name, p.partition_index)
                if p.error_code and p.error_message:  # why a pass failed is more than its code can say
                    refusals[name] = KafkaError(error_code(p.error_code), p.error_message)
                yield name, p.error_code, _value(MaintenanceReport, p)

    wanted: Mapping[TopicPartition, None] = dict.fromkeys(partitions)
    found = await send_to_leaders(cluster, wanted, build, parse, what="Maintenance", deadline=deadline)
    return {
        name: refusals.get(name, answer) if isinstance(answer, KafkaError) else answer for name, answer in found.items()
    }


def group_facts(group: explain_group.ExplainedGroup) -> GroupFacts:
    """Convert the part of an ExplainGroup response about one group."""
    members = tuple(
        _value(MemberFacts, member, to_revoke=_holdings(member.to_revoke), awaited=_holdings(member.awaited))
        for member in group.members
    )
    return _value(GroupFacts, group, members=members)


def partition_facts(p: explain_partition.PartitionResponse) -> PartitionFacts:
    """Convert the part of an ExplainPartition response about one partition."""
    compaction, last_pass, failure = p.compaction, p.compaction.last_pass, p.compaction.failure
    return _value(
        PartitionFacts,
        p,
        open_transactions=tuple(_value(OpenTransactionFacts, transaction) for transaction in p.open_transactions),
        compaction=_value(
            CompactionFacts,
            compaction,
            last_pass=None if last_pass is None else _value(LastPassFacts, last_pass),
            failure=None if failure is None else _value(CleanerFailureFacts, failure),
        ),
        retention=_value(RetentionFacts, p.retention),
    )


def _holdings(holdings: Iterable[explain_group.Holding]) -> tuple[HoldingFacts, ...]:
    return tuple(_value(HoldingFacts, holding) for holding in holdings)


def _value(cls: type[V], message: Any, **given: object) -> V:
    """Build a value from the message's fields of the same names, and from the `given` fields."""
    names = [field.name for field in fields(cls)]  # type: ignore[arg-type]  # only dataclasses come here
    return cls(**{name: given[name] if name in given else getattr(message, name) for name in names})


async def _with_holders(
    cluster: Cluster, found: dict[TopicPartition, PartitionFacts | KafkaError], deadline: float
) -> dict[TopicPartition, PartitionFacts | KafkaError]:
    nameless = {
        transaction.producer_id
        for facts in found.values()
        if not isinstance(facts, KafkaError)
        for transaction in facts.open_transactions
        if transaction.transactional_id is None
    }
    if not nameless or len(cluster.metadata.brokers) < 2:
        return found
    listed = await list_transactions(cluster, producer_ids=sorted(nameless), deadline=deadline)
    described = await describe_transactions(cluster, [entry.transactional_id for entry in listed], deadline=deadline)
    holders = {holder.producer_id: holder for holder in described.values() if not isinstance(holder, KafkaError)}

    def completed(name: TopicPartition, transaction: OpenTransactionFacts) -> OpenTransactionFacts:
        holder = holders.get(transaction.producer_id)
        if holder is None or transaction.transactional_id is not None:
            return transaction
        return replace(
            transaction,
            transactional_id=holder.transactional_id,
            transaction_state=holder.state,
            coordinator_id=holder.coordinator,
            started_ms=holder.started_ms,
            timeout_ms=holder.timeout_ms,
            in_transaction=name in holder.partitions,
        )

    return {
        name: facts
        if isinstance(facts, KafkaError)
        else replace(facts, open_transactions=tuple(completed(name, t) for t in facts.open_transactions))
        for name, facts in found.items()
    }
