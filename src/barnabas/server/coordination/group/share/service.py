"""Shell: the APIs of share groups as the broker calls them: one async method per API.

These APIs involve the group coordinator and the share coordinators, which may be on other nodes. The decision is
written to the group's log first, then requests are sent to the share coordinators, and then the results are written. A
crash in between leaves share partitions as `initializing` or `deleting`, and the requests are sent again later.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicId, TopicPartition
from barnabas.core.telemetry import get_logger
from barnabas.core.work import Pauses
from barnabas.protocol.wire.messages import alter_share_group_offsets as alter
from barnabas.protocol.wire.messages import delete_share_group_offsets as delete
from barnabas.protocol.wire.messages import describe_share_group_offsets as describe
from barnabas.protocol.wire.messages import share_group_describe as described_groups
from barnabas.protocol.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from barnabas.protocol.wire.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from barnabas.protocol.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from barnabas.server.coordination.group.share.ports import PartitionEnds, ShareStates, StateTopic, StateTopics
from barnabas.server.coordination.group.subscriptions import sort_subscription
from barnabas.server.coordination.operation import Deferred, WriteOperation
from barnabas.server.coordination.ports import CatalogTopic, GroupRequestContext, TopicCatalog
from barnabas.server.coordination.share.state import UNINITIALIZED_START_OFFSET, ShareState

if TYPE_CHECKING:
    from barnabas.server.coordination.group.shard import GroupShard

R = TypeVar("R")

NO_LAG: Final = -1
_ENDS_AT_ONCE: Final = 1_000
"""The partitions whose end offsets are requested at the same time."""
_UNKNOWN: Final = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

log = get_logger("barnabas.server.coordination")


DeleteEmptyGroups = Callable[[GroupRequestContext, DeleteGroupsRequest], Awaitable[DeleteGroupsResponse]]
"""Deletes groups without members, with their offsets."""


class GroupRuntime(Protocol):
    """The operations and queries of the group coordinator. The methods raise KafkaError."""

    @property
    def topics(self) -> TopicCatalog: ...

    async def write(self, group_id: str, decide: Callable[[GroupShard, WriteOperation], R | Deferred]) -> R: ...

    def read(self, group_id: str, query: Callable[[GroupShard], R]) -> R: ...


class ShareGroupService:
    """The APIs of share groups."""

    def __init__(self, groups: GroupRuntime, states: ShareStates, ends: PartitionEnds) -> None:
        self._groups = groups
        self._states = states
        self._ends = ends

    # -- members -----------------------------------------------------------------------------------------------------

    async def share_group_heartbeat(
        self, ctx: GroupRequestContext, request: ShareGroupHeartbeatRequest
    ) -> ShareGroupHeartbeatResponse:
        group_id = request.group_id
        names = request.subscribed_topic_names
        if names is not None:
            request.subscribed_topic_names = await sort_subscription(names)
        try:
            response, needed = await self._groups.write(
                group_id, lambda shard, op: shard.share_groups.heartbeat(op, ctx, request)
            )
        except KafkaError as error:
            return ShareGroupHeartbeatResponse(error_code=error.code, error_message=str(error))
        if not needed:
            return response
        # Kafka responds first, so that the member gets its partitions seconds later, with its next heartbeat. The
        # initialization takes milliseconds, so this response waits for it.
        try:
            epoch = response.member_epoch
            starts = {t: dict.fromkeys(topic.partitions, UNINITIALIZED_START_OFFSET) for t, topic in needed.items()}
            await self._initialize(group_id, epoch, starts, needed)
            return await self._groups.write(
                group_id,
                lambda shard, op: shard.share_groups.heartbeat_after_initialization(op, group_id, request.member_id),
            )
        except KafkaError as error:
            log.warning(
                "share partitions could not be initialized; a later heartbeat retries",
                group=group_id,
                error=error.code.name,
            )
            return response

    async def _initialize(
        self, group_id: str, epoch: int, starts: Mapping[TopicId, Mapping[int, int]], topics: StateTopics
    ) -> dict[tuple[TopicId, int], KafkaError | None]:
        """Initialize share partitions at the share coordinators, and write the results. Raises KafkaError if the
        results cannot be written."""
        found = await self._states.initialize(group_id, epoch, starts)
        made = _select_partitions(topics, lambda key: found[key] is None)
        failed = _select_partitions(topics, lambda key: found[key] is not None)

        def finish(shard: GroupShard, op: WriteOperation) -> None:
            shard.share_groups.finish_initialization(op, group_id, made, failed)

        await self._groups.write(group_id, finish)
        return found

    async def share_group_describe(
        self, ctx: GroupRequestContext, request: ShareGroupDescribeRequest
    ) -> ShareGroupDescribeResponse:
        groups = []
        pauses = Pauses()
        for group_id in request.group_ids:
            await pauses.after(1)
            try:
                groups.append(self._groups.read(group_id, partial(_describe_share_group, group_id)))
            except KafkaError as error:
                groups.append(
                    described_groups.DescribedGroup(group_id=group_id, error_code=error.code, error_message=str(error))
                )
        return ShareGroupDescribeResponse(groups=groups)

    # -- offsets -----------------------------------------------------------------------------------------------------

    async def describe_share_group_offsets(
        self, ctx: GroupRequestContext, request: describe.DescribeShareGroupOffsetsRequest
    ) -> describe.DescribeShareGroupOffsetsResponse:
        groups = []
        pauses = Pauses()
        for requested in request.groups:
            group = describe.DescribeShareGroupOffsetsResponseGroup(group_id=requested.group_id)
            groups.append(group)
            try:
                group.topics = await self._describe_offsets(requested, pauses)
            except KafkaError as error:
                group.error_code, group.error_message = error.code, str(error)
            await pauses.after(1)
        return describe.DescribeShareGroupOffsetsResponse(groups=groups)

    async def _describe_offsets(
        self, requested: describe.DescribeShareGroupOffsetsRequestGroup, pauses: Pauses
    ) -> list[describe.DescribeShareGroupOffsetsResponseTopic]:
        """The start offset and lag of each requested share partition. Raises KafkaError GROUP_ID_NOT_FOUND if all
        partitions of a group are requested that does not exist."""
        group_id = requested.group_id
        if requested.topics is None:
            known = await self._groups.write(group_id, lambda shard, op: shard.share_offsets.known_topics(op, group_id))
            wanted = [(topic.name, sorted(topic.partitions)) for topic in known.values()]
        else:
            wanted = [(topic.topic_name, list(topic.partitions)) for topic in requested.topics]
        views: dict[str, CatalogTopic | None] = {}
        to_read: dict[TopicId, set[int]] = {}
        for name, partitions in wanted:
            view = views[name] = self._groups.topics.by_name(name)
            if view is not None:
                to_read.setdefault(view.topic_id, set()).update(p for p in partitions if p < view.partitions)
            await pauses.after(1 + len(partitions) // 20)
        summaries = await self._states.summaries(group_id, to_read)
        ends = await self._find_ends(
            TopicPartition(view.name, p) for view in views.values() if view for p in sorted(to_read[view.topic_id])
        )
        topic_responses = []
        for name, partitions in wanted:
            view = views[name]
            topic_response = describe.DescribeShareGroupOffsetsResponseTopic(topic_name=name)
            if view is not None:
                topic_response.topic_id = view.topic_id
            for p in partitions:
                state = _UNKNOWN if view is None else summaries.get((view.topic_id, p), _UNKNOWN)
                topic_response.partitions.append(_offsets(p, state, ends.get(TopicPartition(name, p))))
                await pauses.after(1)
            topic_responses.append(topic_response)
        return topic_responses

    async def _find_ends(self, partitions: Iterator[TopicPartition]) -> dict[TopicPartition, int]:
        """The end offsets of partitions, which are requested _ENDS_AT_ONCE at a time."""
        ends: dict[TopicPartition, int] = {}
        pauses = Pauses()
        while chosen := list(islice(partitions, _ENDS_AT_ONCE)):
            ends.update(await self._ends.ends(chosen))
            await pauses.after(len(chosen) // 5)
        return ends

    async def alter_share_group_offsets(
        self, ctx: GroupRequestContext, request: alter.AlterShareGroupOffsetsRequest
    ) -> alter.AlterShareGroupOffsetsResponse:
        group_id = request.group_id
        starts: dict[TopicId, dict[int, int]] = {}
        topics: dict[TopicId, StateTopic] = {}
        pauses = Pauses()
        for topic in request.topics:
            await pauses.after(1 + len(topic.partitions) // 20)
            view = self._groups.topics.by_name(topic.topic_name)
            if view is not None:
                offsets = {
                    p.partition_index: p.start_offset
                    for p in topic.partitions
                    if 0 <= p.partition_index < view.partitions
                }
                if offsets:
                    starts[view.topic_id] = offsets
                    topics[view.topic_id] = StateTopic(view.name, frozenset(offsets))
        try:
            _check_group_id(group_id)
            epoch = await self._groups.write(
                group_id, lambda shard, op: shard.share_offsets.begin_alter(op, group_id, starts)
            )
            found = await self._initialize(group_id, epoch, starts, topics) if starts else {}
        except KafkaError as error:
            return alter.AlterShareGroupOffsetsResponse(error_code=error.code, error_message=str(error))
        response = alter.AlterShareGroupOffsetsResponse()
        for topic in request.topics:
            view = self._groups.topics.by_name(topic.topic_name)
            topic_response = alter.AlterShareGroupOffsetsResponseTopic(topic_name=topic.topic_name)
            response.responses.append(topic_response)
            if view is not None:
                topic_response.topic_id = view.topic_id
            for p in topic.partitions:
                failure = _UNKNOWN if view is None else found.get((view.topic_id, p.partition_index), _UNKNOWN)
                topic_response.partitions.append(
                    alter.AlterShareGroupOffsetsResponsePartition(
                        partition_index=p.partition_index,
                        error_code=0 if failure is None else failure.code,
                        error_message=None if failure is None else str(failure),
                    )
                )
                await pauses.after(1)
        return response

    async def delete_share_group_offsets(
        self, ctx: GroupRequestContext, request: delete.DeleteShareGroupOffsetsRequest
    ) -> delete.DeleteShareGroupOffsetsResponse:
        views: dict[str, CatalogTopic | None] = {}
        pauses = Pauses()
        for topic in request.topics:
            views[topic.topic_name] = self._groups.topics.by_name(topic.topic_name)
            await pauses.after(1)
        try:
            _check_group_id(request.group_id)
            found = await self._delete(request.group_id, {view.topic_id for view in views.values() if view})
        except KafkaError as error:
            return delete.DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=str(error))
        response = delete.DeleteShareGroupOffsetsResponse()
        for name, view in views.items():
            topic_response = delete.DeleteShareGroupOffsetsResponseTopic(topic_name=name)
            response.responses.append(topic_response)
            failure = _UNKNOWN if view is None else found.get(view.topic_id)
            if view is not None:
                topic_response.topic_id = view.topic_id
            if failure is not None:
                topic_response.error_code, topic_response.error_message = failure.code, str(failure)
            await pauses.after(1)
        return response

    async def delete_groups(
        self, ctx: GroupRequestContext, request: DeleteGroupsRequest, delete_empty: DeleteEmptyGroups
    ) -> DeleteGroupsResponse:
        """Delete groups of any kind with `delete_empty`, after the share state of the share groups among them.

        A group whose share state could not be deleted is kept, and the response has the error: a later group with its
        name would begin where this one has ended.
        """
        failed: dict[str, KafkaError] = {}
        pauses = Pauses()
        for group_id in dict.fromkeys(request.groups_names):
            await pauses.after(5)
            try:
                errors = await self._delete(group_id, None)
            except KafkaError as error:
                if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:  # else it is no share group
                    failed[group_id] = error
            else:
                failed.update((group_id, error) for error in list(errors.values())[:1])
        if not failed:
            return await delete_empty(ctx, request)
        rest = [group_id for group_id in request.groups_names if group_id not in failed]
        deleted = await delete_empty(ctx, DeleteGroupsRequest(groups_names=rest))
        results = {result.group_id: result for result in deleted.results}
        for group_id, reason in failed.items():
            log.info("a share group is kept: its state was not deleted", group=group_id, error=reason.code.name)
            results[group_id] = DeletableGroupResult(group_id=group_id, error_code=reason.code)
        return DeleteGroupsResponse(results=[results[group_id] for group_id in dict.fromkeys(request.groups_names)])

    async def _delete(self, group_id: str, topic_ids: set[TopicId] | None) -> dict[TopicId, KafkaError]:
        """Delete the state of these topics (None: of all). Returns the errors of the topics that could not be deleted.
        Raises KafkaError."""
        partitions = await self._groups.write(
            group_id, lambda shard, op: shard.share_offsets.begin_delete(op, group_id, topic_ids)
        )
        if not partitions:
            return {}
        found = await self._states.delete(group_id, partitions)
        failed = {topic_id: error for (topic_id, _), error in found.items() if error is not None}
        gone = [topic_id for topic_id in partitions if topic_id not in failed]

        def finish(shard: GroupShard, op: WriteOperation) -> None:
            shard.share_offsets.finish_delete(op, group_id, gone)

        await self._groups.write(group_id, finish)
        return failed


def _check_group_id(group_id: str) -> None:
    """Raises KafkaError INVALID_GROUP_ID for an empty group id."""
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)


def _describe_share_group(group_id: str, shard: GroupShard) -> described_groups.DescribedGroup:
    return shard.admin.describe_share_group(group_id)


def _select_partitions(topics: StateTopics, wanted: Callable[[tuple[TopicId, int]], bool]) -> dict[TopicId, StateTopic]:
    chosen = {}
    for topic_id, topic in topics.items():
        partitions = frozenset(p for p in topic.partitions if wanted((topic_id, p)))
        if partitions:
            chosen[topic_id] = StateTopic(topic.name, partitions)
    return chosen


def _offsets(
    partition: int, state: ShareState | KafkaError, end: int | None
) -> describe.DescribeShareGroupOffsetsResponsePartition:
    partition_response = describe.DescribeShareGroupOffsetsResponsePartition(partition_index=partition, lag=NO_LAG)
    if isinstance(state, KafkaError):
        partition_response.error_code, partition_response.error_message = state.code, str(state)
        partition_response.start_offset = UNINITIALIZED_START_OFFSET
        return partition_response
    partition_response.start_offset, partition_response.leader_epoch = state.start_offset, state.leader_epoch
    if end is not None and state.start_offset >= 0 and state.complete_count >= 0:
        partition_response.lag = max(end - state.start_offset - state.complete_count, 0)
    return partition_response
