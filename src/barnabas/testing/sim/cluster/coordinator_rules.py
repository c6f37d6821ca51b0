"""Machine: what must hold in coordinators of every kind: who is one, and what it takes for committed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.testing.sim.cluster.rule import Rule
from barnabas.testing.sim.cluster.view import group_coordinator_of, services_of

if TYPE_CHECKING:
    from barnabas.core.ids import TopicPartition
    from barnabas.testing.sim.cluster.cluster import SimCluster
    from barnabas.testing.sim.cluster.sight import Sight


class CoordinatorLeads(Rule):
    """A coordinator leads its partition in the epoch in which it was loaded: another one may have decided since."""

    def look(self, seen: Sight) -> None:
        for name, host, partition in seen.coordinators:
            role = None if partition is None else partition.leader
            if role is None or role.leader_epoch != host.leader_epoch:
                now = "does not lead it" if role is None else f"leads it in epoch {role.leader_epoch}"
                self.broken(f"{name} coordinates {host.tp} as of epoch {host.leader_epoch} and {now}")


class CoordinatorWaits(Rule):
    """What a coordinator takes for committed is below the high watermark of its partition: only that is answered, and
    can be read."""

    def look(self, seen: Sight) -> None:
        for name, host, partition in seen.coordinators:
            if partition is not None and host.committed_offset > partition.high_watermark:
                self.broken(
                    f"{name} takes {host.tp} for committed up to {host.committed_offset}; the high watermark "
                    f"is {partition.high_watermark}"
                )


class AcknowledgedOffsetIsCommitted(Rule):
    """When a member has its answer to a commit, its record is below the high watermark of the coordinator's log."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster)
        self._early = ""

    def on_committed(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """In the client's process; the rule breaks at the next look."""
        leading = []
        for node in self.cluster.brokers:
            host, services = group_coordinator_of(node, group), services_of(node)
            if host is not None and services is not None:
                partition = services.partitions.get(host.tp.topic, host.tp.partition)
                if partition is not None and partition.leader is not None:
                    leading.append((partition.leader_epoch, node.name, host, partition))
        if not leading:
            return
        # One that was cut off has what it never acknowledged, and a client may have repeated it elsewhere.
        _, name, host, partition = max(leading, key=lambda found: found[0])
        for tp, offset in offsets.items():
            newest = host.shard.store.get(group, tp.topic, tp.partition)
            # Only the leader that wrote it is sure to know that it is committed.
            if newest is None or newest.offset != offset or newest.log_offset < partition.leader.epoch_start_offset:
                continue
            before = host.shard.store.one(group, tp.topic, tp.partition, committed=True)
            if before is not None and before.offset == offset:
                continue  # the answer may be to that one, which the newest repeats
            if newest.log_offset >= partition.high_watermark:
                self._early = (
                    f"{group} has committed {offset} of {tp}, at {newest.log_offset} of {host.tp}; the high "
                    f"watermark on {name} is {partition.high_watermark}"
                )

    def look(self, seen: Sight) -> None:
        if self._early:
            self.broken(self._early)


COORDINATOR_RULES: tuple[type[Rule], ...] = (CoordinatorLeads, CoordinatorWaits, AcknowledgedOffsetIsCommitted)
