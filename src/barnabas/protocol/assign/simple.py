"""Machine: the server's "simple" assignor for share groups (KIP-932): partitions are shared, not divided.

Several members of a share group may have the same partition. Each partition is assigned to so many members that every
member has one: with more members than partitions several members share one, with fewer each partition has one member.

The members that subscribe to the same set of topics share the partitions of these topics. Each partition should have
`sharing` = ceil(members / partitions) of these members, so there are partitions x sharing slots. Each member gets an
equal share of the slots: the numbers of partitions of two members differ by at most one.

A member keeps a previous partition unless the member has its share already, or `sharing` members have kept it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

from barnabas.core.ids import TopicId, sorted_ids
from barnabas.protocol.assign.server import GroupSpec, Partitions

Partition = tuple[TopicId, int]


class SimpleAssignor:
    name = "simple"

    def assign(self, group: GroupSpec) -> dict[str, Partitions]:
        held: dict[str, dict[Partition, None]] = {member_id: {} for member_id in sorted(group.members)}
        for topics in sorted({member.topics for member in group.members.values()}, key=sorted):
            members = [m for m in held if group.members[m].topics == topics]
            assignable = {topic_id: group.partitions_of(topic_id) for topic_id in sorted_ids(topics)}
            if any(assignable.values()):
                _share(group, held, members, assignable)
        return {member_id: _by_topic(partitions) for member_id, partitions in held.items()}


def _share(
    group: GroupSpec,
    held: dict[str, dict[Partition, None]],
    members: list[str],
    assignable: Mapping[TopicId, Sequence[int]],
) -> None:
    """Assign the partitions to `members`, all of which subscribe to exactly these topics.

    `assignable` and its partitions are in order. `held` gets the partitions of each member.
    """
    partitions = [(topic_id, p) for topic_id, some in assignable.items() for p in some]
    sharing = -(-len(members) // len(partitions))
    quota, extras = divmod(len(partitions) * sharing, len(members))
    load: Counter[Partition] = Counter()
    had = {m: _kept(group.members[m].assigned, assignable) for m in members}
    limits: dict[str, int] = {}
    # The members with the most partitions keep the extra ones, so that fewer partitions move.
    for rank, member_id in enumerate(sorted(members, key=lambda m: (-len(had[m]), m))):
        limit = limits[member_id] = quota + (rank < extras)
        for partition in had[member_id]:
            if len(held[member_id]) < limit and load[partition] < sharing:
                held[member_id][partition] = None
                load[partition] += 1
    poorest_first = [(len(held[m]), m) for m in members if len(held[m]) < limits[m]]
    heapify(poorest_first)
    for partition in sorted(partitions, key=load.__getitem__):
        having: list[tuple[int, str]] = []
        while load[partition] < sharing and poorest_first:
            count, member_id = heappop(poorest_first)
            if partition in held[member_id]:
                having.append((count, member_id))
                continue
            held[member_id][partition] = None
            load[partition] += 1
            if count + 1 < limits[member_id]:
                having.append((count + 1, member_id))
        for entry in having:
            heappush(poorest_first, entry)
    for member_id in members:  # the remaining ones, so that every member has a partition and every partition a member
        while len(held[member_id]) < min(limits[member_id], len(partitions)):
            partition = min((p for p in partitions if p not in held[member_id]), key=lambda p: (load[p], p))
            held[member_id][partition] = None
            load[partition] += 1
    for partition in partitions:
        if not load[partition]:
            poorest = min(members, key=lambda m: (len(held[m]), m))
            held[poorest][partition] = None
            load[partition] += 1


def _kept(assigned: Partitions, assignable: Mapping[TopicId, Sequence[int]]) -> list[Partition]:
    """The previous partitions of a member that may still be assigned, in order."""
    return [
        (topic_id, p)
        for topic_id in sorted_ids(topic_id for topic_id in assigned if topic_id in assignable)
        for p in sorted(assigned[topic_id].intersection(assignable[topic_id]))
    ]


def _by_topic(partitions: dict[Partition, None]) -> Partitions:
    topics: dict[TopicId, list[int]] = {}
    for topic_id, p in partitions:
        topics.setdefault(topic_id, []).append(p)
    return {topic_id: frozenset(topics[topic_id]) for topic_id in sorted_ids(topics)}
