"""Machine: one member of a classic consumer group (JoinGroup, SyncGroup, Heartbeat, LeaveGroup).

    UNJOINED ──join──▶ JOINING ──answer──▶ SYNCING ──answer──▶ STABLE
        ▲                 │                    │                  │  heartbeat: REBALANCE_IN_PROGRESS,
        └──── again ──────┴────── again ───────┴──────────────────┘  topics changed, or an unknown member

A method that handles a response returns the next step as a value: join again, sync, lead (compute the assignment
first), assigned, or failed. With an *eager* assignor a member revokes all partitions before it joins. With a
*cooperative* one (KIP-429) a member keeps its partitions, revokes only those that move to another member, and then
joins once more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from barnabas.client.membership.subscriptions import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from barnabas.core.errors import ErrorCode, KafkaError, error_code
from barnabas.core.ids import TopicPartition
from barnabas.protocol.assign.member import Assignor, MemberSubscription, Topics
from barnabas.protocol.wire.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.protocol.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

PROTOCOL_TYPE = "consumer"
NO_GENERATION = -1


class MemberState(Enum):
    UNJOINED = "unjoined"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"


@dataclass(frozen=True, slots=True)
class MembershipConfig:
    """The consumer's configs of group membership."""

    group_id: str
    group_instance_id: str | None = None
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    rack: str | None = None
    protocol_type: str = PROTOCOL_TYPE
    """Groups of other programs than consumers, such as workers that share connectors, have a type of their own."""


@dataclass(frozen=True, slots=True)
class JoinAgain:
    """Join again, after a back-off if `wait` is set. `lost`: other members may own the partitions already."""

    wait: bool = False
    lost: bool = False
    find_coordinator: bool = False


@dataclass(frozen=True, slots=True)
class Lead:
    """This member leads the group: `lead` builds the SyncGroup request from the partition counts of `topics`."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class SendSync:
    """Send this request, and pass its response to `on_sync`."""

    request: SyncGroupRequest


@dataclass(frozen=True, slots=True)
class Assigned:
    """The group is stable: the partitions to revoke, the new ones, and whether to join again at once (cooperative)."""

    partitions: frozenset[TopicPartition]
    revoked: frozenset[TopicPartition]
    added: frozenset[TopicPartition]
    rejoin: bool


@dataclass(frozen=True, slots=True)
class MembershipFailed:
    """The group rejects this member for good."""

    error: KafkaError


class ClassicMember:
    """One member of a classic group. `owned` has the partitions of the last assignment, of which `ClassicCoordinator`
    then notifies the rebalance listener."""

    def __init__(self, options: MembershipConfig, assignors: Sequence[Assignor]) -> None:
        assert assignors
        self.options = options
        self.assignors = {assignor.name: assignor for assignor in assignors}
        self.cooperative = all(assignor.is_cooperative for assignor in assignors)
        """The protocol is cooperative only if every assignor is (ConsumerCoordinator's highest common protocol)."""
        self.state = MemberState.UNJOINED
        self.member_id = ""
        self.generation_id = NO_GENERATION
        self.protocol: str | None = None
        self.owned: frozenset[TopicPartition] = frozenset()
        self.wants_to_join = True
        self.topics: tuple[str, ...] = ()
        self._members: dict[str, MemberSubscription] = {}
        self._synced_topics: tuple[str, ...] = ()
        self._remembered: tuple[TopicPartition, ...] = ()
        self._remembered_generation = NO_GENERATION

    # -- what to send ----------------------------------------------------------------------------------------------

    def revoke_before_join(self) -> frozenset[TopicPartition]:
        """The partitions to revoke before joining: all (eager), or those no longer subscribed (cooperative)."""
        if not self.cooperative:
            return self.owned
        return frozenset(p for p in self.owned if p.topic not in self.topics)

    def join_request(self, reason: str | None = None) -> JoinGroupRequest:
        self.state = MemberState.JOINING
        self.wants_to_join = False
        self._synced_topics = self.topics
        return JoinGroupRequest(
            group_id=self.options.group_id,
            session_timeout_ms=self.options.session_timeout_ms,
            rebalance_timeout_ms=self.options.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.options.group_instance_id,
            protocol_type=self.options.protocol_type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=encode_subscription(self._subscription(assignor)))
                for name, assignor in self.assignors.items()
            ],
            reason=reason,
        )

    def _subscription(self, assignor: Assignor) -> MemberSubscription:
        """The subscription for the group's leader. Sticky assignors get the last assignment, even if it is lost."""
        owned = tuple(sorted(self.owned)) if self.cooperative else ()
        generation = None if self.generation_id < 0 else self.generation_id
        user_data = assignor.user_data(self._remembered, self._remembered_generation)
        return MemberSubscription(
            self.topics, owned, generation, self.options.group_instance_id, self.options.rack, user_data
        )

    def heartbeat_request(self) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self.options.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.options.group_instance_id,
        )

    def leave_request(self, version: int, reason: str) -> LeaveGroupRequest:
        if version < 3:
            return LeaveGroupRequest(group_id=self.options.group_id, member_id=self.member_id)
        identity = MemberIdentity(
            member_id=self.member_id, group_instance_id=self.options.group_instance_id, reason=reason
        )
        return LeaveGroupRequest(group_id=self.options.group_id, members=[identity])

    # -- responses ------------------------------------------------------------------------------------------------

    def on_join(self, response: JoinGroupResponse) -> SendSync | Lead | JoinAgain | MembershipFailed:
        code = error_code(response.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            self.state = MemberState.UNJOINED
            self.wants_to_join = True
            return JoinAgain()
        if code is not ErrorCode.NONE:
            return self._refused(code)
        self.member_id = response.member_id
        self.generation_id = response.generation_id
        self.protocol = response.protocol_name
        self.state = MemberState.SYNCING
        if response.leader != self.member_id or response.skip_assignment:
            return SendSync(self._sync_request({}))
        self._members = {m.member_id: decode_subscription(m.metadata, m.group_instance_id) for m in response.members}
        return Lead(frozenset(topic for member in self._members.values() for topic in member.topics))

    def lead(self, partition_counts: Mapping[str, int]) -> SendSync | MembershipFailed:
        """Compute the assignment of all members, as the leader."""
        assignor = self.assignors.get(self.protocol or "")
        if assignor is None:
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            return MembershipFailed(
                KafkaError(error, f"The group chose the assignor {self.protocol!r}, which we do not have.")
            )
        assignments = assignor.assign(Topics(partition_counts), self._members)
        self._members = {}
        return SendSync(self._sync_request({member: encode_assignment(got) for member, got in assignments.items()}))

    def _sync_request(self, assignments: Mapping[str, bytes]) -> SyncGroupRequest:
        return SyncGroupRequest(
            group_id=self.options.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.options.group_instance_id,
            protocol_type=self.options.protocol_type,
            protocol_name=self.protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=data)
                for member, data in sorted(assignments.items())
            ],
        )

    def on_sync(self, response: SyncGroupResponse) -> Assigned | JoinAgain | MembershipFailed:
        code = error_code(response.error_code)
        if code is not ErrorCode.NONE:
            return self._refused(code)
        self.state = MemberState.STABLE
        partitions = frozenset(decode_assignment(response.assignment))
        revoked = self.owned - partitions
        added = partitions - self.owned
        rejoin = self.cooperative and bool(revoked)
        self.owned = partitions
        self._remembered = tuple(sorted(partitions))
        self._remembered_generation = self.generation_id
        self.wants_to_join = rejoin or self.topics != self._synced_topics
        return Assigned(partitions, revoked, added, rejoin)

    def on_heartbeat(self, code: ErrorCode) -> JoinAgain | MembershipFailed | None:
        """Handle a heartbeat response. Returns None if there is no error."""
        if code is ErrorCode.NONE:
            return None
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            if self.state is MemberState.STABLE:
                self.wants_to_join = True
            return JoinAgain()
        return self._refused(code)

    def on_topics(self, topics: Sequence[str]) -> None:
        """Set the subscribed topics, or those that match the pattern. If they have changed, a join becomes due."""
        ordered = tuple(sorted(topics))
        if ordered != self.topics:
            self.topics = ordered
            self.wants_to_join = True

    def request_rejoin(self) -> None:
        self.wants_to_join = True

    def on_disconnected(self) -> JoinAgain:
        """The connection to the coordinator broke during a join: join again with the next coordinator."""
        self.state = MemberState.UNJOINED
        self.wants_to_join = True
        return JoinAgain(wait=True, find_coordinator=True)

    def forget(self) -> None:
        """Reset the state after this member has left or was fenced."""
        self.state = MemberState.UNJOINED
        self.generation_id = NO_GENERATION
        self.member_id = ""
        self.wants_to_join = True

    def _refused(self, code: ErrorCode) -> JoinAgain | MembershipFailed:
        self.wants_to_join = True
        self.state = MemberState.UNJOINED
        match code:
            case ErrorCode.REBALANCE_IN_PROGRESS:
                return JoinAgain()
            case ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return JoinAgain(wait=True)
            case ErrorCode.COORDINATOR_NOT_AVAILABLE | ErrorCode.NOT_COORDINATOR:
                return JoinAgain(wait=True, find_coordinator=True)
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self.forget()
                return JoinAgain(lost=True)
            case ErrorCode.ILLEGAL_GENERATION:
                self.generation_id = NO_GENERATION
                return JoinAgain(lost=True)
            case ErrorCode.FENCED_INSTANCE_ID:
                return MembershipFailed(
                    KafkaError(
                        code,
                        f"Another consumer with group.instance.id {self.options.group_instance_id!r} has joined; every"
                        " running member needs an id of its own.",
                    )
                )
            case ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
                return MembershipFailed(
                    KafkaError(
                        code,
                        f"The members of group {self.options.group_id!r} share no assignor with this one"
                        f" ({', '.join(self.assignors)}), or it is no consumer group. Set partition.assignment.strategy"
                        " to what the others use.",
                    )
                )
            case _:
                return MembershipFailed(KafkaError(code, f"Group {self.options.group_id!r}: {code.message}"))
