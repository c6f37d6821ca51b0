"""Machine: what must hold in consumer groups: the invariants of KIP-848's specification, held against what their
coordinators have committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.testing.sim.cluster.rule import Rule

if TYPE_CHECKING:
    from barnabas.server.coordination.group.consumer.group import ConsumerGroup
    from barnabas.testing.sim.cluster.cluster import SimCluster
    from barnabas.testing.sim.cluster.sight import Sight


class NoDoubleAssignment(Rule):
    """A partition belongs to one member of a group: while one still has to give it up, nobody else has it."""

    def look(self, seen: Sight) -> None:
        for where, _, group in seen.groups:
            owners: dict[tuple[object, int], str] = {}
            for member in group.members.committed().values():
                for held in (member.assigned, member.revoking):
                    for topic_id in held:
                        for index in held[topic_id]:
                            other = owners.setdefault((topic_id, index), member.member_id)
                            if other != member.member_id:
                                both = f"{other} and to {member.member_id}"
                                self.broken(f"{group.group_id} on {where}: {topic_id}-{index} belongs to {both}")


class MonotonicGroupEpoch(Rule):
    """A group's epoch never goes back, also not to another coordinator; no member is ahead of its group."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster)
        self._seen: dict[str, tuple[int, int]] = {}

    def look(self, seen: Sight) -> None:
        for where, leader_epoch, group in seen.groups:
            self._check(where, leader_epoch, group)

    def _check(self, where: str, leader_epoch: int, group: ConsumerGroup) -> None:
        epoch = group.epoch.committed
        seen_in, seen = self._seen.get(group.group_id, (-1, -1))
        if leader_epoch < seen_in:
            return  # a coordinator that does not know yet that it is none any more
        if epoch < seen:
            self.broken(
                f"{group.group_id} on {where}: epoch {epoch} in leader epoch {leader_epoch}, {seen} in {seen_in}"
            )
        self._seen[group.group_id] = leader_epoch, epoch
        if group.assignment_epoch.committed > epoch:
            self.broken(f"{group.group_id} on {where}: assignment epoch {group.assignment_epoch.committed} of {epoch}")
        for member in group.members.committed().values():
            if member.member_epoch > epoch:
                self.broken(f"{group.group_id} on {where}: {member.member_id} is in {member.member_epoch} of {epoch}")


GROUP_RULES: tuple[type[Rule], ...] = (NoDoubleAssignment, MonotonicGroupEpoch)
