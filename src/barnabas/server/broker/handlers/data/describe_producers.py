"""Shell: DescribeProducers (key 61), version 0.

- 0: the active producers of partitions (KIP-664)

A replica of a partition returns the epoch, the last sequence and the last timestamp of each producer, and the start
offset of its open transaction. With these an administrator finds the transaction that holds back the last stable
offset. Followers answer, too: `kafka-transactions find-hanging --broker-id` asks one broker about all its replicas.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.core.work import Pauses
from barnabas.protocol.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from barnabas.server.broker.handlers.data.port import DataPort
from barnabas.server.broker.request_context import RequestContext


async def handle(port: DataPort, ctx: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    pauses = Pauses()
    response = DescribeProducersResponse()
    for topic in request.topics:
        described = TopicResponse(name=topic.name)
        response.topics.append(described)
        for index in topic.partition_indexes:
            answer = _describe(port, topic.name, index)
            described.partitions.append(answer)
            await pauses.after(1 + len(answer.active_producers))
    return response


def _describe(port: DataPort, topic: str, index: int) -> PartitionResponse:
    try:
        producers = port.partitions.require(topic, index).producers()
    except KafkaError as error:
        return PartitionResponse(partition_index=index, error_code=error.code, error_message=str(error))
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.txn_first_offset,
            )
            for producer in producers
        ],
    )
