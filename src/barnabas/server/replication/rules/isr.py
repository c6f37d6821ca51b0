"""Machine: the in-sync replicas (ISR): the leader's proposals to the controller (AlterPartition) and their outcomes.

                 try_expand / try_shrink                    on_outcome
    committed ISR ──────────────────────► proposal in flight ──────────► committed: the new ISR
                                              ▲      │                   rejected: the ISR is unchanged
                                              └──────┘ no response       outdated: the next image settles the proposal

At most one proposal is in flight. As long as it may take effect, its members belong to the maximal ISR, on which the
high watermark depends. A shrink takes effect only when it is committed; an expansion holds the high watermark back from
the moment of the proposal (`PendingShrinkIsr`, `PendingExpandIsr`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum, auto
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from barnabas.core.errors import ErrorCode
from barnabas.server.replication.rules.leader import UNKNOWN_BROKER_EPOCH, FollowerProgress, IsrProposal, LeaderState

ActiveBrokers = Mapping[int, int]
"""Broker id -> broker epoch of every broker that is neither fenced nor shutting down in the newest image."""

_REJECTED: Final = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
_OUTDATED: Final = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
    }
)


class Next(Enum):
    """The shell's next action after a response to AlterPartition."""

    DONE = auto()
    """The proposal is settled: evaluate the high watermark again."""
    RETRY = auto()
    """Send the same proposal again after a backoff."""
    WAIT = auto()
    """The controller has a newer state of the partition; wait for its image."""


class CommittedIsr(Struct, frozen=True):
    """The controller's response: the committed state of the partition."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


# -- proposals -------------------------------------------------------------------------------------------------------


def is_eligible(state: LeaderState, follower: int, active: ActiveBrokers) -> bool:
    """Whether the controller would accept the follower in the ISR.

    The broker must be active. The broker epoch of its last fetch must be that of its current process, or unknown.
    """
    registered = active.get(follower)
    if registered is None:
        return False
    fetched = state.progress(follower).broker_epoch
    return fetched in (UNKNOWN_BROKER_EPOCH, registered)


def is_in_sync(state: LeaderState, follower: int, high_watermark: int) -> bool:
    """Whether the follower has all committed records, and all records from before this leader epoch.

    The second condition does not follow from the first: a new leader's high watermark may be below the previous
    leader's, but every committed record of earlier epochs lies below the start of the new epoch.
    """
    end = state.progress(follower).log_end_offset
    return end >= high_watermark and end >= state.epoch_start_offset


def try_expand(
    state: LeaderState, high_watermark: int, active: ActiveBrokers
) -> tuple[LeaderState, IsrProposal] | None:
    """Propose to add all followers that are in sync and eligible. Called after a fetch of a follower.

    Returns None if there is no such follower, or if a proposal is in flight.
    """
    if state.inflight is not None:
        return None
    new = {
        broker
        for broker in state.replicas
        if broker != state.local_id
        and broker not in state.isr
        and is_in_sync(state, broker, high_watermark)
        and is_eligible(state, broker, active)
    }
    return _propose(state, state.isr | new, active) if new else None


def try_shrink(
    state: LeaderState, log_end_offset: int, active: ActiveBrokers, replica_lag_time_max_ms: int, now_ms: int
) -> tuple[LeaderState, IsrProposal] | None:
    """Propose to remove the followers that have not been caught up for replica.lag.time.max.ms.

    None if there is no such follower, or if a proposal is in flight.
    """
    if state.inflight is not None:
        return None
    late = out_of_sync(state, log_end_offset, replica_lag_time_max_ms, now_ms)
    return _propose(state, state.isr - late, active) if late else None


def out_of_sync(state: LeaderState, log_end_offset: int, replica_lag_time_max_ms: int, now_ms: int) -> frozenset[int]:
    """The members of the committed ISR that have lagged for longer than replica.lag.time.max.ms."""
    return frozenset(
        broker
        for broker in state.isr
        if broker != state.local_id
        and not _is_caught_up(state.progress(broker), log_end_offset, now_ms, replica_lag_time_max_ms)
    )


def joining_soon(
    state: LeaderState, log_end_offset: int, active: ActiveBrokers, replica_lag_time_max_ms: int, now_ms: int
) -> Collection[int]:
    """The followers outside the maximal ISR that are caught up and eligible. They hold the high watermark back."""
    maximal = state.maximal_isr
    return [
        broker
        for broker, progress in state.followers.items()
        if broker not in maximal
        and _is_caught_up(progress, log_end_offset, now_ms, replica_lag_time_max_ms)
        and is_eligible(state, broker, active)
    ]


def _is_caught_up(progress: FollowerProgress, log_end_offset: int, now_ms: int, replica_lag_time_max_ms: int) -> bool:
    """Whether the follower is caught up, or was caught up within the last replica.lag.time.max.ms. This decides who
    leaves the ISR (`out_of_sync`), and which joining followers hold back the high watermark (`joining_soon`)."""
    return progress.log_end_offset == log_end_offset or now_ms - progress.caught_up_ms <= replica_lag_time_max_ms


def _propose(state: LeaderState, members: frozenset[int], active: ActiveBrokers) -> tuple[LeaderState, IsrProposal]:
    isr = tuple((broker, _epoch_of(state, broker, active)) for broker in sorted(members))
    proposal = IsrProposal(state.leader_epoch, state.partition_epoch, isr)
    # An earlier proposal whose outcome is unknown may still take effect until the partition epoch changes.
    pending = state.proposed_isr | members if state.in_doubt else members
    return replace(state, proposed_isr=pending, inflight=proposal), proposal


def _epoch_of(state: LeaderState, broker: int, active: ActiveBrokers) -> int:
    if broker == state.local_id:
        return active.get(broker, UNKNOWN_BROKER_EPOCH)
    return state.progress(broker).broker_epoch


# -- outcomes --------------------------------------------------------------------------------------------------------


def on_outcome(
    state: LeaderState, proposal: IsrProposal, error: ErrorCode, answer: CommittedIsr | None = None
) -> tuple[LeaderState, Next]:
    """Apply the controller's response to `proposal`. `error` is REQUEST_TIMED_OUT if there was no response."""
    if state.inflight != proposal:
        return state, Next.DONE  # an image or an earlier response has settled the proposal
    if error is ErrorCode.NONE and answer is not None:
        return _on_committed(state, answer)
    if error in _REJECTED:
        # An earlier attempt without a response may still arrive at the controller and find the replica eligible. The
        # high watermark therefore depends on the proposed members until the partition epoch changes.
        kept = state.proposed_isr if state.in_doubt else frozenset()
        return replace(state, inflight=None, proposed_isr=kept), Next.DONE
    if error in _OUTDATED:
        return state, Next.WAIT
    return replace(state, in_doubt=True), Next.RETRY


def _on_committed(state: LeaderState, answer: CommittedIsr) -> tuple[LeaderState, Next]:
    if answer.leader_epoch != state.leader_epoch or answer.partition_epoch < state.partition_epoch:
        return state, Next.WAIT
    settled = replace(
        state,
        partition_epoch=answer.partition_epoch,
        isr=frozenset(answer.isr),
        proposed_isr=frozenset(),
        inflight=None,
        in_doubt=False,
    )
    return settled, Next.DONE
