"""Machine: the rules for coordinators of all kinds: which broker is the coordinator, and which records are
committed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from barnabas.core.ids import TRANSACTION_STATE_TOPIC
from barnabas.server.coordination.transaction.state import EPOCH_MAX, IDLE, TxnState
from barnabas.testing.sim.cluster.rule import Rule
from barnabas.testing.sim.cluster.view import broker_of, group_coordinator_of

if TYPE_CHECKING:
    from barnabas.core.ids import TopicPartition
    from barnabas.testing.sim.cluster.cluster import SimCluster
    from barnabas.testing.sim.cluster.observation import ClusterObservation


_SETTLED = IDLE | {TxnState.ONGOING}
"""The states of a transactional id in which every earlier transaction has all its markers."""
VIEW_BEHIND_S_MAX: Final = 1.0
"""Seconds within which the committed view of a coordinator has all committed records."""


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


class CommittedViewFollows(Rule):
    """When all records of a coordinator's log are committed, the committed view of the coordinator is the newest one,
    after a second at the latest, also where no client waits for the records."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster)
        self._behind: dict[tuple[str, TopicPartition], tuple[int, float]] = {}
        """For each coordinator whose view is behind a committed log: the end of the log, and since when."""

    def observe(self, seen: ClusterObservation) -> None:
        now = self.cluster.world.loop.time()
        behind: dict[tuple[str, TopicPartition], tuple[int, float]] = {}
        for name, host, partition in seen.coordinators:
            role = None if partition is None else partition.leader
            if partition is None or role is None or role.leader_epoch != host.leader_epoch:
                continue
            if not host.timeline.uncommitted or partition.high_watermark < host.end_offset:
                continue
            node = self.cluster.hosts[name]
            if node.process is None or node.paused:
                continue
            place = (node.process.name, host.tp)
            end, since = self._behind.get(place, (host.end_offset, now))
            behind[place] = (host.end_offset, since if end == host.end_offset else now)
            if now - behind[place][1] > VIEW_BEHIND_S_MAX:
                self.broken(
                    f"{name} has {host.timeline.uncommitted} changes of {host.tp} that its readers do not see; the log "
                    f"is committed up to its end, {host.end_offset}, and no client writes to it"
                )
        self._behind = behind


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
            host, broker = group_coordinator_of(node, group), broker_of(node)
            if host is not None and broker is not None:
                partition = broker.partitions.get(host.tp.topic, host.tp.partition)
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


class NoHangingTransaction(Rule):
    """A partition has no open transaction that has ended at its coordinator, which would never send the missing marker
    (KIP-664 calls such a transaction hanging). A transaction has ended if the producer has none, or if the producer's
    open transaction has a later epoch."""

    def observe(self, seen: ClusterObservation) -> None:
        ended: dict[int, tuple[int, str]] = {}
        for name, host, partition in seen.coordinators:
            if host.tp.topic != TRANSACTION_STATE_TOPIC or partition is None or not host.caught_up:
                continue
            state = seen.states.get((partition.topic_id.int, partition.name.partition))
            if state is None or state.leader_epoch != host.leader_epoch:
                continue  # another broker is the coordinator by now
            transactions = host.shard.transactions
            for transactional_id, transaction in transactions.items():
                before = transactions.committed_get(transactional_id)
                if before is None or before.state not in _SETTLED or transaction.state not in _SETTLED:
                    continue  # markers are on the way
                is_open = TxnState.ONGOING in (before.state, transaction.state)
                present = min(before.epoch, transaction.epoch) if is_open else EPOCH_MAX + 1
                ended[transaction.producer_id] = (
                    present,
                    f"{transactional_id} on {name} is {transaction.state.label} in epoch {transaction.epoch}",
                )
        for node, _, partition, log, key in seen.replicas:
            state = seen.states[key]
            if partition.leader is None or state is None or state.leader_epoch != partition.leader_epoch:
                continue
            for entry in log.producers.entries:
                if entry.txn_first_offset < 0:
                    continue
                present, who = ended.get(entry.producer_id, (-1, ""))
                if entry.epoch < present:
                    self.broken(
                        f"{partition.name} on {node.name} has a transaction of producer {entry.producer_id} in epoch "
                        f"{entry.epoch} that is open from offset {entry.txn_first_offset} on; {who}"
                    )


COORDINATOR_RULES: tuple[type[Rule], ...] = (
    CoordinatorLeads,
    CoordinatorWaits,
    CommittedViewFollows,
    AcknowledgedOffsetIsCommitted,
    NoHangingTransaction,
)
