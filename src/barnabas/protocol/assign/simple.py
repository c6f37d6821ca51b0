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

from barnabas.core.ids import TopicId, sorted_ids
from barnabas.protocol.assign.server import GroupSpec, Partitions

Partition = tuple[TopicId, int]


class SimpleAssignor:
    name = "simple"

    def assign(self, group: GroupSpec) -> dict[str, Partitions]:
        held: dict[str, dict[Partition, None]] = {member_id: {} for member_id in sorted(group.members)}
        for topics in sorted({member.topics for member in group.members.values()}, key=sorted):
            members = [m for m in held if group.members[m].topics == topics]
            partitions = [(t, p) for t in sorted_ids(topics) for p in group.partitions_of(t)]
            if partitions:
                _share(group, held, members, partitions)
        return {member_id: _by_topic(partitions) for member_id, partitions in held.items()}


def _share(
    group: GroupSpec, held: dict[str, dict[Partition, None]], members: list[str], partitions: list[Partition]
) -> None:
    """Assign `partitions` to `members`, all of which subscribe to exactly the topics of these partitions.

    `held` gets the partitions of each member.
    """
    sharing = -(-len(members) // len(partitions))
    quota, extras = divmod(len(partitions) * sharing, len(members))
    load: Counter[Partition] = Counter()
    had = {m: [p for p in partitions if p[1] in group.members[m].assigned.get(p[0], ())] for m in members}
    limits: dict[str, int] = {}
    # The members with the most partitions keep the extra ones, so that fewer partitions move.
    for rank, member_id in enumerate(sorted(members, key=lambda m: (-len(had[m]), m))):
        limit = limits[member_id] = quota + (rank < extras)
        for partition in had[member_id]:
            if len(held[member_id]) < limit and load[partition] < sharing:
                held[member_id][partition] = None
                load[partition] += 1
    wanting = [m for m in members if len(held[m]) < limits[m]]
    for partition in sorted(partitions, key=lambda p: (load[p], p)):
        while load[partition] < sharing:
            able = [m for m in wanting if partition not in held[m] and len(held[m]) < limits[m]]
            if not able:
                break
            poorest = min(able, key=lambda m: (len(held[m]), m))
            held[poorest][partition] = None
            load[partition] += 1
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


def _by_topic(partitions: dict[Partition, None]) -> Partitions:
    topics: dict[TopicId, list[int]] = {}
    for topic_id, p in partitions:
        topics.setdefault(topic_id, []).append(p)
    return {topic_id: frozenset(topics[topic_id]) for topic_id in sorted_ids(topics)}
