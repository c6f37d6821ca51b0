"""Machine: the rules for the replicas of a partition: KIP-966's invariants, by the names of its specification, checked
on the logs and roles of the running brokers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.core.ids import TopicPartition
from barnabas.server.replication.rules.leader import UNKNOWN_OFFSET, effective_min_insync
from barnabas.server.storage.scanning import scan_batches
from barnabas.testing.sim.cluster.observation import ClusterObservation, Key, Replica, replicas_of
from barnabas.testing.sim.cluster.rule import Row, Rule, batches_of
from barnabas.testing.sim.cluster.view import broker_epoch_of

if TYPE_CHECKING:
    from barnabas.testing.sim.cluster.cluster import SimCluster


class OneLeaderPerEpoch(Rule):
    """In each leader epoch only one broker leads a partition."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster)
        self._leaders: dict[tuple[Key, int], str] = {}

    def observe(self, seen: ClusterObservation) -> None:
        for node, _, partition, _, key in seen.replicas:
            if partition.leader is not None:
                other = self._leaders.setdefault((key, partition.leader_epoch), node.name)
                if other != node.name:
                    self.broken(f"{other} and {node.name} led {partition.name} in epoch {partition.leader_epoch}")


class ReplicationQuorumSuperset(Rule):
    """A leader commits only records that every electable replica has: the leader's maximal ISR includes the
    controller's ISR and ELR."""

    def observe(self, seen: ClusterObservation) -> None:
        if seen.image is None:
            return
        for node, _, partition, log, key in seen.replicas:
            role, state = partition.leader, seen.states[key]
            if role is None or state is None or state.leader_epoch != role.leader_epoch:
                continue
            if state.partition_epoch < role.partition_epoch:
                continue  # this leader learnt of a newer committed change than any other running node has
            commits = len(role.isr) >= effective_min_insync(role.replicas, log.config.min_insync_replicas)
            needed = {*state.isr, *state.elr} if commits else set(state.isr)
            if not needed <= role.maximal_isr:
                self.broken(
                    f"{node.name} leads {partition.name} and waits for {sorted(role.maximal_isr)}, electable are "
                    f"{sorted(needed)} (partition epochs: {role.partition_epoch}, {state.partition_epoch})"
                )


class JoinersHaveFetched(Rule):
    """A replica joins the ISR only after it has fetched from the leader in the present leader epoch: only this leader
    knows what the replica has."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster)
        self._members: dict[tuple[str, Key], tuple[object, frozenset[int]]] = {}
        """The role of each leader, and its ISR, at the last observation."""

    def observe(self, seen: ClusterObservation) -> None:
        members: dict[tuple[str, Key], tuple[object, frozenset[int]]] = {}
        for node, process_name, partition, _, key in seen.replicas:
            state = partition.leader
            if state is None:
                continue
            place = (process_name, key)
            role, before = self._members.get(place, (None, frozenset()))
            if role is partition.role:
                for member in sorted(state.isr - before):
                    if state.progress(member).log_end_offset == UNKNOWN_OFFSET:
                        self.broken(
                            f"broker {member} is in the ISR of {partition.name}, and has never fetched from "
                            f"{node.name}, which leads in epoch {state.leader_epoch}"
                        )
            members[place] = partition.role, state.isr
        self._members = members


class WatermarkWaitsForJoiners(Rule):
    """From the proposal to add a replica to the ISR on, the high watermark does not pass the records that the replica
    has: the controller may make the replica the leader at any moment."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster)
        self._epochs: dict[tuple[str, Key], tuple[int, frozenset[int], dict[int, int]]] = {}
        """For each leader: its epoch, the replicas that were outside of the maximal ISR in this epoch, and the log end
        offset of each follower at the last observation."""

    def observe(self, seen: ClusterObservation) -> None:
        epochs: dict[tuple[str, Key], tuple[int, frozenset[int], dict[int, int]]] = {}
        for node, process_name, partition, _, key in seen.replicas:
            state = partition.leader
            if state is None:
                continue
            epoch, outside, ends = self._epochs.get((process_name, key), (-1, frozenset[int](), {}))
            if epoch != state.leader_epoch:
                outside, ends = frozenset(), {}
            members = state.maximal_isr
            now = {replica: state.progress(replica).log_end_offset for replica in state.replicas}
            # A follower whose log has become shorter has lost records: a later process, or a truncation. It is a joiner
            # again when it has been outside of the ISR.
            outside -= {replica for replica, end in now.items() if end < ends.get(replica, 0)}
            for member in sorted(members & outside):
                if now.get(member, 0) < partition.high_watermark:
                    self.broken(
                        f"{node.name} commits {partition.name} up to {partition.high_watermark}; broker {member} joins "
                        f"the ISR with the records below {now[member]}"
                    )
            epochs[process_name, key] = state.leader_epoch, outside | (frozenset(state.replicas) - members), now
        self._epochs = epochs


class AcknowledgedIsCommitted(Rule):
    """When a producer has the acknowledgement of a record, the high watermark of the leader that wrote the record is
    above the record's offset."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster)
        self._early = ""

    def on_acknowledged(self, tp: TopicPartition, offset: int) -> None:
        """A producer has received the acknowledgement of the record at `offset`. This method runs in the client's
        process, so a violation is only stored here, and raised at the next check."""
        state = self.cluster.partition(tp)
        for node, _, partition, log, _ in replicas_of(self.cluster):
            role = partition.leader
            # Only the leader that wrote the record is certain to know its commit. A later leader may have an older high
            # watermark, and an earlier one may have another record at that offset.
            if role is None or partition.name != tp or state is None or role.leader_epoch != state.leader_epoch:
                continue
            if not role.epoch_start_offset <= offset < log.log_end_offset:
                continue
            if partition.high_watermark <= offset:
                self._early = f"{tp} at {offset}: {node.name}'s high watermark is {partition.high_watermark}"

    def observe(self, seen: ClusterObservation) -> None:
        if self._early:
            self.broken(self._early)


class FewInSyncCommitNothing(Rule):
    """While fewer than min.insync.replicas replicas are in sync, the high watermark does not advance. The completeness
    of the eligible leader replicas depends on this rule (KIP-966)."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster)
        self._few: dict[tuple[str, Key], tuple[object, int]] = {}

    def observe(self, seen: ClusterObservation) -> None:
        few: dict[tuple[str, Key], tuple[object, int]] = {}
        for node, process_name, partition, log, key in seen.replicas:
            role = partition.leader
            if role is None:
                continue
            least = log.config.min_insync_replicas
            if len(role.isr) >= effective_min_insync(role.replicas, least):
                continue
            place = (process_name, key)
            # Observations with different partition epochs are not compared, because in between enough replicas may
            # have been in sync for a moment.
            now = (role.leader_epoch, role.partition_epoch, role.isr, least), partition.high_watermark
            before = self._few.get(place)
            if before is not None and before[0] == now[0] and before[1] < now[1]:
                self.broken(
                    f"{node.name} commits {before[1]}..{now[1]} of {partition.name} with {sorted(role.isr)} in sync"
                )
            few[place] = now
        self._few = few


class FlushedBeforeCommitted(Rule):
    """With flush.messages=1 the high watermark of a leader never exceeds the durable end of its own log."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster)
        self._marks: dict[tuple[str, Key], int] = {}

    def observe(self, seen: ClusterObservation) -> None:
        for node, process_name, partition, log, key in seen.replicas:
            if partition.leader is None or log.config.flush_messages > 1:
                continue
            place = (process_name, key)
            mark = partition.high_watermark
            if log.durable_offset < mark and mark > self._marks.get(place, mark):
                self.broken(
                    f"{node.name} commits {partition.name} up to {mark}; its log is durable up to {log.durable_offset}"
                )
            self._marks[place] = mark


@dataclass(slots=True)
class _Committed:
    """The batches of one partition that are below the high watermark of any leader so far."""

    rows: dict[int, Row] = field(default_factory=dict)
    end: int = 0
    unseen_below: int = 0
    """Below this offset a tiered log has deleted batches locally before they were seen here."""


class ConsistentRead(Rule):
    """Below its high watermark every replica has the batches that were committed (LogMatching), in every later leader
    epoch (LeaderCompleteness), and the high watermark of a leader never decreases. Compacted topics are left out,
    because compaction changes their batches."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster)
        self._committed: dict[Key, _Committed] = {}
        self._checked: dict[tuple[str, Key], int] = {}
        """For each process and partition, the offset up to which its batches were compared."""
        self._marks: dict[tuple[str, Key, int], int] = {}

    def observe(self, seen: ClusterObservation) -> None:
        for replica in seen.replicas:
            node, process_name, partition, log, key = replica
            mark = partition.high_watermark
            if partition.leader is not None:
                place = (process_name, key, partition.leader_epoch)
                if mark < self._marks.get(place, -1):
                    self.broken(f"{node.name} leads {partition.name}: watermark from {self._marks[place]} to {mark}")
                self._marks[place] = mark
            if log.config.compact:
                continue
            known = self._committed.get(key)
            if known is None:
                known = self._committed[key] = _Committed()
            if log.config.tiered and log.local_log_start_offset > known.end:
                known.end = known.unseen_below = log.local_log_start_offset
            if partition.leader is not None and mark > known.end:
                for row in batches_of(log, known.end, mark):
                    known.rows[row.base_offset] = row
                    known.end = row.next_offset
            self._compare(replica, known)

    def _compare(self, replica: Replica, known: _Committed) -> None:
        """Compares each batch of a replica once per process, and once more after the log was truncated."""
        node, process_name, partition, log, key = replica
        place = (process_name, key)
        checked = self._checked.get(place, 0)
        end = min(partition.high_watermark, known.end)
        if log.log_end_offset < checked:
            checked = log.log_start_offset
        start = max(checked, log.log_start_offset)
        for row in batches_of(log, start, end) if start < end else ():
            committed = known.rows.get(row.base_offset)
            if committed != row and (committed is not None or row.base_offset >= known.unseen_below):
                self.broken(f"{node.name} has {row} in {partition.name}, committed is {committed}")
            start = row.next_offset
        self._checked[place] = max(start, checked)


class LeaderCompleteness(Rule):
    """The leader of the newest epoch has every committed record, and so has every replica in the ISR or the ELR
    (LeaderCandidateCompleteness). A process counts from its registration on, because the registration removes an
    incomplete replica from both lists."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster)
        self._ends: dict[Key, tuple[int, str]] = {}
        self._partition_epochs: dict[Key, int] = {}
        """The highest partition epoch in which a leader has acted."""

    def observe(self, seen: ClusterObservation) -> None:
        image = seen.image
        if image is None:
            return
        for node, _, partition, log, key in seen.replicas:
            state = seen.states[key]
            end, who = self._ends.get(key, (0, ""))
            if state is None or log.log_end_offset >= end:
                continue
            registered = image.brokers.get(node.node_id)
            known = registered is not None and registered.epoch == broker_epoch_of(node)
            leads = partition.leader is not None and state.leader_epoch == partition.leader_epoch
            if state.partition_epoch < self._partition_epochs.get(key, 0):
                continue  # a newer leader or ISR is committed, and no running node has that change yet
            if leads or (known and node.node_id in (*state.isr, *state.elr)):
                self.broken(
                    f"{node.name} {'leads' if leads else 'may lead'} {partition.name} and its log ends at "
                    f"{log.log_end_offset}; {end} was committed by {who} (ISR {state.isr}, ELR {state.elr})"
                )
        for node, _, partition, _, key in seen.replicas:
            if partition.leader is not None:
                self._partition_epochs[key] = max(self._partition_epochs.get(key, 0), partition.leader.partition_epoch)
                if partition.high_watermark > self._ends.get(key, (0, ""))[0]:
                    self._ends[key] = partition.high_watermark, f"{node.name} in epoch {partition.leader_epoch}"


class SameState(Rule):
    """Replicas with equal logs have equal producer states, open transactions and leader epochs."""

    def at_rest(self) -> None:
        first: dict[Key, tuple[str, object]] = {}
        for node, _, partition, log, key in replicas_of(self.cluster):
            if log.config.compact:
                continue
            facts = {
                "log end": log.log_end_offset,
                "high watermark": partition.high_watermark,
                "last stable offset": log.last_stable_offset(partition.high_watermark),
                "producers": sorted(
                    (e.producer_id, e.epoch, e.txn_first_offset, [tuple(b) for b in e.batches][-1:])
                    for e in log.producers.entries
                ),
            }
            name, others = first.setdefault(key, (node.name, facts))
            if facts != others:
                assert isinstance(others, dict)
                what = {key: (others[key], fact) for key, fact in facts.items() if fact != others[key]}
                self.broken(f"{partition.name} on {name} and on {node.name}: {what}")


class AcknowledgedIsEverywhere(Rule):
    """When no client writes and no fault is active, every in-sync replica has every committed batch."""

    def at_rest(self) -> None:
        rows: dict[TopicPartition, tuple[str, list[Row]]] = {}
        for node, _, partition, log, _ in replicas_of(self.cluster):
            if log.config.compact:
                continue
            mine = list(batches_of(log, log.log_start_offset, log.log_end_offset))
            name, others = rows.setdefault(partition.name, (node.name, mine))
            empty = log.log_end_offset if log.config.tiered else 0
            start = max(mine[0].base_offset if mine else empty, others[0].base_offset if others else empty)
            if [r for r in mine if r.base_offset >= start] != [r for r in others if r.base_offset >= start]:
                self.broken(f"{partition.name} on {name} and on {node.name} have other batches")


class LogsAreWhole(Rule):
    """A log consists of whole batches with correct checksums and without gaps, and the index finds each batch."""

    def at_rest(self) -> None:
        for node, _, partition, log, _ in replicas_of(self.cluster):
            for segment in log.segments:
                end = 0
                for position, _, _, header in scan_batches(segment):
                    if segment.lookup(header.base_offset) > position:
                        self.broken(f"{node.name} does not find offset {header.base_offset} of {partition.name}")
                    end = position + header.size
                if end != segment.size:
                    where = f"from byte {end} of {segment.size} of the segment {segment.base_offset}"
                    self.broken(f"{node.name} has {partition.name} damaged {where}")


REPLICA_RULES: tuple[type[Rule], ...] = (
    OneLeaderPerEpoch,
    ReplicationQuorumSuperset,
    JoinersHaveFetched,
    WatermarkWaitsForJoiners,
    AcknowledgedIsCommitted,
    FewInSyncCommitNothing,
    FlushedBeforeCommitted,
    ConsistentRead,
    LeaderCompleteness,
    SameState,
    AcknowledgedIsEverywhere,
    LogsAreWhole,
)
