"""Shell: the group coordinator's calls for members: the classic protocol, and heartbeats of KIP-848."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.work import Pauses
from barnabas.protocol.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.protocol.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from barnabas.protocol.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.server.coordination.group.shards import GroupShards, check_group_id
from barnabas.server.coordination.group.subscriptions import sort_subscription
from barnabas.server.coordination.operation import WriteOperation
from barnabas.server.coordination.ports import GroupRequestContext

if TYPE_CHECKING:
    from barnabas.server.coordination.group.shard import GroupShard
    from barnabas.server.coordination.topic_regexes import TopicRegexes

_MEMBERS_AT_ONCE = 1_000
"""The number of members that one operation removes from a group."""


class MembershipCalls(GroupShards):
    """JoinGroup, SyncGroup, Heartbeat, LeaveGroup and ConsumerGroupHeartbeat."""

    _regexes: TopicRegexes | None = None

    async def join_group(self, ctx: GroupRequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
        config = self._config
        try:
            check_group_id(request.group_id)
            shortest, longest = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
            if not shortest <= request.session_timeout_ms <= longest:
                raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
            response = await self.write(
                request.group_id, lambda shard, op: shard.join_group(op, ctx, request), may_defer=True
            )
        except KafkaError as error:
            response = JoinGroupResponse(error_code=error.code, member_id=request.member_id)
        if response.error_code:
            response.protocol_name = None
        if ctx.api_version < 7 and response.protocol_name is None:
            response.protocol_name = ""
        return response

    async def sync_group(self, ctx: GroupRequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
        try:
            if ctx.api_version >= 5 and (request.protocol_type is None or request.protocol_name is None):
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)  # both are mandatory since KIP-559
            check_group_id(request.group_id)
            return await self.write(
                request.group_id, lambda shard, op: shard.sync_group(op, ctx, request), may_defer=True
            )
        except KafkaError as error:
            return SyncGroupResponse(error_code=error.code)

    async def heartbeat(self, ctx: GroupRequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        try:
            check_group_id(request.group_id)
            return await self.write(request.group_id, lambda shard, op: shard.heartbeat(op, ctx, request))
        except KafkaError as error:
            if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return HeartbeatResponse()  # as in Kafka: the member's session timeout starts when loading completes
            return HeartbeatResponse(error_code=error.code)

    async def leave_group(self, ctx: GroupRequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
        single = ctx.api_version < 3
        if single:
            request = LeaveGroupRequest(
                group_id=request.group_id, members=[MemberIdentity(member_id=request.member_id)]
            )
        try:
            check_group_id(request.group_id)
            response = await self._leave(ctx, request)
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_MEMBER_ID or single:
                return LeaveGroupResponse(error_code=error.code)
            return LeaveGroupResponse(
                members=[
                    MemberResponse(member_id=m.member_id, group_instance_id=m.group_instance_id, error_code=error.code)
                    for m in request.members
                ]
            )
        if single:
            return LeaveGroupResponse(error_code=response.members[0].error_code)
        return response

    async def _leave(self, ctx: GroupRequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
        """Remove the members, at most _MEMBERS_AT_ONCE in one operation. Raises KafkaError."""
        response = LeaveGroupResponse()
        pauses = Pauses()
        for start in range(0, max(len(request.members), 1), _MEMBERS_AT_ONCE):
            part = LeaveGroupRequest(
                group_id=request.group_id, members=request.members[start : start + _MEMBERS_AT_ONCE]
            )
            leave: Callable[[GroupShard, WriteOperation], LeaveGroupResponse] = partial(_leave_part, ctx, part)
            response.members += (await self.write(request.group_id, leave)).members
            await pauses.after(len(part.members))
        return response

    async def consumer_group_heartbeat(
        self, ctx: GroupRequestContext, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse:
        try:
            await self._prepare_regexes(request)
            if request.subscribed_topic_names is not None:
                request.subscribed_topic_names = await sort_subscription(request.subscribed_topic_names)
            return await self.write(
                request.group_id, lambda shard, op: shard.consumer_group_heartbeat(op, ctx, request)
            )
        except KafkaError as error:
            return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=str(error))

    async def _prepare_regexes(self, request: ConsumerGroupHeartbeatRequest) -> None:
        """Match the topics with the regular expressions that the heartbeat may need: that of the request, and, after a
        change of the topics, those of the whole group. Raises KafkaError."""
        shard = self.context(request.group_id).shard
        patterns = shard.regexes_of(request.group_id)
        if request.subscribed_topic_regex:
            patterns.add(request.subscribed_topic_regex)
        while patterns:
            if self._regexes is None:
                from barnabas.server.coordination.topic_regexes import TopicRegexes

                self._regexes = TopicRegexes()
            topics = self._topics
            await self._regexes.prepare(topics, sorted(patterns))
            if topics is self._topics:
                return


def _leave_part(
    ctx: GroupRequestContext, request: LeaveGroupRequest, shard: GroupShard, op: WriteOperation
) -> LeaveGroupResponse:
    return shard.leave_group(op, ctx, request)
