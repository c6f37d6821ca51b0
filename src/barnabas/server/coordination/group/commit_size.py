"""Shell: rejects an OffsetCommit or TxnOffsetCommit, above all one whose records cannot fit into one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.work import Pauses
from barnabas.protocol.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_RECORD_BYTES_MIN: Final = 59
"""The bytes of an offset's record besides its group, topic and metadata: 7 of the record's frame, 10 of the key's
fields, 42 of the value's in version 4."""


def check_commit_size(
    group_id: str,
    topics: Sequence[OffsetCommitRequestTopic] | Sequence[TxnOffsetCommitRequestTopic],
    message_max_bytes: int,
) -> None:
    """Raises KafkaError INVALID_COMMIT_OFFSET_SIZE if the records of a commit cannot fit into one batch.

    All records of a commit are appended as one batch, and `message.max.bytes` is the limit for its size. The check
    comes before anything is built: a request may have 100,000 partitions, and one batch holds about 10,000.
    """
    size = 0
    for topic in topics:
        metadata = sum(len(p.committed_metadata) for p in topic.partitions if p.committed_metadata)
        size += len(topic.partitions) * (_RECORD_BYTES_MIN + len(group_id) + len(topic.name)) + metadata
    if size > message_max_bytes:
        raise KafkaError(
            ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
            f"The records of the commit take {size} bytes or more; {message_max_bytes} fit into one batch.",
        )


async def failed_commit(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """The response in which every partition has the error."""
    pauses = Pauses()
    response = OffsetCommitResponse()
    for topic in request.topics:
        failed = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        response.topics.append(failed)
        for p in topic.partitions:
            failed.partitions.append(OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code))
            await pauses.after(1)
    return response


async def failed_txn_commit(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    """The response in which every partition has the error."""
    pauses = Pauses()
    response = TxnOffsetCommitResponse()
    for topic in request.topics:
        failed = TxnOffsetCommitResponseTopic(name=topic.name)
        response.topics.append(failed)
        for p in topic.partitions:
            failed.partitions.append(
                TxnOffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
            )
            await pauses.after(1)
    return response
