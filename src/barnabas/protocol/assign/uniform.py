"""Machine: the server's "uniform" assignor: loads as equal as the subscriptions permit, with few moves.

    1  each member keeps its previous partitions of subscribed topics; with equal subscriptions, up to its share
    2  each free partition goes to the subscribed member with the fewest partitions, topics with few subscribers first
    3  with different subscriptions, single partitions move to members with fewer, until no move improves the balance

Each move reduces the difference between two members, so that the third step ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heapreplace
from itertools import groupby
from operator import itemgetter

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
        wanted_by = _subscribers(group)
        free = [
            (topic_id, p)
            for topic_id in sorted(wanted_by, key=lambda topic_id: (len(wanted_by[topic_id]), topic_id.int))
            for p in range(group.topics[topic_id])
            if wanted_by[topic_id] and (topic_id, p) not in taken
        ]
        if group.is_homogeneous:
            _deal(held, free, list(held))
        else:
            for topic_id, partitions in groupby(free, key=itemgetter(0)):
                _deal(held, partitions, wanted_by[topic_id])
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


def _subscribers(group: GroupSpec) -> dict[TopicId, list[str]]:
    """The members that subscribe to each topic, in order. The topics are in order, too."""
    wanted_by: dict[TopicId, list[str]] = {topic_id: [] for topic_id in sorted_ids(group.topics)}
    for member_id in sorted(group.members):
        for topic_id in sorted_ids(group.members[member_id].topics):
            subscribers = wanted_by.get(topic_id)
            if subscribers is not None:
                subscribers.append(member_id)
    return wanted_by


def _deal(held: dict[str, list[Partition]], free: Iterable[Partition], members: list[str]) -> None:
    """Assign each free partition to the one of the members that has the fewest; of several, to the first."""
    heap = [(len(held[member_id]), member_id) for member_id in members]
    heapify(heap)
    for partition in free:
        load, member_id = heap[0]
        held[member_id].append(partition)
        heapreplace(heap, (load + 1, member_id))


def _level(held: dict[str, list[Partition]], wanted_by: dict[TopicId, list[str]]) -> None:
    load = {member_id: len(partitions) for member_id, partitions in held.items()}
    moved = True
    while moved:
        moved = False
        for topic_id, members in wanted_by.items():
            while members and _level_topic(held, load, topic_id, members):
                moved = True


def _level_topic(held: dict[str, list[Partition]], load: dict[str, int], topic_id: TopicId, members: list[str]) -> bool:
    """Move one partition of the topic to the member with the fewest partitions, if that improves the balance.

    `members` are the subscribers of the topic, in order. The partition comes from the member with the most partitions
    (of all topics) among those that have a partition of the topic. Of several members with as many partitions, the
    first one is chosen. Returns whether a partition was moved.
    """
    poorest = min(members, key=load.__getitem__)
    enough = load[poorest] + 1
    rich = [member_id for member_id in members if load[member_id] > enough]
    for richest in sorted(rich, key=load.__getitem__, reverse=True):
        partitions = held[richest]
        for i in range(len(partitions) - 1, -1, -1):
            if partitions[i][0] == topic_id:
                held[poorest].append(partitions.pop(i))
                load[poorest] += 1
                load[richest] -= 1
                return True
    return False


def _by_topic(partitions: list[Partition]) -> Partitions:
    topics: dict[TopicId, list[int]] = {}
    for topic_id, p in partitions:
        topics.setdefault(topic_id, []).append(p)
    return {topic_id: frozenset(topics[topic_id]) for topic_id in sorted_ids(topics)}
