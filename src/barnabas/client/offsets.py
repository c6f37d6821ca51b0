"""Shell: offsets of partitions and of groups: ListOffsets, and simple commits without membership.

Pipelines plan and report progress with these functions; `AsyncAdmin` and the consumer use them, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any
from uuid import UUID

from barnabas.client.cluster.cluster import Cluster
from barnabas.client.cluster.coordinators import CoordinatorType
from barnabas.client.cluster.fanout import LeaderResult, by_topic, send_to_leaders
from barnabas.client.cluster.versions import Versioned
from barnabas.client.commit_marks import has_mark, with_marks, without_mark
from barnabas.client.values import GroupMetadata, IsolationLevel, OffsetAndMetadata, OffsetAndTimestamp
from barnabas.core.config import ConfigError
from barnabas.core.errors import ErrorCode, KafkaError, error_code
from barnabas.core.ids import CONSUMER_REPLICA_ID, NO_TOPIC_ID, TopicPartition
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.protocol.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.protocol.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

NAMES_NOT_IDS_VERSION = 9
"""OffsetCommit and OffsetFetch have topic names up to this version, and topic ids in later ones."""


async def list_offsets(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    *,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    deadline: float | None = None,
) -> dict[TopicPartition, OffsetAndTimestamp | KafkaError]:
    """The first offset at or after each timestamp (ms), or at a special one such as `values.EARLIEST` or `LATEST`."""

    def build(part: dict[TopicPartition, int]) -> ListOffsetsRequest:
        return ListOffsetsRequest(
            replica_id=CONSUMER_REPLICA_ID,
            isolation_level=int(isolation),
            timeout_ms=cluster.options.request_timeout_ms,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(partition_index=index, timestamp=part[TopicPartition(topic, index)])
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(part).items()
            ],
        )

    def parse(response: ListOffsetsResponse) -> Iterable[LeaderResult[OffsetAndTimestamp]]:
        for topic in response.topics:
            for p in topic.partitions:
                answer = OffsetAndTimestamp(p.offset, p.timestamp, p.leader_epoch)
                yield TopicPartition(topic.name, p.partition_index), p.error_code, answer

    if deadline is None:
        deadline = cluster.deadline()
    return await send_to_leaders(cluster, timestamps, build, parse, what="Listing offsets", deadline=deadline)


async def offsets_at(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    *,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    deadline: float | None = None,
) -> dict[TopicPartition, int]:
    """Like `list_offsets`, but raises the KafkaError of a partition. The offset is -1 if no record of the partition is
    at or after the timestamp.
    """
    found = await list_offsets(cluster, timestamps, isolation=isolation, deadline=deadline)
    offsets: dict[TopicPartition, int] = {}
    for partition, answer in found.items():
        if isinstance(answer, KafkaError):
            raise answer
        offsets[partition] = answer.offset
    return offsets


async def fetch_group_offsets(
    cluster: Cluster,
    group_id: str,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    require_stable: bool = False,
    member: tuple[str, int] | None = None,
    deadline: float | None = None,
) -> dict[TopicPartition, OffsetAndMetadata | KafkaError]:
    """The committed offsets of a group, for `partitions` or for all (None). Partitions without a commit are omitted.

    A commit of a topic that was deleted and created again since is omitted, too (see `commit_marks.py`).

    `require_stable` waits for open transactions to end (KIP-447). `member` is (id, epoch) of a KIP-848 member.
    Raises KafkaError for an error of the whole group.
    """
    topics = None if partitions is None else by_topic(partitions)
    if topics is not None and not topics:
        return {}

    def build(version: int) -> OffsetFetchRequest:
        if version < 8:
            old = (
                None
                if topics is None
                else [
                    OffsetFetchRequestTopic(name=topic, partition_indexes=indexes) for topic, indexes in topics.items()
                ]
            )
            stable = require_stable if version >= 7 else False
            return OffsetFetchRequest(group_id=group_id, topics=old, require_stable=stable)
        new = (
            None
            if topics is None
            else [OffsetFetchRequestTopics(name=topic, partition_indexes=indexes) for topic, indexes in topics.items()]
        )
        group = OffsetFetchRequestGroup(group_id=group_id, topics=new)
        if version >= 9 and member is not None:
            group.member_id, group.member_epoch = member
        return OffsetFetchRequest(groups=[group], require_stable=require_stable)

    request = Versioned(ApiKey.OFFSET_FETCH, build)

    async def attempt() -> dict[TopicPartition, OffsetAndMetadata | KafkaError]:
        response: OffsetFetchResponse = await _ask_coordinator(cluster, group_id, request, limit)
        if response.groups:
            group = response.groups[0]
            code = group.error_code
            answered: list[tuple[str, Any]] = [(t.name, t.partitions) for t in group.topics]
        else:
            code, answered = response.error_code, [(t.name, t.partitions) for t in response.topics]
        _check_group(cluster, group_id, code, "Fetching the offsets")
        offsets: dict[TopicPartition, OffsetAndMetadata | KafkaError] = {}
        for topic, found in answered:
            for p in found:
                partition = TopicPartition(topic, p.partition_index)
                if p.error_code:
                    error = KafkaError(p.error_code)
                    if error.code is ErrorCode.UNSTABLE_OFFSET_COMMIT:
                        raise error
                    offsets[partition] = error
                elif p.committed_offset >= 0:
                    offsets[partition] = OffsetAndMetadata(
                        p.committed_offset, p.metadata or "", p.committed_leader_epoch
                    )
        return offsets

    limit = cluster.deadline() if deadline is None else deadline
    found: dict[TopicPartition, OffsetAndMetadata | KafkaError] = await cluster.retrying(
        f"Fetching the offsets of group {group_id!r}", attempt, deadline=limit
    )
    return await _of_existing_topics(cluster, found, limit)


async def _of_existing_topics(
    cluster: Cluster, found: dict[TopicPartition, OffsetAndMetadata | KafkaError], deadline: float
) -> dict[TopicPartition, OffsetAndMetadata | KafkaError]:
    """Read the marks of the commits, and remove the commits of topics that were deleted and created again."""
    marked = {p: c for p, c in found.items() if isinstance(c, OffsetAndMetadata) and has_mark(c.metadata)}
    if not marked:
        return found
    metadata = cluster.metadata
    await cluster.topics({partition.topic for partition in marked}, deadline=deadline)
    commits = {p: without_mark(commit, metadata) for p, commit in marked.items()}
    doubtful = {p.topic for p, commit in commits.items() if not metadata.may_be(p.topic, commit.topic_id)}
    if doubtful:  # the cached metadata may be older than the commit
        await cluster.refresh(sorted(doubtful), deadline=deadline)
    for partition, commit in commits.items():
        if metadata.may_be(partition.topic, commit.topic_id):
            found[partition] = commit
        else:
            del found[partition]
    return found


def exact_offsets(
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
    topic_ids: Mapping[TopicPartition, UUID] = MappingProxyType({}),
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The offsets to commit, with the topic ids that are known. Raises ConfigError for a negative offset, which would
    remove the commit."""
    exact: dict[TopicPartition, OffsetAndMetadata] = {}
    for partition, given in offsets.items():
        commit = OffsetAndMetadata(given) if isinstance(given, int) else given
        if commit.topic_id == NO_TOPIC_ID and partition in topic_ids:
            commit = replace(commit, topic_id=topic_ids[partition])
        exact[partition] = commit
        if commit.offset < 0:
            raise ConfigError(
                f"The offset {commit.offset} of {partition} cannot be committed: it must be that of the next record to"
                " read, at least 0. To remove a committed offset, call delete_group_offsets of the admin client."
            )
    return exact


async def commit_group_offsets(
    cluster: Cluster,
    group: str | GroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
    *,
    deadline: float | None = None,
) -> dict[TopicPartition, KafkaError | None]:
    """Commit for a group. A plain group id commits without membership (generation -1), which the coordinator accepts
    while the group has no members; `GroupMetadata` commits as a member.

    Raises KafkaError for an error of the whole group; the errors of single partitions are in the result.
    """
    who = GroupMetadata(group) if isinstance(group, str) else group
    if not offsets:
        return {}
    positions = exact_offsets(offsets, who.topic_ids)

    async def attempt() -> dict[TopicPartition, KafkaError | None]:
        marked = with_marks(positions, cluster.metadata)
        request = _build_commit(who, marked)
        response: OffsetCommitResponse = await _ask_coordinator(cluster, who.group_id, request, limit)
        if marked != positions and ErrorCode.OFFSET_METADATA_TOO_LARGE in _codes(response):
            cluster.metadata.marks_commits = False  # offset.metadata.max.bytes is less than a mark has
            return await attempt()
        results: dict[TopicPartition, KafkaError | None] = {}
        for topic in response.topics:
            for p in topic.partitions:
                code = error_code(p.error_code)
                cluster.coordinators.note_error(CoordinatorType.GROUP, who.group_id, code)
                error = None if code is ErrorCode.NONE else KafkaError(code)
                if error is not None and code in _WHOLE_GROUP:
                    raise error
                results[TopicPartition(topic.name, p.partition_index)] = error
        return results

    limit = cluster.deadline() if deadline is None else deadline
    committed: dict[TopicPartition, KafkaError | None] = await cluster.retrying(
        f"Committing offsets of group {who.group_id!r}", attempt, deadline=limit
    )
    return committed


def _build_commit(who: GroupMetadata, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=who.group_id,
        generation_id_or_member_epoch=who.generation_id,
        member_id=who.member_id,
        group_instance_id=who.group_instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=positions[TopicPartition(topic, index)].offset,
                        committed_leader_epoch=positions[TopicPartition(topic, index)].leader_epoch,
                        committed_metadata=positions[TopicPartition(topic, index)].metadata,
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(positions).items()
        ],
    )


def _codes(response: OffsetCommitResponse) -> set[int]:
    return {partition.error_code for topic in response.topics for partition in topic.partitions}


_WHOLE_GROUP = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.INVALID_GROUP_ID,
    }
)
"""Errors of a commit that concern the whole group, although the response repeats them for each partition."""


async def _ask_coordinator(cluster: Cluster, group_id: str, request: object, deadline: float) -> Any:
    broker_id = await cluster.coordinators.find(CoordinatorType.GROUP, group_id, deadline=deadline)
    try:
        response = await cluster.send(broker_id, request, deadline=deadline, max_version=NAMES_NOT_IDS_VERSION)
    except KafkaError as error:
        cluster.coordinators.note_error(CoordinatorType.GROUP, group_id, error.code)
        raise
    return response


def _check_group(cluster: Cluster, group_id: str, code: int, what: str) -> None:
    error = error_code(code)
    if error is not ErrorCode.NONE:
        cluster.coordinators.note_error(CoordinatorType.GROUP, group_id, error)
        raise KafkaError(error, f"{what} of group {group_id!r}: {error.message}")
