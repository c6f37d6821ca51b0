"""Shell: ExplainPartition (key 10000), version 0. An API of Barnabas, not of Kafka.

- 0: why the last stable offset of a partition does not move, why the partition is not compacted, why its oldest
  segment is not deleted

The response contains facts; the client (`topics why`) puts them into words. Only the partition's leader answers; the
error message of another broker names the leader. For an open transaction the log knows the producer and the first
offset; the time of the first record is read from the log. The transactional id, its state and its timeout are added
if this broker coordinates the transaction. The request changes nothing.

The key is advertised in ApiVersions: Java's clients, librdkafka, franz-go, kafkajs, kafka-python and aiokafka ignore
unknown keys.
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import NO_LEADER, TopicPartition
from barnabas.protocol.wire.messages.explain_partition import (
    CleanerFailure,
    Compaction,
    ExplainPartitionRequest,
    ExplainPartitionResponse,
    LastPass,
    OpenTransaction,
    PartitionResponse,
    Retention,
    TopicResponse,
)
from barnabas.server.broker.handlers.maintenance.port import MaintenancePort
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.replication.maintenance.on_demand import PartitionExplanation


async def handle(
    port: MaintenancePort, ctx: RequestContext, request: ExplainPartitionRequest
) -> ExplainPartitionResponse:
    return ExplainPartitionResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[await _explain(port, ctx, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


async def _explain(port: MaintenancePort, ctx: RequestContext, topic: str, index: int) -> PartitionResponse:
    name = TopicPartition(topic, index)
    try:
        facts = port.maintenance.explain(name)
        open_transactions = await _open_transactions(port, name, facts)
    except KafkaError as error:
        error = _leader_elsewhere(port, name) or error
        return PartitionResponse(partition_index=index, error_code=error.code, error_message=str(error))
    of_log = facts.log
    return PartitionResponse(
        partition_index=index,
        now_ms=ctx.now_ms,
        leader_epoch=facts.leader_epoch,
        cleanup_policy=",".join(of_log.config.cleanup_policy),
        log_start_offset=of_log.log_start_offset,
        last_stable_offset=of_log.last_stable_offset,
        high_watermark=of_log.high_watermark,
        log_end_offset=of_log.log_end_offset,
        size_bytes=of_log.size_bytes,
        segments=of_log.segments,
        producers=of_log.producers,
        open_transaction_count=of_log.open_count,
        unreplicated_transaction_count=of_log.unreplicated_count,
        open_transactions=open_transactions,
        compaction=_compaction(facts),
        retention=_retention(facts),
    )


def _leader_elsewhere(port: MaintenancePort, name: TopicPartition) -> KafkaError | None:
    """The error that names the leader; None if this node leads the partition or the partition does not exist."""
    state = port.metadata.image.topics.partition(name.topic, name.partition)
    if state is None or state.leader == port.node_id:
        return None
    if state.leader == NO_LEADER:
        return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{name} has no leader at the moment. Retry later.")
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Broker {state.leader} leads {name}. Send the request there.")


async def _open_transactions(
    port: MaintenancePort, name: TopicPartition, facts: PartitionExplanation
) -> list[OpenTransaction]:
    found = facts.log.open_transactions
    if not found:
        return []
    holders = port.transactions.producer_transactions({transaction.producer_id for transaction in found})
    answers = []
    for transaction in found:
        answer = OpenTransaction(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            first_offset=transaction.first_offset,
            first_timestamp=await port.maintenance.read_batch_timestamp(name, transaction.first_offset, port.disk),
            last_timestamp=transaction.last_timestamp,
        )
        holder = holders.get(transaction.producer_id)
        if holder is not None:
            answer.transactional_id = holder.transactional_id
            answer.transaction_state = holder.state
            answer.coordinator_id = port.node_id
            answer.started_ms = holder.started_ms
            answer.timeout_ms = holder.timeout_ms
            answer.in_transaction = name in holder.partitions
        answers.append(answer)
    return answers


def _compaction(facts: PartitionExplanation) -> Compaction:
    found, config, cleaner = facts.log.compaction, facts.log.config, facts.cleaner
    answer = Compaction(
        verdict=found.verdict.name,
        limit=found.limit.name,
        detail=found.detail,
        enabled=cleaner.enabled,
        running=cleaner.running,
        dirty_ratio=found.dirty_ratio,
        min_dirty_ratio=config.min_cleanable_dirty_ratio,
        min_lag_ms=config.min_compaction_lag_ms,
        max_lag_ms=config.max_compaction_lag_ms,
        first_dirty_offset=found.first_dirty_offset,
        first_uncleanable_offset=found.upper_offset,
        clean_bytes=found.clean_bytes,
        cleanable_bytes=found.cleanable_bytes,
    )
    if cleaner.last_pass is not None:
        done, stats = cleaner.last_pass.done, cleaner.last_pass.done.stats
        answer.last_pass = LastPass(
            ended_ms=cleaner.last_pass.ended_ms,
            end_offset=done.end_offset,
            records_read=stats.records_read,
            records_kept=stats.records_kept,
            bytes_read=stats.bytes_read,
            bytes_written=stats.bytes_written,
            seconds=stats.seconds,
        )
    if cleaner.failure is not None:
        failure = cleaner.failure
        answer.failure = CleanerFailure(
            reason=failure.reason, since_ms=failure.since_ms, count=failure.count, retry_ms=failure.retry_ms
        )
    return answer


def _retention(facts: PartitionExplanation) -> Retention:
    found, config = facts.log.retention, facts.log.config
    return Retention(
        verdict=found.verdict.name,
        retention_ms=config.limits.ms,
        retention_bytes=config.limits.bytes,
        is_local=config.copies,
        first_offset=found.first_offset,
        end_offset=found.end_offset,
        size=found.size,
        is_active=found.is_active,
        youngest_ms=found.youngest_ms,
        expires_ms=found.expires_ms,
        excess_bytes=found.excess_bytes,
        check_interval_ms=facts.retention_interval_ms,
    )
