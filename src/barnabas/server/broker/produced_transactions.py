"""Shell: the transactional batches of a Produce request: their producers, and whether they are in open transactions.

`verification.py` asks the transaction coordinator. This module finds the batches of a request, and translates the
errors for the producer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.batch import HEADER_SIZE, TRANSACTIONAL_FLAG, read_header
from barnabas.protocol.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.server.broker.handlers.data.port import DataPort
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.verification import TransactionalWrite, TransactionSupportedOperation

TOPIC_IDS_SINCE = 13
ADD_PARTITION_SINCE = 12
ABORTABLE_SINCE = 11
_PRODUCER_ID = slice(43, 51)
ATTRIBUTES_AT = 22  # the low byte of the batch's attributes; a request has one batch for each partition
BUFFERS = (memoryview, bytes, bytearray)
SEVERAL_PRODUCERS = "Transactional records contained more than one producer ID."
Rejected = Mapping[TopicPartition, KafkaError]

_COORDINATOR_UNAVAILABLE = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def each_partition(request: ProduceRequest) -> Iterator[tuple[TopicProduceData, PartitionProduceData]]:
    """Every partition of the request. Its number in this order is its place in `RequestChecks`."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            yield topic, data


def name_of(port: DataPort, ctx: RequestContext, topic: TopicProduceData) -> str | None:
    return topic.name if ctx.api_version < TOPIC_IDS_SINCE else port.partitions.topic_name(topic.topic_id)


def producer_id_of(records: Buffer) -> int:
    """The producer id of a batch; -1 if the producer is not idempotent."""
    return int.from_bytes(records[_PRODUCER_ID], "big", signed=True)


def has_several_producers(port: DataPort, ctx: RequestContext, request: ProduceRequest) -> bool:
    """Whether the transactional batches for partitions that exist are of more than one producer, or of more than one
    of its epochs. Kafka then rejects the whole request (`ReplicaManager.handleProduceAppend`)."""
    producers: set[tuple[int, int]] = set()
    for topic, data in each_partition(request):
        records = data.records
        if not isinstance(records, BUFFERS) or len(records) < HEADER_SIZE:
            continue
        name = name_of(port, ctx, topic)
        if records[ATTRIBUTES_AT] & TRANSACTIONAL_FLAG and name is not None:
            header = read_header(records)
            if header.producer_id >= 0 and port.metadata.image.topics.partition(name, data.index) is not None:
                producers.add((header.producer_id, header.producer_epoch))
    return len(producers) > 1


async def verify(port: DataPort, ctx: RequestContext, request: ProduceRequest, transactional_id: str) -> Rejected:
    """The errors of the partitions that are not in the producer's transaction."""
    writes: list[TransactionalWrite] = []
    for topic in request.topic_data:
        name = name_of(port, ctx, topic)
        for data in topic.partition_data:
            partition = None if name is None else port.partitions.get(name, data.index)
            records = data.records
            if partition is None or not isinstance(records, BUFFERS):
                continue
            if len(records) >= HEADER_SIZE and records[ATTRIBUTES_AT] & TRANSACTIONAL_FLAG:
                header = read_header(records)
                writes.append(
                    TransactionalWrite(partition, header.producer_id, header.producer_epoch, header.base_sequence)
                )
    if not writes:
        return {}
    if ctx.api_version >= ADD_PARTITION_SINCE:
        supported = TransactionSupportedOperation.ADD_PARTITION
    elif ctx.api_version >= ABORTABLE_SINCE:
        supported = TransactionSupportedOperation.GENERIC_ERROR_SUPPORTED
    else:
        supported = TransactionSupportedOperation.DEFAULT_ERROR
    settings = port.config.current
    rejected = await port.transaction_verifier.verify(
        transactional_id,
        writes,
        supported,
        transaction_partition_verification_enable=settings.transaction_partition_verification_enable,
        add_partitions_to_txn_retry_backoff_ms=settings.add_partitions_to_txn_retry_backoff_ms,
        add_partitions_to_txn_retry_backoff_max_ms=settings.add_partitions_to_txn_retry_backoff_max_ms,
    )
    return {tp: _for_client(error, supported) for tp, error in rejected.items()} if rejected else rejected


def _for_client(error: KafkaError, supported: TransactionSupportedOperation) -> KafkaError:
    """The error for the producer. Producers do not retry the errors of a coordinator, but they retry
    NOT_ENOUGH_REPLICAS without refreshing their metadata (`ReplicaManager.handleProduceAppend`)."""
    adds_partition = supported is TransactionSupportedOperation.ADD_PARTITION
    if (
        error.code is ErrorCode.CONCURRENT_TRANSACTIONS and not adds_partition
    ) or error.code in _COORDINATOR_UNAVAILABLE:
        return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, f"The transaction could not be verified: {error.code.name}.")
    return error
