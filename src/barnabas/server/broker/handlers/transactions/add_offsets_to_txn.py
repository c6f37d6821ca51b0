"""Shell: AddOffsetsToTxn (key 25), versions 0 to 4.

- 0: adds a group's partition of `__consumer_offsets` to a producer's transaction (KIP-98)
- 1: as 0
- 2: PRODUCER_FENCED, for which older versions get INVALID_PRODUCER_EPOCH (KIP-588)
- 3: flexible
- 4: TRANSACTION_ABORTABLE (KIP-890)

A producer may send this request before it has looked for the group's coordinator, and so before `__consumer_offsets`
exists. The request creates the topic, as FindCoordinator does. Until the topic exists, the partition follows from
`offsets.topic.num.partitions`, as in Kafka: an older client repeats this request for ever if it is refused.

Producers of transaction protocol 2 do not send this request, because TxnOffsetCommit adds the partition for them.
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode
from barnabas.core.hashing import coordinator_partition
from barnabas.core.ids import CONSUMER_OFFSETS_TOPIC, TopicPartition
from barnabas.protocol.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas.server.broker.handlers.transactions.port import TransactionsPort
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.coordination.ports import ProducerIdAndEpoch


async def handle(
    port: TransactionsPort, ctx: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    if port.metadata.image.topics.get(CONSUMER_OFFSETS_TOPIC) is None:
        await port.topic_creation.create_missing(None, [CONSUMER_OFFSETS_TOPIC])
    topic = port.metadata.image.topics.get(CONSUMER_OFFSETS_TOPIC)
    partitions = port.config.current.offsets_topic_num_partitions if topic is None else len(topic.partitions)
    offsets_partition = TopicPartition(CONSUMER_OFFSETS_TOPIC, coordinator_partition(request.group_id, partitions))
    code = await port.transactions.add_partitions(
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        [offsets_partition],
        version=min(port.metadata.image.features.levels.get("transaction.version", 0), 1),
        connection=ctx.connection_id,
        max_wait_ms=port.config.current.add_partitions_to_txn_retry_backoff_max_ms,
    )
    if code is ErrorCode.PRODUCER_FENCED and ctx.api_version < 2:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return AddOffsetsToTxnResponse(error_code=code)
