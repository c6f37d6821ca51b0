"""Machine: what the leader of a partition knows of its replicas, and what it may answer to producers.

    Fetch of a follower  -> LeaderState.on_fetch     it has everything below its fetch offset
    AlterPartition       -> isr.py                   who should be in sync; at most one proposal under way
    both                 -> watermark.py             what is committed

A `LeaderState` is one leadership: it begins when an image names this broker leader in a new epoch, and ends with it.
Kafka's counterparts are `Partition`, `Replica` and `PartitionState`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from barnabas.core.errors import ErrorCode

UNKNOWN_OFFSET: Final = -1
UNKNOWN_BROKER_EPOCH: Final = -1
NEVER_MS: Final = -(1 << 62)


class FollowerProgress(Struct, frozen=True):
    """How far one follower has come, from its own Fetch requests (`ReplicaState`)."""

    log_end_offset: int = UNKNOWN_OFFSET
    caught_up_ms: int = NEVER_MS
    """The last moment at which it had everything the leader had then (`lastCaughtUpTimeMs`)."""
    broker_epoch: int = UNKNOWN_BROKER_EPOCH
    """The lifetime of the process that fetched (KIP-903); another lifetime may have lost what this one had."""
    log_start_offset: int = UNKNOWN_OFFSET
    last_fetch_ms: int = NEVER_MS
    last_fetch_leader_end: int = UNKNOWN_OFFSET
    """Where the leader's log ended at its last fetch: reaching that now means it was caught up then."""

    def is_caught_up(self, leader_end_offset: int, now_ms: int, replica_lag_time_max_ms: int) -> bool:
        """It has everything, or had everything not longer ago than replica.lag.time.max.ms."""
        return self.log_end_offset == leader_end_offset or now_ms - self.caught_up_ms <= replica_lag_time_max_ms


class IsrProposal(Struct, frozen=True):
    """One AlterPartition: who is to be in sync. What it is compared with when its answer comes."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    """(broker, its epoch), by broker; -1 where this leader has not heard of the broker itself."""

    @property
    def members(self) -> frozenset[int]:
        return frozenset(broker for broker, _ in self.isr)


class LeaderState(Struct, frozen=True):
    """One leadership, from the moment the image named this broker leader of the partition in this epoch."""

    local_id: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: frozenset[int]
    proposed_isr: frozenset[int] = frozenset()
    """Members that a proposal may have made, or may yet make, in sync; they already hold the watermark back."""
    epoch_start_offset: int = 0
    followers: Mapping[int, FollowerProgress] = field(default_factory=dict)
    inflight: IsrProposal | None = None
    in_doubt: bool = False
    """An attempt to send the proposal was not answered: it may still arrive, whatever later attempts are told."""

    @property
    def maximal_isr(self) -> frozenset[int]:
        """Everyone who may be in sync as far as the controller knows (KIP-497). It decides what is committed."""
        return self.isr | self.proposed_isr

    def progress(self, follower: int) -> FollowerProgress:
        return self.followers.get(follower, _NOTHING_KNOWN)

    def on_fetch(
        self,
        follower: int,
        fetch_offset: int,
        log_end_offset: int,
        now_ms: int,
        *,
        broker_epoch: int = UNKNOWN_BROKER_EPOCH,
        log_start_offset: int = UNKNOWN_OFFSET,
    ) -> LeaderState:
        """A follower asked for `fetch_offset`: it has everything below. Call it only when the fetch was in order: the
        leader epoch is ours, the logs do not diverge, and `is_stale_fetch` says no."""
        known = self.progress(follower)
        caught_up = known.caught_up_ms
        if fetch_offset >= log_end_offset:
            caught_up = max(caught_up, now_ms)
        elif fetch_offset >= known.last_fetch_leader_end != UNKNOWN_OFFSET:
            caught_up = max(caught_up, known.last_fetch_ms)
        progress = FollowerProgress(fetch_offset, caught_up, broker_epoch, log_start_offset, now_ms, log_end_offset)
        return replace(self, followers={**self.followers, follower: progress})

    def on_image(self, partition_epoch: int, replicas: tuple[int, ...], isr: Collection[int]) -> LeaderState:
        """The cluster's word within this leadership. An image older than the last answer of AlterPartition changes
        nothing; a newer one settles every proposal, since each was made for a partition epoch that has passed."""
        if partition_epoch <= self.partition_epoch:
            return self
        return replace(
            self,
            partition_epoch=partition_epoch,
            replicas=replicas,
            isr=frozenset(isr),
            proposed_isr=frozenset(),
            inflight=None,
            in_doubt=False,
            followers={broker: known for broker, known in self.followers.items() if broker in replicas},
        )


_NOTHING_KNOWN: Final = FollowerProgress()


def begin_leadership(
    local_id: int,
    leader_epoch: int,
    partition_epoch: int,
    replicas: tuple[int, ...],
    isr: Collection[int],
    log_end_offset: int,
    now_ms: int,
) -> LeaderState:
    """A new leader. Members of the ISR get a full replica.lag.time.max.ms to show themselves."""
    followers = {
        broker: FollowerProgress(caught_up_ms=now_ms if broker in isr else NEVER_MS)
        for broker in replicas
        if broker != local_id
    }
    return LeaderState(
        local_id,
        leader_epoch,
        partition_epoch,
        replicas,
        frozenset(isr),
        epoch_start_offset=log_end_offset,
        followers=followers,
    )


def is_stale_fetch(broker_epoch: int, registered_epoch: int | None) -> bool:
    """A fetch sent by an earlier life of a broker that has registered again since (KIP-903)."""
    return broker_epoch != UNKNOWN_BROKER_EPOCH and registered_epoch is not None and broker_epoch < registered_epoch


def refuse_append(state: LeaderState, acks: int, min_insync_replicas: int) -> ErrorCode:
    """What `acks=all` must be refused with before anything is written (NONE: go ahead)."""
    if acks == -1 and len(state.isr) < effective_min_insync(state.replicas, min_insync_replicas):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return ErrorCode.NONE


def acknowledge(state: LeaderState, required_offset: int, watermark: int, min_insync_replicas: int) -> ErrorCode | None:
    """The answer to a parked `acks=all` append; None while it must go on waiting.

    The in-sync count is looked at again when the watermark has passed: the ISR may have shrunk since the append.
    """
    if watermark < required_offset:
        return None
    if len(state.isr) < effective_min_insync(state.replicas, min_insync_replicas):
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    return ErrorCode.NONE


def effective_min_insync(replicas: Collection[int], min_insync_replicas: int) -> int:
    """min.insync.replicas cannot ask for more replicas than there are (`Partition.effectiveMinIsr`)."""
    return min(min_insync_replicas, len(replicas))


def check_leader_epoch(local: int, requested: int) -> ErrorCode:
    """The client's idea of the leader epoch against ours (KIP-320); -1 asks for no check."""
    if requested < 0 or requested == local:
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if requested < local else ErrorCode.UNKNOWN_LEADER_EPOCH


def latest_is_known(state: LeaderState, watermark: int) -> bool:
    """Whether this leader may say what the latest offset is. Before its watermark has reached the start of its epoch,
    an earlier leader may have told clients of more (`OFFSET_NOT_AVAILABLE`, KIP-207)."""
    return watermark >= state.epoch_start_offset
