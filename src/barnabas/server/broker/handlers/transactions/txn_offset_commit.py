"""Shell: TxnOffsetCommit (key 28), versions 0 to 5.

- 0: commits a group's offsets as part of a transaction (KIP-98)
- 1: as 0
- 2: leader epoch of each committed offset (KIP-320)
- 3: flexible; member id, group instance id and generation, which fence a member that has lost its partitions
  (KIP-447)
- 4: TRANSACTION_ABORTABLE (KIP-890)
- 5: transaction protocol 2: adds the group's partition of `__consumer_offsets` to the transaction, so that no
  AddOffsetsToTxn is needed (KIP-890)

The offsets become visible when the transaction commits. The group's partition of `__consumer_offsets` must be in the
transaction, as any partition to which the producer writes.
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import CONSUMER_OFFSETS_TOPIC, TopicPartition
from barnabas.protocol.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.server.broker.handlers.transactions.port import TransactionsPort
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.verification import TransactionalWrite, TransactionSupportedOperation

ADD_PARTITION_SINCE = 5
ABORTABLE_SINCE = 4


async def handle(
    port: TransactionsPort, ctx: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    if not request.group_id:
        return _error(request, ErrorCode.INVALID_GROUP_ID)
    try:
        offsets_partition = TopicPartition(CONSUMER_OFFSETS_TOPIC, port.groups.partition_for(request.group_id))
        partition = port.partitions.get(offsets_partition.topic, offsets_partition.partition)
        if partition is None or not partition.is_leader:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
    except KafkaError as error:
        return _error(request, error.code)
    settings = port.config.current
    async with port.transaction_verifier.in_order(request.transactional_id):
        rejected = await port.transaction_verifier.verify(
            request.transactional_id,
            [TransactionalWrite(partition, request.producer_id, request.producer_epoch)],
            _supported(ctx.api_version),
            transaction_partition_verification_enable=settings.transaction_partition_verification_enable,
            add_partitions_to_txn_retry_backoff_ms=settings.add_partitions_to_txn_retry_backoff_ms,
            add_partitions_to_txn_retry_backoff_max_ms=settings.add_partitions_to_txn_retry_backoff_max_ms,
        )
    if offsets_partition in rejected:
        return _error(request, _for_client(rejected[offsets_partition].code))
    return await port.groups.txn_offset_commit(ctx, request)


def _for_client(code: ErrorCode) -> ErrorCode:
    """The error code that the client gets for an error of the transaction coordinator. Two codes are replaced, so that
    every client retries (`GroupCoordinatorService.handleOperationException`)."""
    match code:
        case ErrorCode.NETWORK_EXCEPTION:
            return (
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            )  # every client version retries this error at the same coordinator
        case ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return ErrorCode.NOT_COORDINATOR
    return code


def _supported(api_version: int) -> TransactionSupportedOperation:
    if api_version >= ADD_PARTITION_SINCE:
        return TransactionSupportedOperation.ADD_PARTITION
    if api_version >= ABORTABLE_SINCE:
        return TransactionSupportedOperation.GENERIC_ERROR_SUPPORTED
    return TransactionSupportedOperation.DEFAULT_ERROR


def _error(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
