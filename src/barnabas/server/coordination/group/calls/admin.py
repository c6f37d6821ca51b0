"""Shell: the group coordinator's calls of administrators: describe, list, delete and explain groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.work import Pauses
from barnabas.protocol.wire.messages import consumer_group_describe as described_consumers
from barnabas.protocol.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from barnabas.protocol.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from barnabas.protocol.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from barnabas.protocol.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from barnabas.server.coordination.errors import error_for_client
from barnabas.server.coordination.group.shards import GroupShards
from barnabas.server.coordination.operation import WriteOperation
from barnabas.server.coordination.ports import GroupRequestContext

if TYPE_CHECKING:
    from barnabas.protocol.wire.messages.explain_group import ExplainGroupRequest, ExplainGroupResponse
    from barnabas.server.coordination.group.shard import GroupShard

_GROUPS_AT_ONCE = 100
"""The number of groups that one operation deletes: each is deleted or rejected by itself."""


class AdminCalls(GroupShards):
    """DescribeGroups, ConsumerGroupDescribe, ListGroups, DeleteGroups and ExplainGroup."""

    async def describe_groups(self, ctx: GroupRequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
        described = []
        pauses = Pauses()
        for group_id in request.groups:
            await pauses.after(1)
            describe = partial(_describe, group_id, ctx.api_version)
            try:
                described.append(self.read(group_id, describe))
            except KafkaError as error:
                described.append(DescribedGroup(group_id=group_id, error_code=error.code))
        return DescribeGroupsResponse(groups=described)

    async def consumer_group_describe(
        self, ctx: GroupRequestContext, request: ConsumerGroupDescribeRequest
    ) -> ConsumerGroupDescribeResponse:
        described = []
        pauses = Pauses()
        for group_id in request.group_ids:
            await pauses.after(1)
            try:
                described.append(self.read(group_id, partial(_describe_consumers, group_id)))
            except KafkaError as error:
                described.append(
                    described_consumers.DescribedGroup(
                        group_id=group_id, error_code=error.code, error_message=str(error)
                    )
                )
        return ConsumerGroupDescribeResponse(groups=described)

    async def list_groups(self, ctx: GroupRequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
        if self._runtime.is_loading:
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        states = frozenset(state.lower() for state in request.states_filter)
        types = frozenset(kind.lower() for kind in request.types_filter)
        listed: list[ListedGroup] = []
        pauses = Pauses()
        for _, shard in list(self._runtime.active()):
            listed.extend(shard.admin.list_groups(states, types))
            await pauses.after(1 + len(shard.table.by_id) // 5)
        return ListGroupsResponse(groups=listed)

    async def delete_groups(self, ctx: GroupRequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        by_partition: dict[int, list[str]] = {}
        results: dict[str, DeletableGroupResult] = {}
        pauses = Pauses()
        for group_id in dict.fromkeys(request.groups_names):
            await pauses.after(1)
            try:
                by_partition.setdefault(self.partition_for(group_id), []).append(group_id)
            except KafkaError as error:
                results[group_id] = DeletableGroupResult(group_id=group_id, error_code=error.code)
        parts = [
            (partition, group_ids[start : start + _GROUPS_AT_ONCE])
            for partition, group_ids in by_partition.items()
            for start in range(0, len(group_ids), _GROUPS_AT_ONCE)
        ]
        for partition, group_ids in parts:
            await pauses.after(len(group_ids))
            delete: Callable[[GroupShard, WriteOperation], list[DeletableGroupResult]] = partial(_delete, group_ids)
            try:
                deleted = await self._runtime.write(partition, delete)
            except KafkaError as error:
                deleted = [DeletableGroupResult(group_id=g, error_code=error.code) for g in group_ids]
            results.update((result.group_id, result) for result in deleted)
        return DeleteGroupsResponse(results=[results[group_id] for group_id in dict.fromkeys(request.groups_names)])

    async def explain_group(self, ctx: GroupRequestContext, request: ExplainGroupRequest) -> ExplainGroupResponse:
        from barnabas.protocol.wire.messages.explain_group import (  # imported here because a broker starts without it
            ExplainedGroup,
            ExplainGroupResponse,
        )
        from barnabas.server.coordination.group.explain import explain

        explained = []
        pauses = Pauses()
        for group_id in request.group_ids:
            await pauses.after(1)
            try:
                context = self.context(group_id)
                shard, remaining_ms = context.shard, context.timers.remaining_ms
                explained.append(
                    explain(shard.table, shard.offsets, shard.topics, group_id, remaining_ms, self._clock.now_ms())
                )
            except KafkaError as error:
                code = error_for_client(error.code)
                explained.append(ExplainedGroup(group_id=group_id, error_code=code, error_message=str(error)))
        return ExplainGroupResponse(groups=explained)


def _describe(group_id: str, api_version: int, shard: GroupShard) -> DescribedGroup:
    return shard.admin.describe_group(group_id, api_version)


def _describe_consumers(group_id: str, shard: GroupShard) -> described_consumers.DescribedGroup:
    return shard.admin.describe_consumer_group(group_id)


def _delete(group_ids: Sequence[str], shard: GroupShard, op: WriteOperation) -> list[DeletableGroupResult]:
    return shard.admin.delete_groups(op, group_ids)
