"""Machine: builds the records and the response of an OffsetCommit or TxnOffsetCommit, in slices.

A commit of 10,000 offsets takes a tenth of a second to build. The work that does not depend on the state of the group,
and that is most of it, is a generator that yields after each slice:

    built = finish(build_offset_commit(...))                 all at once
    built = await work.in_slices(build_offset_commit(...))   the event loop runs other tasks between the slices

The topics may change between the slices and the operation that writes the records: then `BuiltCommit.is_current` is
false, and the operation builds the records anew.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from itertools import chain
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from barnabas.core.errors import ErrorCode
from barnabas.core.ids import NO_TOPIC_ID, TopicId
from barnabas.protocol.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.server.coordination.group.offset_store import CommittedOffset, commit_record
from barnabas.server.coordination.operation import CoordinatorRecord
from barnabas.server.coordination.ports import CatalogTopic, LogRecord, TopicCatalog

R = TypeVar("R")

TOPIC_IDS_FROM: Final = 10
SLICE: Final = 500
"""The offsets of one slice: some 5 ms."""

Encode = Callable[[CoordinatorRecord], LogRecord]
Steps = Generator[int, None, R]
"""Yields the number of offsets of each slice; returns the result."""


class CommitRules(Struct, frozen=True):
    """What the build of a commit depends on, besides the request and the topics."""

    api_version: int
    now_ms: int
    metadata_max_bytes: int
    encode: Encode | None = None
    """Encodes the records, too; None leaves that to the operation."""


class BuiltCommit(Struct, Generic[R]):
    """The records and the response of a commit, if the group accepts it."""

    response: R
    topics: list[CatalogTopic | ErrorCode]
    """The topics of the request, as they were when the commit was built."""
    records: list[CoordinatorRecord] = []
    encoded: list[LogRecord] | None = None

    def is_current(self, requested: Sequence[OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic],
                   topics: TopicCatalog, api_version: int) -> bool:  # fmt: skip
        """Whether the topics of the request have not changed since the build."""
        return all(
            found == resolve(topics, topic.name, _id_of(topic), api_version)
            for found, topic in zip(self.topics, requested, strict=True)
        )


def resolve(topics: TopicCatalog, name: str, topic_id: TopicId, api_version: int) -> CatalogTopic | ErrorCode:
    """The topic of a request: identified by name before version 10, and by id since then."""
    if api_version >= TOPIC_IDS_FROM:
        return topics.by_id(topic_id) or ErrorCode.UNKNOWN_TOPIC_ID
    return topics.by_name(name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def build_offset_commit(
    rules: CommitRules, topics: TopicCatalog, request: OffsetCommitRequest
) -> Steps[BuiltCommit[OffsetCommitResponse]]:
    """Build an OffsetCommit. An offset may have a timestamp and an expiry of its own in old versions."""
    retention = request.retention_time_ms
    expires = -1 if retention == -1 else rules.now_ms + retention
    response = OffsetCommitResponse()
    built = BuiltCommit(response, [], [], [] if rules.encode else None)
    for requested in request.topics:
        answered = OffsetCommitResponseTopic(name=requested.name, topic_id=requested.topic_id)
        response.topics.append(answered)
        topic = resolve(topics, requested.name, requested.topic_id, rules.api_version)
        built.topics.append(topic)
        codes = yield from _build_topic(rules, built, request.group_id, topic, requested, expires)
        answered.partitions = [
            OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
            for p, code in zip(requested.partitions, codes, strict=True)
        ]
    return built


def build_txn_offset_commit(
    rules: CommitRules, topics: TopicCatalog, request: TxnOffsetCommitRequest
) -> Steps[BuiltCommit[TxnOffsetCommitResponse]]:
    """Build a TxnOffsetCommit, which names topics in all its versions."""
    response = TxnOffsetCommitResponse()
    built = BuiltCommit(response, [], [], [] if rules.encode else None)
    for requested in request.topics:
        answered = TxnOffsetCommitResponseTopic(name=requested.name)
        response.topics.append(answered)
        topic = resolve(topics, requested.name, NO_TOPIC_ID, 0)
        built.topics.append(topic)
        codes = yield from _build_topic(rules, built, request.group_id, topic, requested, -1)
        answered.partitions = [
            TxnOffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
            for p, code in zip(requested.partitions, codes, strict=True)
        ]
    return built


def _build_topic(
    rules: CommitRules,
    built: BuiltCommit[Any],
    group_id: str,
    topic: CatalogTopic | ErrorCode,
    requested: OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic,
    expires_ms: int,
) -> Steps[list[ErrorCode]]:
    """Build the records of one topic. Returns the error of each partition."""
    codes: list[ErrorCode] = []
    encode, records = rules.encode, built.records
    partitions: Sequence[OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition] = requested.partitions
    for position, p in enumerate(partitions, start=1):
        if position % SLICE == 0:
            yield SLICE
        code = _check(topic, p.partition_index, p.committed_metadata, rules.metadata_max_bytes)
        codes.append(code)
        if code is not ErrorCode.NONE or isinstance(topic, ErrorCode):
            continue
        timestamp: int = getattr(p, "commit_timestamp", -1)  # only OffsetCommit version 1 carries it
        stored = CommittedOffset(
            p.committed_offset,
            p.committed_leader_epoch,
            p.committed_metadata or "",
            rules.now_ms if timestamp == -1 else timestamp,
            expires_ms,
            topic.topic_id,
        )
        record = commit_record(group_id, topic.name, p.partition_index, stored)
        records.append(record)
        if encode is not None and built.encoded is not None:
            built.encoded.append(encode(record))
    if len(requested.partitions) < SLICE:
        yield len(requested.partitions)
    return codes


def _check(topic: CatalogTopic | ErrorCode, partition: int, metadata: str | None, bytes_max: int) -> ErrorCode:
    if isinstance(topic, ErrorCode):
        return topic
    if not 0 <= partition < topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    too_large = metadata is not None and len(metadata) > bytes_max
    return ErrorCode.OFFSET_METADATA_TOO_LARGE if too_large else ErrorCode.NONE


def _id_of(topic: OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic) -> TopicId:
    return topic.topic_id if isinstance(topic, OffsetCommitRequestTopic) else NO_TOPIC_ID


def offset_count(request: OffsetCommitRequest | TxnOffsetCommitRequest) -> int:
    """The number of offsets in the request plus the number of its topics."""
    return sum(len(partitions) for partitions in chain([request.topics], (t.partitions for t in request.topics)))


def finish(steps: Steps[R]) -> R:
    """Build everything at once."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            built: R = done.value
            return built
