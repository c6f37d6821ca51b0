"""Machine: the leader's state of a partition: the progress of its followers, the ISR, and the answers to producers.

    Fetch of a follower  -> LeaderState.on_fetch     the follower has all records below its fetch offset
    AlterPartition       -> isr.py                   the ISR; at most one proposal is in flight
    both                 -> watermark.py             the high watermark

A `LeaderState` covers one leader epoch: it is created when an image makes this broker the leader in a new epoch, and
replaced with the next epoch. Kafka's counterparts are `Partition`, `Replica` and `PartitionState`.
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
    """The progress of one follower, taken from its Fetch requests (`ReplicaState`)."""

    log_end_offset: int = UNKNOWN_OFFSET
    caught_up_ms: int = NEVER_MS
    """The last time at which the follower had all records that the leader had then (`lastCaughtUpTimeMs`)."""
    broker_epoch: int = UNKNOWN_BROKER_EPOCH
    """The broker epoch of the process that fetched (KIP-903). A later process of that broker may have lost records."""
    log_start_offset: int = UNKNOWN_OFFSET
    last_fetch_ms: int = NEVER_MS
    last_fetch_leader_end: int = UNKNOWN_OFFSET
    """The leader's log end offset at the last fetch. A follower that reaches this offset was caught up at that time."""


class IsrProposal(Struct, frozen=True):
    """The ISR in one AlterPartition request, and the epochs that the controller's answer is matched with."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    """(broker id, broker epoch), sorted by id; the epoch is -1 if the broker has not sent a fetch to this leader."""

    @property
    def members(self) -> frozenset[int]:
        return frozenset(broker for broker, _ in self.isr)


class LeaderState(Struct, frozen=True):
    """The state of a leader in one leader epoch."""

    local_id: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: frozenset[int]
    proposed_isr: frozenset[int] = frozenset()
    """Members of the ISR in proposals whose outcome is unknown. They already hold the high watermark back."""
    epoch_start_offset: int = 0
    followers: Mapping[int, FollowerProgress] = field(default_factory=dict)
    inflight: IsrProposal | None = None
    in_doubt: bool = False
    """An attempt to send the proposal got no response. That attempt may still take effect, even if a later attempt is
    rejected."""

    @property
    def maximal_isr(self) -> frozenset[int]:
        """All replicas that the controller may consider in sync (KIP-497). The high watermark depends on this set."""
        return self.isr | self.proposed_isr

    def progress(self, follower: int) -> FollowerProgress:
        return self.followers.get(follower, _UNKNOWN_PROGRESS)

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
        """A follower fetched at `fetch_offset`: it has all records below.

        Call this only for a valid fetch: the leader epoch matches, the logs do not diverge, and `is_stale_fetch` is
        False.
        """
        known = self.progress(follower)
        caught_up = known.caught_up_ms
        if fetch_offset >= log_end_offset:
            caught_up = max(caught_up, now_ms)
        elif fetch_offset >= known.last_fetch_leader_end != UNKNOWN_OFFSET:
            caught_up = max(caught_up, known.last_fetch_ms)
        progress = FollowerProgress(fetch_offset, caught_up, broker_epoch, log_start_offset, now_ms, log_end_offset)
        return replace(self, followers={**self.followers, follower: progress})

    def on_image(self, partition_epoch: int, replicas: tuple[int, ...], isr: Collection[int]) -> LeaderState:
        """Apply an image of the same leader epoch.

        An image that is older than the last AlterPartition response changes nothing. A newer image settles every
        proposal, because each proposal was made for an earlier partition epoch.
        """
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


_UNKNOWN_PROGRESS: Final = FollowerProgress()


def begin_leadership(
    local_id: int,
    leader_epoch: int,
    partition_epoch: int,
    replicas: tuple[int, ...],
    isr: Collection[int],
    log_end_offset: int,
    now_ms: int,
) -> LeaderState:
    """The state of a new leader. ISR members have replica.lag.time.max.ms from now on to send their first fetch."""
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


def on_truncated(state: LeaderState, log_end_offset: int) -> LeaderState:
    """The leader of a mirror has cut off committed records: its epoch starts at the new end of the log. Otherwise, no
    replica could join the ISR, nor a client learn the latest offset, before the log is as long as it was."""
    return replace(state, epoch_start_offset=min(state.epoch_start_offset, log_end_offset))


def is_stale_fetch(broker_epoch: int, registered_epoch: int | None) -> bool:
    """Whether the fetch was sent by a previous process of a broker that has registered again since (KIP-903)."""
    return broker_epoch != UNKNOWN_BROKER_EPOCH and registered_epoch is not None and broker_epoch < registered_epoch


def refuse_append(state: LeaderState, acks: int, min_insync_replicas: int) -> ErrorCode:
    """The error that rejects an append with acks=all before anything is written, or NONE."""
    if acks == -1 and len(state.isr) < effective_min_insync(state.replicas, min_insync_replicas):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return ErrorCode.NONE


def lacks_follower(state: LeaderState, now_ms: int, silence_max_ms: int) -> bool:
    """Whether a replica that the high watermark depends on has not fetched for `silence_max_ms`. Until it fetches, or
    the controller removes it from the ISR, nothing is committed."""
    for broker in state.maximal_isr:
        known = state.progress(broker)
        if broker != state.local_id and now_ms - max(known.last_fetch_ms, known.caught_up_ms) > silence_max_ms:
            return True
    return False


def acknowledge(state: LeaderState, required_offset: int, watermark: int, min_insync_replicas: int) -> ErrorCode | None:
    """The answer to a delayed append with acks=all, or None while the append has to wait.

    The size of the ISR is checked again when the high watermark has passed `required_offset`, because the ISR may have
    shrunk since the append.
    """
    if watermark < required_offset:
        return None
    if len(state.isr) < effective_min_insync(state.replicas, min_insync_replicas):
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    return ErrorCode.NONE


def effective_min_insync(replicas: Collection[int], min_insync_replicas: int) -> int:
    """min.insync.replicas, but at most the number of replicas (`Partition.effectiveMinIsr`)."""
    count = len(replicas)
    return min_insync_replicas if min_insync_replicas < count else count


def check_leader_epoch(local: int, requested: int) -> ErrorCode:
    """Compare the leader epoch of a request with the local one (KIP-320); -1 in the request skips the check."""
    if requested < 0 or requested == local:
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if requested < local else ErrorCode.UNKNOWN_LEADER_EPOCH


def latest_is_known(state: LeaderState, watermark: int) -> bool:
    """Whether this leader may return the latest offset to clients.

    Until the high watermark has reached the start of the leader's epoch, a previous leader may have returned a higher
    offset (`OFFSET_NOT_AVAILABLE`, KIP-207).
    """
    return watermark >= state.epoch_start_offset
