"""Shell: AddPartitionsToTxn (key 24), versions 0 to 5.

- 0: adds partitions to a producer's transaction, which begins with the first partition (KIP-98)
- 1: as 0
- 2: PRODUCER_FENCED, for which older versions get INVALID_PRODUCER_EPOCH (KIP-588)
- 3: flexible
- 4: sent by partition leaders instead of clients: several transactions; VerifyOnly (KIP-890)
- 5: TRANSACTION_ABORTABLE (KIP-890)

If one partition does not exist, none of the transaction is added: the other partitions are answered with
OPERATION_NOT_ATTEMPTED, as in Kafka. The same happens if one is a mirror of a cluster link (POLICY_VIOLATION).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from barnabas.core.errors import ErrorCode
from barnabas.core.ids import TopicPartition
from barnabas.core.work import Pauses, for_each
from barnabas.protocol.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTransaction,
)
from barnabas.server.broker.handlers.transactions.port import TransactionsPort
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.coordination.ports import ProducerIdAndEpoch
from barnabas.server.coordination.transaction.partition_results import (
    batched_result,
    distinct_partitions,
    topic_results,
)
from barnabas.server.metadata.config_rules import is_mirror_topic

BATCHED_SINCE = 4


async def handle(
    port: TransactionsPort, ctx: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    if ctx.api_version >= BATCHED_SINCE:
        # The coordinator processes the transactions in order, and commits the records of many of them together.
        results = await for_each(partial(_batched, port), request.transactions)
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    topics = request.v3_and_below_topics
    partitions = await distinct_partitions(topics)
    codes = await _missing(port, partitions)
    if not codes:
        code = await port.transactions.add_partitions(
            request.v3_and_below_transactional_id,
            ProducerIdAndEpoch(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
            partitions,
            version=min(port.metadata.image.features.levels.get("transaction.version", 0), 1),
            connection=ctx.connection_id,
            max_wait_ms=port.config.current.add_partitions_to_txn_retry_backoff_max_ms,
        )
        if code is ErrorCode.PRODUCER_FENCED and ctx.api_version < 2:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await topic_results(topics, lambda _: code))
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await topic_results(topics, codes.__getitem__))


async def _batched(port: TransactionsPort, transaction: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
    codes = await _missing(port, await distinct_partitions(transaction.topics))
    if codes:
        return await batched_result(transaction.transactional_id, transaction.topics, codes.__getitem__)
    return await port.transactions.add_or_verify_partitions(transaction, version=2)


async def _missing(port: TransactionsPort, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
    """The error codes of all partitions if one cannot be added; empty if all can."""
    image, configs = port.metadata.image.topics, port.metadata.image.configs
    codes: dict[TopicPartition, ErrorCode] = {}
    missing = False
    pauses = Pauses()
    for tp in partitions:
        code = ErrorCode.OPERATION_NOT_ATTEMPTED
        if image.partition(tp.topic, tp.partition) is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif is_mirror_topic(configs.topic(tp.topic)):
            code = ErrorCode.POLICY_VIOLATION
        codes[tp] = code
        missing = missing or code is not ErrorCode.OPERATION_NOT_ATTEMPTED
        await pauses.after(1)
    return codes if missing else {}
