"""Machine: what the leader of a partition knows of its replicas, and what follows from it.

The high watermark is the largest offset that every member of the *maximal* ISR has (`Partition.maybeIncrementLeaderHW`,
KIP-497): the ISR the controller has committed together with members whose addition is proposed but not yet answered.
An ISR of one (the leader alone) makes it the log end offset; nothing else here treats that case specially.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from barnabas.core.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class FollowerProgress:
    """How far one follower has come, from its own Fetch requests."""

    log_end_offset: int = -1
    caught_up_ms: int = 0
    """The last moment at which it had everything the leader had then (`lastCaughtUpTimeMs`)."""


@dataclass(frozen=True, slots=True)
class LeaderState:
    """One leadership, from the moment the image named this broker leader of the partition in this epoch."""

    local_id: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: frozenset[int]
    proposed_isr: frozenset[int] = frozenset()
    """Members of an AlterPartition that is under way; they already hold the watermark back."""
    epoch_start_offset: int = 0
    followers: Mapping[int, FollowerProgress] = field(default_factory=dict)

    @property
    def maximal_isr(self) -> frozenset[int]:
        return self.isr | self.proposed_isr

    def on_fetch(self, follower: int, fetch_offset: int, log_end_offset: int, now_ms: int) -> LeaderState:
        """A follower asked for `fetch_offset`: it has everything below."""
        known = self.followers.get(follower, FollowerProgress())
        caught_up = now_ms if fetch_offset >= log_end_offset else known.caught_up_ms
        return replace(self, followers={**self.followers, follower: FollowerProgress(fetch_offset, caught_up)})


def high_watermark(state: LeaderState, log_end_offset: int, current: int) -> int:
    """The high watermark after a change; it never goes back within a leadership."""
    candidate = log_end_offset
    for replica in state.maximal_isr:
        if replica != state.local_id:
            progress = state.followers.get(replica)
            candidate = min(candidate, progress.log_end_offset if progress is not None else -1)
    return max(candidate, current)


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
