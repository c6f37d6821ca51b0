"""Machine: the response of OffsetFetch, built in slices from the offsets of one moment.

    v1-7 one group; v8 several groups; v9 checks the member epoch; v10 identifies topics by id. A null list of topics
    requests all offsets of the group.

`fetch_offsets` checks the member and reads the state. The generator that it returns builds the response, and yields
after each slice (`core/work.in_slices`): a request may name 90,000 partitions, and a group may have as many offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import NO_TOPIC_ID, TopicId
from barnabas.protocol.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from barnabas.server.coordination.group import groups
from barnabas.server.coordination.group.commit_build import SLICE, TOPIC_IDS_FROM, Steps, finish
from barnabas.server.coordination.group.groups import GroupTable
from barnabas.server.coordination.group.offset_store import NO_OFFSET, CommittedOffset, CommittedOffsets
from barnabas.server.coordination.ports import TopicCatalog

_COPIED_FROM: Final = SLICE
"""The response to a request with at least this many partitions is built in slices, from a copy of the offsets."""


class OffsetsView(Struct, frozen=True):
    """The offsets of a group at one moment. `find` is None if the group does not exist."""

    find: Callable[[tuple[str, int]], CommittedOffset | None] | None
    all: dict[tuple[str, int], CommittedOffset]
    """All offsets, if the request asks for all."""
    unstable: frozenset[tuple[str, int]]
    """The partitions with an offset that an open transaction has written (KIP-447)."""


def fetch_offsets(
    table: GroupTable,
    store: CommittedOffsets,
    topics: TopicCatalog,
    request: OffsetFetchRequestGroup,
    api_version: int,
    *,
    stable: bool,
) -> Steps[OffsetFetchResponseGroup]:
    """The offsets of one group, as a response in slices. Raises KafkaError.

    With `stable` (`require_stable`, KIP-447) the newest state is read, and the caller waits until that state is
    committed; an offset that an open transaction has written gets UNSTABLE_OFFSET_COMMIT. Without `stable` the
    committed state is read.
    """
    group_id = request.group_id
    exists = True
    try:
        group = table.find(group_id) if stable else table.find_committed(group_id)
        groups.check_offset_fetch(group, request.member_id, request.member_epoch, committed=not stable)
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        exists = False
    unstable = store.unstable(group_id) if stable and exists else frozenset()
    if request.topics is None:
        view = store.view(group_id, committed=not stable) if exists else {}
        return _build_all(topics, group_id, api_version, OffsetsView(None, view, unstable))
    if exists and sum(len(topic.partition_indexes) for topic in request.topics) >= _COPIED_FROM:
        view = store.view(group_id, committed=not stable)
        return _build(topics, request.topics, group_id, api_version, OffsetsView(view.get, {}, unstable))

    def find(key: tuple[str, int]) -> CommittedOffset | None:
        return store.one(group_id, *key, committed=not stable)

    # The state is read now, because it may have changed when the caller has waited.
    now = OffsetsView(find if exists else None, {}, unstable)
    return _done(finish(_build(topics, request.topics, group_id, api_version, now)))


def _done(response: OffsetFetchResponseGroup) -> Steps[OffsetFetchResponseGroup]:
    """A generator without slices, which returns a response that was built before."""
    yield from ()
    return response


def _build(
    topics: TopicCatalog,
    requested_topics: Sequence[OffsetFetchRequestTopics],
    group_id: str,
    api_version: int,
    view: OffsetsView,
) -> Steps[OffsetFetchResponseGroup]:
    response = OffsetFetchResponseGroup(group_id=group_id)
    find, unstable = view.find, view.unstable
    for requested in requested_topics:
        topic = _find_topic(topics, requested.name, requested.topic_id, api_version)
        answered = OffsetFetchResponseTopics(name=requested.name, topic_id=requested.topic_id)
        response.topics.append(answered)
        for position, p in enumerate(requested.partition_indexes, start=1):
            if position % SLICE == 0:
                yield SLICE
            if topic is None:
                answered.partitions.append(_no_offset(p, ErrorCode.UNKNOWN_TOPIC_ID))
                continue
            name, topic_id = topic
            found = None if find is None else find((name, p))
            if found is not None and NO_TOPIC_ID not in (topic_id, found.topic_id) and found.topic_id != topic_id:
                found = None  # the offset belongs to a deleted topic with the same name
            answered.partitions.append(_partition(p, found, unstable=(name, p) in unstable))
        if len(requested.partition_indexes) < SLICE:
            yield 1 + len(requested.partition_indexes)
    return response


def _find_topic(topics: TopicCatalog, name: str, topic_id: TopicId, api_version: int) -> tuple[str, TopicId] | None:
    """The topic's name and id; None if the id is unknown. A deleted topic may have offsets, which are found by name."""
    if api_version >= TOPIC_IDS_FROM:
        by_id = topics.by_id(topic_id)
        return None if by_id is None else (by_id.name, topic_id)
    return name, NO_TOPIC_ID


def _build_all(
    topics: TopicCatalog, group_id: str, api_version: int, view: OffsetsView
) -> Steps[OffsetFetchResponseGroup]:
    response = OffsetFetchResponseGroup(group_id=group_id)
    by_topic: dict[str, list[int]] = {}
    for position, (topic, partition) in enumerate(view.all, start=1):
        by_topic.setdefault(topic, []).append(partition)
        if position % SLICE == 0:
            yield SLICE
    for topic in sorted(by_topic):
        known = topics.by_name(topic)
        if known is None and api_version >= TOPIC_IDS_FROM:
            continue  # a deleted topic has no id
        answered = OffsetFetchResponseTopics(name=topic, topic_id=NO_TOPIC_ID if known is None else known.topic_id)
        response.topics.append(answered)
        for position, partition in enumerate(sorted(by_topic[topic]), start=1):
            if position % SLICE == 0:
                yield SLICE
            key = (topic, partition)
            answered.partitions.append(_partition(partition, view.all[key], unstable=key in view.unstable))
        yield 1 + len(by_topic[topic]) % SLICE
    return response


def _partition(partition: int, found: CommittedOffset | None, *, unstable: bool) -> OffsetFetchResponsePartitions:
    if unstable:
        return _no_offset(partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    if found is None:
        return _no_offset(partition, ErrorCode.NONE)
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=found.offset,
        committed_leader_epoch=found.leader_epoch,
        metadata=found.metadata,
    )


def _no_offset(partition: int, code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=partition, committed_offset=NO_OFFSET, metadata="", error_code=code
    )
