"""Machine: the state of one classic group: its members, its generation, and queries about them (Kafka's ClassicGroup).

         first join            all joined / timeout              leader's assignment stored
  Empty ───────────► Preparing ─────────────────────► Completing ─────────────────────► Stable
    ▲                Rebalance ◄───────────────────── Rebalance                           │
    │                  │   ▲     join, leave, expiry                                      │
    └──────────────────┘   └──────────────────────────────────────────────────────────────┘
     no member rejoined                     join, leave, expiry

The log contains the generation, the members and the assignment of the last stable generation. The members that have
joined the current rebalance are volatile, exactly as in Kafka. So the object is changed in place, and a new coordinator
continues from the last stable generation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from enum import Enum
from typing import Final

from msgspec import Struct, field

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.rng import Rng, random_uuid
from barnabas.server.coordination.group.classic import consumer_protocol
from barnabas.server.coordination.group.records import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from barnabas.server.coordination.operation import CoordinatorRecord, ResponseFuture


class ClassicState(Enum):
    """The values are the names in DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY: Final = ClassicState.EMPTY
PREPARING: Final = ClassicState.PREPARING_REBALANCE
COMPLETING: Final = ClassicState.COMPLETING_REBALANCE
STABLE: Final = ClassicState.STABLE
DEAD: Final = ClassicState.DEAD

_FROM: Final = {
    EMPTY: (PREPARING,),
    PREPARING: (EMPTY, COMPLETING, STABLE),
    COMPLETING: (PREPARING,),
    STABLE: (COMPLETING,),
    DEAD: (EMPTY, PREPARING, COMPLETING, STABLE, DEAD),
}


class ClassicGroupMember(Struct):
    """A member of a classic group: a consumer, a Connect worker, or another client of the protocol."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: list[tuple[str, bytes]]
    """The name and metadata of each assignor that the member supports, in order of preference."""
    assignment: bytes = b""
    awaiting_join: ResponseFuture | None = None
    awaiting_sync: ResponseFuture | None = None
    is_new: bool = False
    """Whether the member has joined and its first rebalance is not complete."""

    def metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise AssertionError(f"member {self.member_id} does not support protocol {protocol}")

    def vote(self, candidates: Collection[str]) -> str:
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise AssertionError(f"member {self.member_id} supports none of the candidate protocols")

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Whether the member's session cannot expire now: a JoinGroup or SyncGroup request of the member is pending, so
        the member sends no heartbeats. The session of a member whose first rebalance is not complete can expire."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)


class ClassicGroup(Struct):
    """A classic group. The methods change members and generation; `rebalance` decides when."""

    group_id: str
    state: ClassicState = EMPTY
    previous_state: ClassicState = DEAD
    state_timestamp_ms: int | None = None
    generation_id: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str | None = None
    members: dict[str, ClassicGroupMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    """The member id of each static member, by its group.instance.id."""
    pending_join: dict[str, None] = field(default_factory=dict)
    """The member ids returned with MEMBER_ID_REQUIRED (KIP-394) that have not joined yet, in order. A dict serves as an
    ordered set."""
    pending_sync: dict[str, None] = field(default_factory=dict)
    """The members that have not sent SyncGroup for this generation yet, in order."""
    subscribed: frozenset[str] | None = None
    """The topics to which the consumers subscribe; None if unknown, or if the protocol is not "consumer"."""
    new_member_added: bool = False
    initial_remaining_ms: int | None = None
    """How much longer the initial rebalance may be delayed; None if the rebalance is not the initial one."""
    initial_delay_ms: int = 0
    reason: str = ""
    """The reason of the last rebalance, for ExplainGroup."""
    awaiting_join_count: int = 0
    supported: dict[str, int] = field(default_factory=dict)
    """The number of members that support each protocol."""

    # -- queries -------------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return self.state is EMPTY

    @property
    def is_simple(self) -> bool:
        """Whether the group has only offsets, committed by a consumer that assigns partitions manually."""
        return self.protocol_type is None and self.is_empty and not self.pending_join

    @property
    def is_consumer_protocol(self) -> bool:
        return self.protocol_type == consumer_protocol.PROTOCOL_TYPE

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        return not self.pending_join and self.awaiting_join_count == len(self.members)

    @property
    def can_rebalance(self) -> bool:
        return self.state in _FROM[PREPARING]

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to the topic. True for a group of consumers whose subscriptions cannot be
        parsed."""
        return self.is_consumer_protocol if self.subscribed is None else topic in self.subscribed

    def supports(self, protocol_type: str, protocols: Sequence[str]) -> bool:
        """Whether a member with these protocols may join: all members must support one of the protocols."""
        if self.state is EMPTY:
            return bool(protocol_type) and bool(protocols)
        return self.protocol_type == protocol_type and any(name in protocols for name in self._candidates())

    def select_protocol(self) -> str:
        """The protocol with the most votes. Each member votes for the first of its protocols that all members
        support."""
        candidates = self._candidates()
        votes: dict[str, int] = {}
        for member in self.members.values():
            vote = member.vote(candidates)
            votes[vote] = votes.get(vote, 0) + 1
        return max(votes, key=lambda name: votes[name])  # in a tie, the protocol with the earliest vote

    def _candidates(self) -> list[str]:
        member_count = len(self.members)
        return [name for name, count in self.supported.items() if count == member_count]

    def check_member(self, member_id: str, instance_id: str | None) -> ClassicGroupMember:
        """The member of a request. Raises KafkaError UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member has the
        instance id."""
        if instance_id is not None:
            owner = self.static_members.get(instance_id)
            if owner is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if owner != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    # -- changes -------------------------------------------------------------------------------------------------

    def transition(self, state: ClassicState, now_ms: int) -> None:
        assert self.state in _FROM[state], f"group {self.group_id} cannot change from {self.state} to {state}"
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    def new_member_id(self, client_id: str, instance_id: str | None, rng: Rng) -> str:
        return f"{client_id if instance_id is None else instance_id}-{random_uuid(rng)}"

    def add(self, member: ClassicGroupMember) -> None:
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members
            self.static_members[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count(member.protocols, 1)
        self.awaiting_join_count += member.awaiting_join is not None
        self.pending_join.pop(member.member_id, None)

    def update(self, member: ClassicGroupMember, protocols: list[tuple[str, bytes]]) -> None:
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)

    def set_join_future(self, member: ClassicGroupMember, future: ResponseFuture | None) -> ResponseFuture | None:
        """Set `future` as the pending JoinGroup response of a member; None means that no JoinGroup request is pending
        any longer. Returns the previous pending response."""
        before = member.awaiting_join
        member.awaiting_join = future
        self.awaiting_join_count += (future is not None) - (before is not None)
        return before

    def _count(self, protocols: list[tuple[str, bytes]], by: int) -> None:
        for name, _ in protocols:
            count = self.supported.get(name, 0) + by
            if count:
                self.supported[name] = count
            else:
                del self.supported[name]

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member.protocols, -1)
            self.awaiting_join_count -= member.awaiting_join is not None
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)
        if self.is_leader(member_id):
            self.leader_id = next(iter(self.members), None)
        self.pending_join.pop(member_id, None)
        self.pending_sync.pop(member_id, None)

    def replace_static_member(
        self, instance_id: str, old_id: str, new_id: str
    ) -> tuple[ClassicGroupMember, ClassicGroupMember]:
        """Replace the member of an instance id by one with a new member id (KIP-345). Returns the old member, which is
        fenced, and the new one."""
        old = self.members[old_id]
        new = ClassicGroupMember(
            new_id,
            instance_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            old.protocol_type,
            old.protocols,
            old.assignment,
        )
        # The new member has the old one's position, so that protocol votes and assignments do not change.
        self.members = {new_id if key == old_id else key: m for key, m in self.members.items()}
        self.members[new_id] = new
        if old_id in self.pending_sync:
            self.pending_sync = dict.fromkeys(new_id if key == old_id else key for key in self.pending_sync)
        if self.is_leader(old_id):
            self.leader_id = new_id
        self.static_members[instance_id] = new_id
        return old, new

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has rejoined; otherwise elect the first member that has. False if no member has
        rejoined."""
        leader = self.members.get(self.leader_id) if self.leader_id is not None else None
        if leader is None:
            return False
        if leader.awaiting_join is None:
            for member in self.members.values():
                if member.awaiting_join is not None:
                    self.leader_id = member.member_id
                    return True
            return False
        return True

    def next_generation(self, now_ms: int) -> None:
        self.generation_id += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed = self.compute_subscribed()
        self.transition(COMPLETING if self.members else EMPTY, now_ms)
        self.pending_sync.clear()

    def compute_subscribed(self) -> frozenset[str] | None:
        if not self.is_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        return consumer_protocol.subscribed_topics([m.metadata(self.protocol_name) for m in self.members.values()])

    # -- the log -------------------------------------------------------------------------------------------------

    def record(self, assignments: dict[str, bytes] | None = None) -> CoordinatorRecord:
        """The group's record, with the given assignments of the leader or else the current ones."""
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp=-1 if self.state_timestamp_ms is None else self.state_timestamp_ms,
            members=[
                MemberMetadata(
                    member_id=m.member_id,
                    group_instance_id=m.instance_id,
                    client_id=m.client_id,
                    client_host=m.client_host,
                    rebalance_timeout=m.rebalance_timeout_ms,
                    session_timeout=m.session_timeout_ms,
                    subscription=m.metadata(self.protocol_name),
                    assignment=m.assignment if assignments is None else assignments.get(m.member_id, b""),
                )
                for m in self.members.values()
            ],
        )
        return CoordinatorRecord(GroupMetadataKey(group=self.group_id), value)

    def empty_record(self) -> CoordinatorRecord:
        """The record of a new group without members. It is written before the first JoinGroup response with a member
        id, so that the group of that member exists."""
        timestamp = -1 if self.state_timestamp_ms is None else self.state_timestamp_ms
        value = GroupMetadataValue(protocol=None, leader=None, current_state_timestamp=timestamp)
        return CoordinatorRecord(GroupMetadataKey(group=self.group_id), value)

    def tombstones(self) -> Iterator[CoordinatorRecord]:
        yield CoordinatorRecord(GroupMetadataKey(group=self.group_id), None)


def from_record(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """The group of a record: stable if it has members, otherwise empty."""
    group = ClassicGroup(
        group_id,
        STABLE if value.members else EMPTY,
        state_timestamp_ms=None if value.current_state_timestamp == -1 else value.current_state_timestamp,
        generation_id=value.generation,
        protocol_type=value.protocol_type or None,
        protocol_name=value.protocol,
        leader_id=value.leader,
    )
    for m in value.members:
        group.add(
            ClassicGroupMember(
                m.member_id,
                m.group_instance_id,
                m.client_id,
                m.client_host,
                m.session_timeout if m.rebalance_timeout == -1 else m.rebalance_timeout,
                m.session_timeout,
                value.protocol_type,
                [(value.protocol or "", bytes(m.subscription))],
                bytes(m.assignment),
            )
        )
    group.subscribed = group.compute_subscribed()
    return group
