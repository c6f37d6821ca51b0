"""Shell: ExplainPartition (key 10000, ours), version 0.

Why a partition's last stable offset is stuck, why it is not compacted, why its oldest segment is still there: facts,
for the words are the client's. Only the leader answers. Of an open transaction the log knows the producer, and when it
wrote first (the batch is read for it); the transactional id, its state and its time-out are added where this node
coordinates them. Looks, and changes nothing.

Advertised: Java's clients, librdkafka, franz-go, kafkajs, kafka-python and aiokafka take no notice of keys that they do
not know (AutoMQ advertises keys above 500 of its own).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from barnabas.broker.request_context import RequestContext
from barnabas.broker.services import Services
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.records.batch import HEADER_SIZE, read_header
from barnabas.replication.compaction import CleanerFacts
from barnabas.storage.cleaner.candidate import Candidate
from barnabas.storage.explain import OpenTransaction
from barnabas.storage.log import Log
from barnabas.storage.retention import RetentionFacts
from barnabas.wire.messages.explain_partition import (
    CleanerFailure,
    Compaction,
    ExplainPartitionRequest,
    ExplainPartitionResponse,
    LastPass,
    PartitionResponse,
    Retention,
    TopicResponse,
)
from barnabas.wire.messages.explain_partition import OpenTransaction as OpenTransactionResponse


async def handle(services: Services, ctx: RequestContext, request: ExplainPartitionRequest) -> ExplainPartitionResponse:
    return ExplainPartitionResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[await _explain(services, ctx, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


async def _explain(services: Services, ctx: RequestContext, topic: str, index: int) -> PartitionResponse:
    name = TopicPartition(topic, index)
    try:
        facts = services.on_request.explain(name)
        log = services.partitions.require(topic, index).log
        open_transactions = await _open_transactions(services, name, log, facts.log.open_transactions)
    except KafkaError as error:
        return PartitionResponse(partition_index=index, error_code=error.code, error_message=str(error))
    of_log = facts.log
    return PartitionResponse(
        partition_index=index,
        now_ms=ctx.now_ms,
        leader_epoch=facts.leader_epoch,
        cleanup_policy=",".join(of_log.cleanup_policy),
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
        compaction=_compaction(of_log.compaction, facts.cleaner, log),
        retention=_retention(of_log.retention, facts.retention_interval_ms, log),
    )


async def _open_transactions(
    services: Services, name: TopicPartition, log: Log | None, found: Sequence[OpenTransaction]
) -> list[OpenTransactionResponse]:
    if not found or log is None:
        return []
    holders = services.transactions.holders({transaction.producer_id for transaction in found})
    told = []
    for transaction in found:
        answer = OpenTransactionResponse(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            first_offset=transaction.first_offset,
            first_timestamp=await _timestamp_at(services, log, transaction.first_offset),
            last_timestamp=transaction.last_timestamp,
        )
        holder = holders.get(transaction.producer_id)
        if holder is not None:
            answer.transactional_id = holder.transactional_id
            answer.transaction_state = holder.state
            answer.coordinator_id = services.node_id
            answer.started_ms = holder.started_ms
            answer.timeout_ms = holder.timeout_ms
            answer.in_transaction = name in holder.partitions
        told.append(answer)
    return told


async def _timestamp_at(services: Services, log: Log, offset: int) -> int:
    """When the batch at this offset was made; -1 when its header cannot be read (any more)."""
    if not log.log_start_offset <= offset < log.log_end_offset:
        return -1
    plan = log.plan_read(offset, HEADER_SIZE, upper_offset=log.log_end_offset, min_one_batch=True)
    try:
        result = plan.try_run()
        if result is None:
            result = await asyncio.get_running_loop().run_in_executor(services.disk, plan.run)
    except KafkaError:
        return -1
    return read_header(result.data).base_timestamp if len(result.data) >= HEADER_SIZE else -1


def _compaction(found: Candidate, cleaner: CleanerFacts, log: Log | None) -> Compaction:
    answer = Compaction(
        verdict=found.verdict.name,
        limit=found.limit.name,
        detail=found.detail,
        enabled=cleaner.enabled,
        running=cleaner.running,
        dirty_ratio=found.dirty_ratio,
        first_dirty_offset=found.first_dirty_offset,
        first_uncleanable_offset=found.upper_offset,
        clean_bytes=found.clean_bytes,
        cleanable_bytes=found.cleanable_bytes,
    )
    if log is not None:
        answer.min_dirty_ratio = log.config.min_cleanable_dirty_ratio
        answer.min_lag_ms = log.config.min_compaction_lag_ms
        answer.max_lag_ms = log.config.max_compaction_lag_ms
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


def _retention(found: RetentionFacts, interval_ms: int, log: Log | None) -> Retention:
    return Retention(
        verdict=found.verdict.name,
        retention_ms=-1 if log is None else log.config.retention_ms,
        retention_bytes=-1 if log is None else log.config.retention_bytes,
        first_offset=found.first_offset,
        end_offset=found.end_offset,
        size=found.size,
        is_active=found.is_active,
        youngest_ms=found.youngest_ms,
        expires_ms=found.expires_ms,
        excess_bytes=found.excess_bytes,
        check_interval_ms=interval_ms,
    )
