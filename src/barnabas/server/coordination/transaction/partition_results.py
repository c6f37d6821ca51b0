"""Shell: the lists of partitions in AddPartitionsToTxn requests and responses. They may be long, and are converted with
pauses."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from barnabas.core.errors import ErrorCode
from barnabas.core.ids import TopicPartition
from barnabas.core.work import Pauses
from barnabas.protocol.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)


async def distinct_partitions(topics: Iterable[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    """The partitions of a request, each once."""
    found: dict[TopicPartition, None] = {}
    pauses = Pauses()
    for topic in topics:
        for p in topic.partitions:
            found[TopicPartition(topic.name, p)] = None
            await pauses.after(1)
    return list(found)


async def batched_result(
    transactional_id: str,
    topics: Iterable[AddPartitionsToTxnTopic],
    code_of: Callable[[TopicPartition], ErrorCode],
) -> AddPartitionsToTxnResult:
    results = await topic_results(topics, code_of)
    return AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=results)


async def topic_results(
    topics: Iterable[AddPartitionsToTxnTopic], code_of: Callable[[TopicPartition], ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    results: list[AddPartitionsToTxnTopicResult] = []
    pauses = Pauses()
    for topic in topics:
        result = AddPartitionsToTxnTopicResult(name=topic.name)
        results.append(result)
        for p in topic.partitions:
            code = code_of(TopicPartition(topic.name, p))
            result.results_by_partition.append(
                AddPartitionsToTxnPartitionResult(partition_index=p, partition_error_code=code)
            )
            await pauses.after(1)
    return results
