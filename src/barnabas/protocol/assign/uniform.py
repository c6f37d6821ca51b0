"""Machine: the server's "uniform" assignor: loads as equal as the subscriptions permit, with few moves.

    1  each member keeps its previous partitions of subscribed topics; with equal subscriptions, up to its share
    2  each free partition goes to the subscribed member with the fewest partitions, topics with few subscribers first
    3  with different subscriptions, single partitions move to members with fewer, until no move improves the balance

Each move reduces the difference between two members, so that the third step ends.
"""

from __future__ import annotations

from heapq import heapify, heapreplace

from barnabas.core.ids import TopicId, sorted_ids
from barnabas.protocol.assign.server import GroupSpec, Partitions

Partition = tuple[TopicId, int]


class UniformAssignor:
    name = "uniform"

    def assign(self, group: GroupSpec) -> dict[str, Partitions]:
        if not group.members:
            return {}
        held = _keep(group)
        taken = {partition for partitions in held.values() for partition in partitions}
        wanted_by = {
            topic_id: [m for m in sorted(group.members) if topic_id in group.members[m].topics]
            for topic_id in sorted_ids(group.topics)
        }
        free = [
            (topic_id, p)
            for topic_id in sorted(wanted_by, key=lambda topic_id: (len(wanted_by[topic_id]), topic_id.int))
            for p in range(group.topics[topic_id])
            if wanted_by[topic_id] and (topic_id, p) not in taken
        ]
        if group.is_homogeneous:
            _deal_alike(held, free)
        else:
            _deal(held, free, wanted_by)
            _level(held, wanted_by)
        return {member_id: _by_topic(partitions) for member_id, partitions in held.items()}


def _keep(group: GroupSpec) -> dict[str, list[Partition]]:
    """The previous partitions of subscribed topics that each member may keep."""
    held: dict[str, list[Partition]] = {}
    for member_id in sorted(group.members):
        member = group.members[member_id]
        held[member_id] = [
            (topic_id, p)
            for topic_id in sorted_ids(member.assigned)
            if topic_id in member.topics
            for p in sorted(member.assigned[topic_id])
            if p < group.topics.get(topic_id, 0)
        ]
    if group.is_homogeneous:
        wanted = next(iter(group.members.values())).topics
        total = sum(count for topic_id, count in group.topics.items() if topic_id in wanted)
        quota, extras = divmod(total, len(held))
        # The members with the most partitions keep the extra ones, so that fewer partitions move.
        for rank, member_id in enumerate(sorted(held, key=lambda m: (-len(held[m]), m))):
            del held[member_id][quota + (rank < extras) :]
    return held


def _deal_alike(held: dict[str, list[Partition]], free: list[Partition]) -> None:
    """Assign free partitions, with equal subscriptions: each to the member with the fewest."""
    heap = [(len(partitions), member_id) for member_id, partitions in held.items()]
    heapify(heap)
    for partition in free:
        load, member_id = heap[0]
        held[member_id].append(partition)
        heapreplace(heap, (load + 1, member_id))


def _deal(held: dict[str, list[Partition]], free: list[Partition], wanted_by: dict[TopicId, list[str]]) -> None:
    load = {member_id: len(partitions) for member_id, partitions in held.items()}
    for partition in free:
        poorest = min(wanted_by[partition[0]], key=load.__getitem__)  # the first of several: they are in order
        held[poorest].append(partition)
        load[poorest] += 1


def _level(held: dict[str, list[Partition]], wanted_by: dict[TopicId, list[str]]) -> None:
    moved = True
    while moved:
        moved = False
        for topic_id, members in wanted_by.items():
            while _level_topic(held, topic_id, members):
                moved = True


def _level_topic(held: dict[str, list[Partition]], topic_id: TopicId, members: list[str]) -> bool:
    """Move one partition of the topic to the member with the fewest partitions, if that improves the balance.

    `members` are the subscribers of the topic. The partition comes from the member with the most partitions (of all
    topics) among those that have a partition of the topic. Returns whether a partition was moved.
    """
    if not members:
        return False
    poorest = min(members, key=lambda m: (len(held[m]), m))
    for richest in sorted(members, key=lambda m: (-len(held[m]), m)):
        if len(held[richest]) <= len(held[poorest]) + 1:
            return False
        for i in range(len(held[richest]) - 1, -1, -1):
            if held[richest][i][0] == topic_id:
                held[poorest].append(held[richest].pop(i))
                return True
    return False


def _by_topic(partitions: list[Partition]) -> Partitions:
    topics: dict[TopicId, list[int]] = {}
    for topic_id, p in partitions:
        topics.setdefault(topic_id, []).append(p)
    return {topic_id: frozenset(topics[topic_id]) for topic_id in sorted_ids(topics)}
