"""Machine: the "range" assignor: topic by topic, each member gets a range of consecutive partitions.

    3 members, 7 partitions:  [0 1 2] [3 4] [5 6]

The same partition numbers of topics with equally many partitions go to the same member, so that the member can join
them. With racks (KIP-881) a first pass assigns partitions to members in the same rack, for all such topics together,
and the ranges divide the remaining partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.core.ids import TopicPartition
from barnabas.protocol.assign.member import (
    Assignment,
    MemberSubscription,
    Topics,
    java_order,
    sorted_members,
    uses_racks,
)


class RangeAssignor:
    name = "range"
    is_cooperative = False

    def user_data(self, owned: Iterable[TopicPartition], generation: int) -> None:
        return None

    def assign(self, topics: Topics, members: Mapping[str, MemberSubscription]) -> Assignment:
        assignment: Assignment = {member_id: [] for member_id in members}
        ranked = sorted_members(members)
        states = []
        for topic in java_order(topics.partitions):
            consumers = tuple(member_id for member_id in ranked if topic in members[member_id].topics)
            if consumers and topics.partitions[topic]:
                states.append(_TopicState(topic, topics, consumers, members, assignment))
        near = any(state.uses_racks for state in states)
        if near:
            _assign_near(states)
        for state in states:
            state.assign_ranges(near=False)
        if near:
            for partitions in assignment.values():
                partitions.sort()
        return assignment


class _TopicState:
    """The state of one topic during the assignment."""

    def __init__(
        self,
        topic: str,
        topics: Topics,
        consumers: tuple[str, ...],
        members: Mapping[str, MemberSubscription],
        assignment: Assignment,
    ) -> None:
        self.topic = topic
        self.consumers = consumers
        self.assignment = assignment
        self.left = dict.fromkeys(TopicPartition(topic, p) for p in range(topics.partitions[topic]))
        self.quota, self.extras = divmod(len(self.left), len(consumers))
        self.count = dict.fromkeys(consumers, 0)
        self.member_racks = {c: rack for c in consumers if (rack := members[c].rack)}
        self.racks = {tp: topics.racks_of(tp) for tp in self.left} if self.member_racks else {}
        self.uses_racks = uses_racks(self.member_racks.values(), self.racks)

    def is_near(self, consumer: str, partition: TopicPartition) -> bool:
        rack = self.member_racks.get(consumer)
        return rack is None or rack in self.racks.get(partition, ())

    def room(self, consumer: str) -> int:
        """How many more partitions the consumer may get: its quota, plus one extra while there are any."""
        return max(0, self.quota + (self.extras > 0) - self.count[consumer])

    def give(self, consumer: str, partitions: list[TopicPartition]) -> None:
        self.assignment[consumer].extend(partitions)
        self.count[consumer] += len(partitions)
        if self.count[consumer] > self.quota:
            self.extras -= 1
        for partition in partitions:
            del self.left[partition]

    def assign_ranges(self, *, near: bool) -> None:
        for consumer in self.consumers:
            room = self.room(consumer)
            fitting = [tp for tp in self.left if not near or self.is_near(consumer, tp)][:room]
            if fitting:
                self.give(consumer, fitting)


def _assign_near(states: list[_TopicState]) -> None:
    """The pass for racks: assign partitions to members in a rack that has a replica, as far as possible.

    Members without a rack may get every partition. Topics with the same members and equally many partitions are
    assigned together, so that members can join them.
    """
    alike: dict[tuple[tuple[str, ...], int], list[_TopicState]] = {}
    for state in states:
        alike.setdefault((state.consumers, len(state.racks)), []).append(state)
    for (consumers, partitions), together in alike.items():
        if len(together) > 1:
            _assign_near_together(together, consumers, partitions)
        elif together[0].uses_racks:
            together[0].assign_ranges(near=True)


def _assign_near_together(states: list[_TopicState], consumers: tuple[str, ...], partitions: int) -> None:
    remaining = list(consumers)
    for p in range(partitions):
        for consumer in remaining:
            if all(s.is_near(consumer, TopicPartition(s.topic, p)) and s.room(consumer) for s in states):
                for state in states:
                    state.give(consumer, [TopicPartition(state.topic, p)])
                if not any(state.room(consumer) for state in states):
                    remaining.remove(consumer)
                break
        if not remaining:
            break
