"""Machine: the server's "range" assignor: topic by topic, each member gets a range of consecutive partitions.

Members have the same order for every topic (static ones first), so that the same partition numbers of topics with the
same subscribers and equally many partitions go to the same member. Previous assignments have no influence.
"""

from __future__ import annotations

from barnabas.core.ids import TopicId
from barnabas.protocol.assign.server import GroupSpec, Partitions


class ServerRangeAssignor:
    name = "range"

    def assign(self, group: GroupSpec) -> dict[str, Partitions]:
        assigned: dict[str, dict[TopicId, frozenset[int]]] = {member_id: {} for member_id in group.members}
        ranked = sorted(group.members, key=lambda member_id: _rank(group, member_id))
        for topic_id in sorted(group.topics):
            consumers = [member_id for member_id in ranked if topic_id in group.members[member_id].topics]
            if not consumers:
                continue
            quota, extras = divmod(group.topics[topic_id], len(consumers))
            start = 0
            for index, member_id in enumerate(consumers):
                end = start + quota + (index < extras)
                if start < end:
                    assigned[member_id][topic_id] = frozenset(range(start, end))
                start = end
        return dict[str, Partitions](assigned)


def _rank(group: GroupSpec, member_id: str) -> tuple[bool, str]:
    instance_id = group.members[member_id].instance_id
    return (instance_id is None, member_id if instance_id is None else instance_id)
