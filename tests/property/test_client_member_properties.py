"""Members of the new protocol and a coordinator in small: whatever is lost on the way, nobody owns what another has.

The coordinator is KIP-848 in forty lines: a member keeps what it was granted until it says that it has let go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.membership.classic import MembershipConfig
from barnabas.client.membership.consumer_protocol import ConsumerMember, PartitionsLost, Phase
from barnabas.core.errors import ErrorCode
from barnabas.core.ids import TopicIdPartition
from barnabas.protocol.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

TOPIC = UUID(int=7)
NAMES = {TOPIC: "t"}
ALL = [TopicIdPartition(TOPIC, index) for index in range(5)]


@dataclass
class Seat:
    """What the coordinator knows of a member."""

    epoch: int = 0
    granted: set[TopicIdPartition] = field(default_factory=set)
    releasing: set[TopicIdPartition] = field(default_factory=set)


class Coordinator:
    def __init__(self) -> None:
        self.epoch = 0
        self.seats: dict[str, Seat] = {}

    def target(self, member_id: str) -> set[TopicIdPartition]:
        order = sorted(self.seats)
        return {p for place, p in enumerate(ALL) if order[place % len(order)] == member_id}

    def remove(self, member_id: str) -> None:
        if self.seats.pop(member_id, None) is not None:
            self.epoch += 1

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        name, owned = request.member_id, request.topic_partitions
        if request.member_epoch < 0:
            self.remove(name)
            return ConsumerGroupHeartbeatResponse(member_id=name, member_epoch=request.member_epoch)
        seat = self.seats.get(name)
        if request.member_epoch == 0:
            assert owned == [] and request.subscribed_topic_names == ["t"] and request.rebalance_timeout_ms > 0
            seat = self.seats[name] = Seat()
            self.epoch += 1
        elif seat is None:
            return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        elif request.member_epoch > seat.epoch:
            return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.FENCED_MEMBER_EPOCH)
        if owned is not None:
            said = {TopicIdPartition(topic.topic_id, index) for topic in owned for index in topic.partitions}
            seat.releasing &= said
        before = set(seat.granted)
        target = self.target(name)
        seat.releasing |= seat.granted - target
        seat.granted &= target
        if not seat.releasing:
            seat.epoch = self.epoch
            taken = {p for other, s in self.seats.items() if other != name for p in s.granted | s.releasing}
            seat.granted |= target - taken
        assignment = None
        if seat.granted != before or owned is not None:
            indexes = sorted(p.partition for p in seat.granted)
            assignment = Assignment(topic_partitions=[TopicPartitions(topic_id=TOPIC, partitions=indexes)])
        return ConsumerGroupHeartbeatResponse(
            member_id=name, member_epoch=seat.epoch, heartbeat_interval_ms=5_000, assignment=assignment
        )


class World:
    def __init__(self) -> None:
        self.coordinator = Coordinator()
        self.members = [ConsumerMember(MembershipConfig("g"), f"m{n}") for n in range(3)]
        self.busy: dict[int, Any] = {}
        """Members whose listener is at work."""

    def beat(self, number: int, lost: str = "nothing") -> None:
        member = self.members[number]
        if not member.heartbeats:
            return
        request = member.heartbeat()
        response = None if lost == "request" else self.coordinator.heartbeat(request)
        if response is None or lost == "response":
            member.on_unanswered()
        elif isinstance(member.on_heartbeat(response), PartitionsLost):
            self.busy.pop(number, None)

    def poll(self, number: int) -> None:
        """One step of what the shell does in `poll`; a listener takes a step of its own."""
        member = self.members[number]
        member.subscribe(["t"])
        step = self.busy.pop(number, None)
        if step is not None and member.is_current(step):
            member.on_revoked(step)
            member.on_assigned(step)
            member.on_reconciled()
        elif member.phase in (Phase.FENCED, Phase.STALE):
            member.rejoin()
        elif (begun := member.reconcile(NAMES)) is not None:
            self.busy[number] = begun

    def leave(self, number: int) -> None:
        self.busy.pop(number, None)
        request = self.members[number].leave()
        if request is not None:
            self.coordinator.heartbeat(request)

    def check(self) -> None:
        """Members that the coordinator knows own nothing in common, and nothing that it has not granted."""
        seen: set[TopicIdPartition] = set()
        for member in self.members:
            seat = self.coordinator.seats.get(member.member_id)
            if seat is None or not member.is_member:
                continue
            if member.epoch == 0 or seat.epoch < member.epoch:
                continue  # it is fenced, and will hear of it
            owned = set(member.owned)
            assert owned <= seat.granted | seat.releasing
            assert not owned & seen
            seen |= owned


ACTIONS = st.one_of(
    st.tuples(st.just("beat"), st.integers(0, 2), st.sampled_from(["nothing", "nothing", "request", "response"])),
    st.tuples(st.just("poll"), st.integers(0, 2), st.just("")),
    st.tuples(st.just("poll"), st.integers(0, 2), st.just("")),
    st.tuples(st.sampled_from(["leave", "expire"]), st.integers(0, 2), st.just("")),
)


@given(st.lists(ACTIONS, max_size=80))
@settings(deadline=None, max_examples=300)
def test_nobody_owns_what_another_has_and_all_is_owned_in_the_end(actions: list[tuple[str, int, str]]) -> None:
    world = World()
    for action, number, lost in actions:
        match action:
            case "beat":
                world.beat(number, lost)
            case "poll":
                world.poll(number)
            case "leave":
                world.leave(number)
            case _:
                world.coordinator.remove(world.members[number].member_id)
        world.check()
    for _ in range(30):
        for number in range(3):
            world.poll(number)
            world.beat(number)
            world.check()
    assert all(member.phase is Phase.STABLE for member in world.members)
    assert sorted(p for member in world.members for p in member.owned) == ALL
