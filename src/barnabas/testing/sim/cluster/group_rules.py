"""Machine: the rules for consumer groups: the invariants of KIP-848's specification, checked on the committed state of
the coordinators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.testing.sim.cluster.rule import Rule

if TYPE_CHECKING:
    from barnabas.server.coordination.group.consumer.group import ConsumerGroup
    from barnabas.testing.sim.cluster.cluster import SimCluster
    from barnabas.testing.sim.cluster.observation import ClusterObservation


class NoDoubleAssignment(Rule):
    """A partition is assigned to at most one member of a group. While a member has to revoke a partition, no other
    member owns it."""

    def observe(self, seen: ClusterObservation) -> None:
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
    """The epoch of a group never decreases, also not after a change of the coordinator. No member's epoch exceeds the
    group's."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster)
        self._seen: dict[str, tuple[int, int]] = {}

    def observe(self, seen: ClusterObservation) -> None:
        for where, leader_epoch, group in seen.groups:
            self._check(where, leader_epoch, group)

    def _check(self, where: str, leader_epoch: int, group: ConsumerGroup) -> None:
        epoch = group.epoch.committed
        seen_in, seen = self._seen.get(group.group_id, (-1, -1))
        if leader_epoch < seen_in:
            return  # a former coordinator that has not yet resigned
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
