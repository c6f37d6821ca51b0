"""The invariants of a replicated partition: those of KIP-966's specification, by their names there.

`Oracle` sees everything at once, as no broker can: what was committed, acknowledged and read.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING, Protocol

from barnabas.server.replication.rules.leader import effective_min_insync

if TYPE_CHECKING:
    from tests.property.replication_model import ModelBroker, Record
    from tests.property.replication_world import World

MIN_INSYNC = 2


class Violation(AssertionError):  # noqa: N818  what it is called in every simulation of this kind
    """An invariant does not hold; the message begins with its name."""


class Oracle:
    """The history of the partition."""

    def __init__(self) -> None:
        self.committed: list[Record] = []
        """Offset -> record, below the highest high watermark that any leader has had."""
        self.acked: dict[int, Record] = {}
        self.deleted_before = 0
        self.crashed: set[int] = set()
        """Brokers that lost records and have not been in sync since."""
        self.unclean: set[int] = set()
        """Taken out of ISR or ELR for an unclean shutdown, since the ISR was large enough last."""

    def on_watermark(self, broker: ModelBroker, after: int) -> None:
        """A leader's high watermark rises: the records below it must equal those committed before."""
        if after < broker.high_watermark:
            raise Violation(f"MonotonicHighWatermark: {broker.id} goes from {broker.high_watermark} back to {after}")
        for offset in range(broker.high_watermark, after):
            record = broker.log.at(offset)
            if offset < len(self.committed):
                if record is not None and record != self.committed[offset]:
                    raise Violation(
                        f"LeaderCompleteness: {broker.id} commits {record} at {offset}, "
                        f"where {self.committed[offset]} is committed"
                    )
            elif record is None:
                raise Violation(f"LeaderCompleteness: {broker.id} commits {offset}, which it has not")
            else:
                self.committed.append(record)

    def on_follower(self, broker: ModelBroker, after: int, *, begins_again: bool) -> None:
        """A follower's high watermark never falls, unless its log begins again: only an empty log whose replica cannot
        be elected may do so below the offset at which it was."""
        if after < broker.high_watermark and not begins_again:
            raise Violation(f"MonotonicHighWatermark: {broker.id} goes from {broker.high_watermark} back to {after}")

    def on_read(self, broker: ModelBroker, rng: random.Random) -> None:
        """A consumer reads below the watermark, at a leader or a follower (KIP-392)."""
        start, end = broker.log.log_start_offset, broker.high_watermark
        if not broker.up or start >= end:
            return
        first = rng.randrange(start, end)
        if broker.log.between(first, end) != self.committed[first:end]:
            raise Violation(f"ConsistentRead: {broker.id} shows {first}..{end} otherwise than it was committed")

    def has_all(self, broker: ModelBroker) -> bool:
        """Its log holds every committed record that was not deleted on purpose."""
        start, end = broker.log.log_start_offset, len(self.committed)
        first = max(self.deleted_before, start)
        return start <= end and broker.log.between(first, end) == self.committed[first:end]


class Invariant(Protocol):
    @staticmethod
    def check(world: World) -> None: ...


class ReplicationQuorumSuperset:
    """A leader that commits waits for every replica that may be elected.

    Its maximal ISR includes the controller's ISR and ELR.
    """

    @staticmethod
    def check(world: World) -> None:
        state = world.partition
        for broker in _running(world):
            role = broker.leader
            if role is None or role.leader_epoch != state.leader_epoch:
                continue
            commits = len(role.isr) >= effective_min_insync(role.replicas, MIN_INSYNC)
            needed = {*state.isr, *state.elr} if commits else set(state.isr)
            if not needed <= role.maximal_isr:
                raise Violation(
                    f"ReplicationQuorumSuperset: {broker.id} waits for {sorted(role.maximal_isr)}, "
                    f"electable are {sorted(needed)}"
                )


class LeaderCandidateCompleteness:
    """Every replica in the ISR or ELR has every committed record.

    A process counts from its registration on, because the registration removes it from the ISR and ELR if necessary.
    """

    @staticmethod
    def check(world: World) -> None:
        state = world.partition
        for broker in _running(world):
            candidate = broker.id in (*state.isr, *state.elr) and broker.registered(world.image)
            if candidate and not world.oracle.has_all(broker):
                raise Violation(f"LeaderCandidateCompleteness: {broker.id} ({broker.log}) lacks committed records")


class LeaderCompleteness:
    """The leader of the newest epoch has every committed record."""

    @staticmethod
    def check(world: World) -> None:
        state = world.partition
        for broker in _running(world):
            role = broker.leader
            if role is not None and role.leader_epoch == state.leader_epoch and not world.oracle.has_all(broker):
                raise Violation(f"LeaderCompleteness: leader {broker.id} ({broker.log}) lacks committed records")


class LogMatching:
    """Two logs that have a record of one epoch at one offset are the same up to there."""

    @staticmethod
    def check(world: World) -> None:
        for one, other in combinations(world.brokers.values(), 2):
            start = max(one.log.log_start_offset, other.log.log_start_offset)
            end = min(one.log.log_end_offset, other.log.log_end_offset)
            left, right = one.log.between(start, end), other.log.between(start, end)
            if start >= end or left == right:
                continue
            same = max((i for i in range(end - start) if left[i].epoch == right[i].epoch), default=-1)
            if left[: same + 1] != right[: same + 1]:
                raise Violation(f"LogMatching: {one.id} and {other.id} differ below {start + same}")


class NoCommittedRecordLostGlobally:
    """Every committed or acknowledged record exists on some disk, even if its broker is down."""

    @staticmethod
    def check(world: World) -> None:
        oracle, logs = world.oracle, [broker.log for broker in world.brokers.values()]
        first, end = oracle.deleted_before, len(oracle.committed)
        if not any(
            log.log_start_offset <= first and log.between(first, end) == oracle.committed[first:] for log in logs
        ):
            for offset in range(first, end):
                if all(log.at(offset) != oracle.committed[offset] for log in logs):
                    raise Violation(f"NoCommittedRecordLostGlobally: committed {oracle.committed[offset]} at {offset}")
        for offset, record in oracle.acked.items():
            if offset >= len(oracle.committed) or oracle.committed[offset] != record:
                raise Violation(f"NoCommittedRecordLostGlobally: {record} at {offset} is acknowledged, not committed")


class ConsistentRead:
    """Every record below any high watermark is the one that was committed there. `Oracle.on_read` checks clients."""

    @staticmethod
    def check(world: World) -> None:
        committed = world.oracle.committed
        for broker in _running(world):
            start, end = broker.log.log_start_offset, broker.high_watermark
            if start < end and broker.log.between(start, end) != committed[start:end]:
                raise Violation(f"ConsistentRead: {broker.id} shows {start}..{end} otherwise than it was committed")


class MinIsrRecoveryQuorum:
    """With eligible leader replicas, never switched, min.insync.replicas brokers can be elected, less those that ended
    uncleanly."""

    @staticmethod
    def check(world: World) -> None:
        state = world.partition
        if not world.elr or world.switched:
            return
        if len(state.isr) >= MIN_INSYNC:
            world.oracle.unclean.clear()
        quorum = {*state.isr, *state.elr}
        if len(quorum) < MIN_INSYNC - len(world.oracle.unclean):
            raise Violation(f"MinIsrRecoveryQuorum: only {sorted(quorum)} can be elected")


INVARIANTS: tuple[type[Invariant], ...] = (
    ReplicationQuorumSuperset,
    LeaderCandidateCompleteness,
    LeaderCompleteness,
    LogMatching,
    NoCommittedRecordLostGlobally,
    ConsistentRead,
    MinIsrRecoveryQuorum,
)


def _running(world: World) -> Iterator[ModelBroker]:
    return (broker for broker in world.brokers.values() if broker.up)
