"""Machine: the "roundrobin" assignor: all partitions in order, each to the next member that subscribes to its topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.core.ids import TopicPartition
from barnabas.protocol.assign.member import Assignment, MemberSubscription, Topics, sorted_members


class RoundRobinAssignor:
    name = "roundrobin"
    is_cooperative = False

    def user_data(self, owned: Iterable[TopicPartition], generation: int) -> None:
        return None

    def assign(self, topics: Topics, members: Mapping[str, MemberSubscription]) -> Assignment:
        assignment: Assignment = {member_id: [] for member_id in members}
        ring = sorted_members(members)
        wanted = {member_id: frozenset(members[member_id].topics) for member_id in members}
        subscribed = frozenset[str]().union(*wanted.values())
        turn = 0
        for topic in sorted(subscribed & topics.partitions.keys()):
            for p in range(topics.partitions[topic]):
                while topic not in wanted[ring[turn]]:
                    turn = (turn + 1) % len(ring)
                assignment[ring[turn]].append(TopicPartition(topic, p))
                turn = (turn + 1) % len(ring)
        return assignment
