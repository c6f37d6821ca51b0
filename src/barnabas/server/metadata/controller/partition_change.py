"""Machine: builds the record of one change of one partition from the wanted state.

    Target (ISR, replicas, reassignment)
      1. complete the reassignment, if the new replicas are all in sync
      2. keep track of eligible leader replicas (KIP-966): a replica that leaves an ISR smaller than min.insync.replicas
         still has every committed record, because the leader commits nothing in that state
      3. elect a leader from the ISR, or from the ELR if the ISR is empty; if none of them is usable, the last known
         leader; and if unclean elections are allowed, any usable replica
      4. begin a new leader epoch when replicas are removed, so that the leader rejects their fetches

Every decision that changes a partition uses this module (`PartitionChangeBuilder` of Kafka).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from enum import Enum, auto
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from barnabas.core.ids import NO_LEADER, TopicId
from barnabas.server.metadata.image.topics import UNASSIGNED_DIRECTORY, LeaderRecoveryState, PartitionImage
from barnabas.server.metadata.image.topics_delta import NO_LEADER_CHANGE
from barnabas.server.metadata.records.topics import PartitionChangeRecord


class Election(Enum):
    """How a leader is elected when the partition needs one."""

    ONLINE = auto()
    """The present leader if it may still lead, else the first replica that may."""
    PREFERRED = auto()
    """The first replica, if it may lead, in place of the present leader."""
    UNCLEAN = auto()
    """The same replica as with ONLINE; if no replica with all committed records is usable, one that may lack some."""


class PartitionChangeRules(Struct, frozen=True):
    """The inputs of a change besides the partition and its target."""

    is_usable: Callable[[int], bool]
    """Whether a broker may lead the partition: the broker is neither fenced nor in controlled shutdown, and the log
    directory of its replica is online."""
    min_insync_replicas: int = 1
    elr_enabled: bool = False
    unclean_shutdown: Collection[int] = ()
    """Brokers that may have lost records and so cannot be in the ELR. The caller removes them from the target's ISR."""
    directory_of: Callable[[int], UUID] = lambda _: UNASSIGNED_DIRECTORY
    """The log directory of a new replica (KIP-858)."""


class Target(Struct, frozen=True):
    """The wanted state of a partition, except the leader, which `elect` chooses."""

    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    removing: tuple[int, ...]
    adding: tuple[int, ...]
    elr: tuple[int, ...]
    recovery_state: int

    @classmethod
    def of(cls, partition: PartitionImage) -> Target:
        return cls(
            partition.isr,
            partition.replicas,
            partition.removing_replicas,
            partition.adding_replicas,
            partition.elr,
            partition.leader_recovery_state,
        )


class Elected(Struct, frozen=True):
    leader: int
    unclean: bool = False


def change_partition(
    topic_id: TopicId,
    index: int,
    partition: PartitionImage,
    target: Target,
    rules: PartitionChangeRules,
    election: Election = Election.ONLINE,
) -> PartitionChangeRecord | None:
    """The record that changes `partition` to `target`; None if nothing changes."""
    target = _track_eligible(partition, _complete_reassignment(target), rules)
    elected = elect(partition, target, rules, election)
    target, leader = _with_leader(partition, target, elected, rules)
    if leader == NO_LEADER_CHANGE and not set(partition.replicas) <= set(target.replicas):
        leader = partition.leader  # no new leader: the same one in a new epoch
    record = PartitionChangeRecord(topic_id=topic_id, partition_id=index, leader=leader)
    if target.isr != partition.isr and (target.isr or rules.elr_enabled):
        record.isr = list(target.isr)
    if target.elr != partition.elr:
        record.eligible_leader_replicas = list(target.elr)
    last_known = _last_known_leader(partition, record)
    if last_known != partition.last_known_elr:
        record.last_known_elr = list(last_known)
    _set_assignment(record, partition, target, rules)
    if target.recovery_state != partition.leader_recovery_state:
        record.leader_recovery_state = target.recovery_state
    return None if _says_nothing(record) else record


# -- elections ---------------------------------------------------------------------------------------------------------


def elect(partition: PartitionImage, target: Target, rules: PartitionChangeRules, election: Election) -> Elected:
    """Elect the leader of `target`."""
    complete = target.isr or target.elr

    def can_lead(broker: int) -> bool:
        return broker in complete and rules.is_usable(broker)

    order = target.replicas
    if election is not Election.PREFERRED or (order and not can_lead(order[0])):
        order = (partition.leader, *order)
    for broker in order:
        if broker in target.replicas and can_lead(broker):
            return Elected(broker)
    if last_known_leader_may_lead(partition, target, rules):
        return Elected(partition.last_known_elr[0], unclean=True)
    if election is Election.UNCLEAN:
        for broker in target.replicas:
            if rules.is_usable(broker):
                return Elected(broker, unclean=True)
    return Elected(NO_LEADER)


def last_known_leader_may_lead(partition: PartitionImage, target: Target, rules: PartitionChangeRules) -> bool:
    """Whether the last known leader may lead because the ISR and the ELR are empty (KIP-966, "balanced" recovery).

    The last leader has all committed records, unless its disk was lost. In this state `last_known_elr` contains exactly
    that broker, even if eligible.leader.replicas.version was disabled afterwards."""
    if target.isr or target.elr or len(partition.last_known_elr) != 1:
        return False
    if not rules.elr_enabled and partition.isr:
        return False
    last = partition.last_known_elr[0]
    return last in target.replicas and rules.is_usable(last)


def _with_leader(
    partition: PartitionImage, target: Target, elected: Elected, rules: PartitionChangeRules
) -> tuple[Target, int]:
    """The target after the election, and the leader field of the record."""
    leader = elected.leader
    if leader == partition.leader:
        return target, NO_LEADER_CHANGE
    if elected.unclean:
        # The other replicas may have other records: only the new leader is in sync, and it has to recover (KIP-704).
        target = replace(target, isr=(leader,), elr=(), recovery_state=LeaderRecoveryState.RECOVERING)
    elif leader in target.elr:
        target = replace(target, isr=(leader,), elr=tuple(broker for broker in target.elr if broker != leader))
        if not rules.elr_enabled or len(target.isr) >= rules.min_insync_replicas:
            target = replace(target, elr=())
    return target, leader


# -- eligible leader replicas ----------------------------------------------------------------------------------------


def _track_eligible(partition: PartitionImage, target: Target, rules: PartitionChangeRules) -> Target:
    """Update the eligible leader replicas. While eligible.leader.replicas.version is disabled, no replica becomes
    eligible. But replicas that were eligible when the ISR became empty still have every committed record, because
    nothing was committed since; they stay eligible until a leader is elected."""
    waiting = not partition.isr and not target.isr
    if not (rules.elr_enabled or waiting) or len(target.isr) >= rules.min_insync_replicas:
        return replace(target, elr=()) if target.elr else target
    candidates = dict.fromkeys((*target.elr, *partition.isr))
    elr = tuple(
        broker
        for broker in candidates
        if broker not in target.isr and broker not in rules.unclean_shutdown and broker in target.replicas
    )
    return replace(target, elr=elr)


def _last_known_leader(partition: PartitionImage, record: PartitionChangeRecord) -> tuple[int, ...]:
    """The last known leader: stored when the ISR becomes empty, cleared when there is a leader again."""
    leader = partition.leader if record.leader == NO_LEADER_CHANGE else record.leader
    if leader != NO_LEADER:
        return ()
    if record.isr == [] and partition.leader != NO_LEADER:
        return (partition.leader,)
    # The partition may have lost its leader before eligible.leader.replicas.version was enabled.
    if record.isr == [] and len(partition.isr) == 1:
        return partition.isr
    return partition.last_known_elr


# -- reassignment ------------------------------------------------------------------------------------------------------


def _complete_reassignment(target: Target) -> Target:
    """If every replica that remains after the reassignment is in sync, complete it: remove the `removing` replicas
    (`maybeCompleteReassignment`). Otherwise return `target` unchanged."""
    if not target.removing and not target.adding:
        return target
    replicas = _without(target.replicas, target.removing)
    isr = _without(target.isr, target.removing)
    if not replicas or not set(replicas) <= set(isr):
        return target
    return replace(target, isr=isr, replicas=replicas, removing=(), adding=())


def _set_assignment(
    record: PartitionChangeRecord, partition: PartitionImage, target: Target, rules: PartitionChangeRules
) -> None:
    if target.replicas != partition.replicas:
        record.replicas = list(target.replicas)
        known = dict(zip(partition.replicas, partition.directories, strict=False))
        record.directories = [
            known[broker] if broker in known else rules.directory_of(broker) for broker in target.replicas
        ]
    if target.removing != partition.removing_replicas:
        record.removing_replicas = list(target.removing)
    if target.adding != partition.adding_replicas:
        record.adding_replicas = list(target.adding)


def _without(brokers: Sequence[int], gone: Collection[int]) -> tuple[int, ...]:
    return tuple(broker for broker in brokers if broker not in gone)


def _says_nothing(record: PartitionChangeRecord) -> bool:
    return record == PartitionChangeRecord(topic_id=record.topic_id, partition_id=record.partition_id)
