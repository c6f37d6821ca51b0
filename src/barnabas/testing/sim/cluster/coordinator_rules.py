"""Machine: the rules for coordinators of all kinds: which broker is the coordinator, and which records are
committed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.testing.sim.cluster.rule import Rule
from barnabas.testing.sim.cluster.view import group_coordinator_of, services_of

if TYPE_CHECKING:
    from barnabas.core.ids import TopicPartition
    from barnabas.testing.sim.cluster.cluster import SimCluster
    from barnabas.testing.sim.cluster.observation import ClusterObservation


class CoordinatorLeads(Rule):
    """A coordinator leads its partition in the leader epoch in which its state was loaded. In another epoch, another
    coordinator may have written in the meantime."""

    def observe(self, seen: ClusterObservation) -> None:
        for name, host, partition in seen.coordinators:
            role = None if partition is None else partition.leader
            if role is None or role.leader_epoch != host.leader_epoch:
                now = "does not lead it" if role is None else f"leads it in epoch {role.leader_epoch}"
                self.broken(f"{name} coordinates {host.tp} as of epoch {host.leader_epoch} and {now}")


class CoordinatorWaits(Rule):
    """The committed offset of a coordinator does not exceed the high watermark of its partition. The coordinator
    answers requests and serves reads only for records below that offset."""

    def observe(self, seen: ClusterObservation) -> None:
        for name, host, partition in seen.coordinators:
            if partition is not None and host.committed_offset > partition.high_watermark:
                self.broken(
                    f"{name} treats {host.tp} as committed up to {host.committed_offset}; the high watermark "
                    f"is {partition.high_watermark}"
                )


class AcknowledgedOffsetIsCommitted(Rule):
    """When a member has the response to an offset commit, the record is below the high watermark of the coordinator's
    log."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster)
        self._early = ""

    def on_committed(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Called in the client's process. A violation is raised at the next check."""
        leading = []
        for node in self.cluster.brokers:
            host, services = group_coordinator_of(node, group), services_of(node)
            if host is not None and services is not None:
                partition = services.partitions.get(host.tp.topic, host.tp.partition)
                if partition is not None and partition.leader is not None:
                    leading.append((partition.leader_epoch, node.name, host, partition))
        if not leading:
            return
        # A partitioned coordinator has records that it never acknowledged, and the client may have retried elsewhere.
        _, name, host, partition = max(leading, key=lambda found: found[0])
        for tp, offset in offsets.items():
            newest = host.shard.store.get(group, tp.topic, tp.partition)
            # Only the leader that wrote the record is certain to know that it is committed.
            if newest is None or newest.offset != offset or newest.log_offset < partition.leader.epoch_start_offset:
                continue
            before = host.shard.store.one(group, tp.topic, tp.partition, committed=True)
            if before is not None and before.offset == offset:
                continue  # the response may belong to an earlier commit of the same offset
            if newest.log_offset >= partition.high_watermark:
                self._early = (
                    f"{group} has committed {offset} of {tp}, at {newest.log_offset} of {host.tp}; the high "
                    f"watermark on {name} is {partition.high_watermark}"
                )

    def observe(self, seen: ClusterObservation) -> None:
        if self._early:
            self.broken(self._early)


COORDINATOR_RULES: tuple[type[Rule], ...] = (CoordinatorLeads, CoordinatorWaits, AcknowledgedOffsetIsCommitted)
