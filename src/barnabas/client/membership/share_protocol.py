"""Machine: one member of a share group (KIP-932). Heartbeat responses carry the assignment, which takes effect at once.

A partition of a share group may be assigned to several members, so that a member neither revokes partitions nor
acknowledges assignments. The leader of the share partition, not the group, locks the acquired records of a member.
"""

from __future__ import annotations

from typing import Final

from barnabas.client.membership.classic import MembershipFailed
from barnabas.client.membership.consumer_protocol import JOIN_EPOCH, LEAVE_EPOCH, PartitionsLost, Step, Wait
from barnabas.core.errors import ErrorCode, KafkaError, error_code
from barnabas.core.ids import TopicIdPartition
from barnabas.protocol.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

_COORDINATOR_MOVED: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
_GIVEN_UP: Final = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)


class ShareMember:
    """The state machine of one member. Without subscribed topics the member does not join the group."""

    def __init__(self, group_id: str, member_id: str, rack: str | None = None) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.rack = rack
        self.epoch = JOIN_EPOCH
        self.topics: tuple[str, ...] = ()
        self.assigned: frozenset[TopicIdPartition] = frozenset()
        self.heartbeat_interval_ms = 0
        self.failed = False
        self._told: tuple[str, ...] | None = None
        self._in_flight: tuple[str, ...] = ()

    @property
    def heartbeats(self) -> bool:
        return bool(self.topics) and not self.failed

    @property
    def is_urgent(self) -> bool:
        return self.heartbeats and self._told != self.topics

    def subscribe(self, topics: tuple[str, ...]) -> None:
        self.topics = tuple(sorted(topics))

    def heartbeat(self) -> ShareGroupHeartbeatRequest:
        request = ShareGroupHeartbeatRequest(group_id=self.group_id, member_id=self.member_id, member_epoch=self.epoch)
        if self._told != self.topics:
            request.subscribed_topic_names = list(self.topics)
        if self._told is None:
            request.rack_id = self.rack
        self._in_flight = self.topics
        return request

    def leave(self) -> ShareGroupHeartbeatRequest | None:
        """The last heartbeat; None without membership."""
        joined = self.epoch > JOIN_EPOCH and not self.failed
        self._begin_again()
        self.topics = ()
        if not joined:
            return None
        return ShareGroupHeartbeatRequest(group_id=self.group_id, member_id=self.member_id, member_epoch=LEAVE_EPOCH)

    def on_unanswered(self) -> None:
        self._told = None

    def on_heartbeat(self, response: ShareGroupHeartbeatResponse) -> Step:
        """Handle a heartbeat response. Returns `PartitionsLost` if the member was fenced; the next heartbeat then joins
        again."""
        code = error_code(response.error_code)
        if code is ErrorCode.NONE:
            self._told = self._in_flight
            self.epoch = response.member_epoch
            self.heartbeat_interval_ms = response.heartbeat_interval_ms
            if response.assignment is not None:
                self.assigned = frozenset(
                    TopicIdPartition(topic.topic_id, partition)
                    for topic in response.assignment.topic_partitions
                    for partition in topic.partitions
                )
            return None
        self._told = None
        if code in _COORDINATOR_MOVED:
            return Wait(find_coordinator=True)
        if code in _GIVEN_UP:
            self._begin_again()
            return PartitionsLost()
        if code.retriable:
            return Wait()
        self.failed = code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED
        message = response.error_message or code.message
        return MembershipFailed(KafkaError(code, f"Share group {self.group_id!r}: {message}"))

    def _begin_again(self) -> None:
        self.epoch = JOIN_EPOCH
        self.assigned = frozenset()
        self._told = None
