"""Shell: WriteTxnMarkers (key 27), versions 1 to 2.

- 1: writes the commit or abort markers of transactions (KIP-98); flexible
- 2: the transaction version of each marker (KIP-1228)

Appends the markers to partitions that this broker leads, for a transaction coordinator or for an administrator who
aborts a hanging transaction (KIP-664). For a partition of `__consumer_offsets` the group coordinator appends the
marker, and commits or discards the offsets of the transaction. The response is sent when the markers are committed.

A marker of a previous coordinator is rejected with TRANSACTION_COORDINATOR_FENCED, a marker with an old producer
epoch with INVALID_PRODUCER_EPOCH. In transaction version 2 the epoch of a marker is the epoch of the producer's next
transaction. A delayed marker with the same epoch as an open transaction belongs to the previous transaction, and is
rejected too.

A marker for a mirror of a cluster link is answered without being written: the log is the source's, and a topic that
became a mirror while a transaction was open has lost that transaction's records.
"""

from __future__ import annotations

from functools import partial

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import CONSUMER_OFFSETS_TOPIC
from barnabas.core.work import Pauses, for_each
from barnabas.protocol.records.control import EndTxn, build_end_txn_marker
from barnabas.protocol.records.validate import Origin
from barnabas.protocol.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas.server.broker.handlers.transactions.port import TransactionsPort
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.replication.partition import Partition

EPOCH_PER_TRANSACTION = 2

_Waiting = list[tuple[WritableTxnMarkerPartitionResult, Partition, int]]
_Offsets = list[tuple[WritableTxnMarkerPartitionResult, WritableTxnMarker]]


_UNITS = 5
"""The units of work (`core/work`) of the append of one marker."""


async def handle(
    port: TransactionsPort, ctx: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    deadline = ctx.deadline(port.config.current.request_timeout_ms)
    return await write_markers(port, request, ctx.now_ms, deadline)


async def write_markers(
    port: TransactionsPort, request: WriteTxnMarkersRequest, now_ms: int, deadline: float
) -> WriteTxnMarkersResponse:
    """Append the markers and wait until they are committed, or until `deadline`, a time of the event loop."""
    waiting: _Waiting = []
    offsets: _Offsets = []
    response = WriteTxnMarkersResponse()
    pauses = Pauses()
    for marker in request.markers:
        result = WritableTxnMarkerResult(producer_id=marker.producer_id)
        response.markers.append(result)
        for topic in marker.topics:
            answers = [WritableTxnMarkerPartitionResult(partition_index=index) for index in topic.partition_indexes]
            result.topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=answers))
            for answer in answers:
                try:
                    partition = port.partitions.get(topic.name, answer.partition_index)
                    if partition is None:  # also if other brokers have replicas, as Kafka's handler; the sender retries
                        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                    if partition.is_mirror:
                        partition.require_log()
                        continue
                    _check(port, partition, marker)
                    if topic.name == CONSUMER_OFFSETS_TOPIC:
                        offsets.append((answer, marker))
                    else:
                        waiting.append((answer, partition, _append(partition, marker, now_ms)))
                except KafkaError as error:
                    answer.error_code = error.code
                await pauses.after(_UNITS)
    await for_each(partial(_end_offsets, port, deadline), offsets)
    for answer, partition, end in waiting:
        code = partition.try_committed(end)
        if code is None:
            code = await partition.wait_committed(end, deadline)
        answer.error_code = code
    return response


def _check(port: TransactionsPort, partition: Partition, marker: WritableTxnMarker) -> None:
    """Raises KafkaError for a marker of a previous transaction. Any other marker removes the verification guard of its
    producer, because the transaction ends."""
    known = partition.producer(marker.producer_id)
    if (
        marker.transaction_version >= EPOCH_PER_TRANSACTION
        and known is not None
        and known.epoch == marker.producer_epoch
        and known.in_transaction
    ):
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"The marker is of a previous transaction of producer {marker.producer_id} in {partition.name}.",
        )
    port.transaction_verifier.on_marker(partition.name, marker.producer_id)


def _append(partition: Partition, marker: WritableTxnMarker, now_ms: int) -> int:
    """Append the marker; returns the offset after it."""
    batch = build_end_txn_marker(
        EndTxn(marker.transaction_result, marker.coordinator_epoch),
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        timestamp=now_ms,
    )
    return partition.append(batch, -1, now_ms, Origin.COORDINATOR).next_offset


async def _end_offsets(
    port: TransactionsPort, deadline: float, wanted: tuple[WritableTxnMarkerPartitionResult, WritableTxnMarker]
) -> None:
    answer, marker = wanted
    try:
        await port.groups.complete_transaction(
            answer.partition_index,
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            committed=marker.transaction_result,
            deadline=deadline,
        )
    except KafkaError as error:
        answer.error_code = error.code
