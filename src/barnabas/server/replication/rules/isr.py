"""Machine: who is in sync: what the leader proposes to the controller (AlterPartition), and what becomes of it.

                 try_expand / try_shrink                    on_outcome
    committed ISR ──────────────────────► proposal under way ──────────► committed: the new ISR
                                              ▲      │                   refused: as before
                                              └──────┘ not answered      overtaken: the next image settles it

There is at most one proposal under way, and as long as it may take effect its members count in the maximal ISR, on
which the watermark depends. A shrink takes effect only when it is committed; an expansion holds the watermark from the
moment it is proposed (`PendingShrinkIsr`, `PendingExpandIsr`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum, auto
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from barnabas.core.errors import ErrorCode
from barnabas.server.replication.rules.leader import UNKNOWN_BROKER_EPOCH, IsrProposal, LeaderState

ActiveBrokers = Mapping[int, int]
"""Broker -> its epoch, of those that the newest image shows neither fenced nor shutting down."""

_REFUSED: Final = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
_OVERTAKEN: Final = frozenset(
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
    """What the shell does after an answer to AlterPartition."""

    DONE = auto()
    """Settled: look at the watermark again."""
    RETRY = auto()
    """Send the same proposal again, after a while."""
    WAIT = auto()
    """The controller knows something newer; the image that says so is on its way."""


class CommittedIsr(Struct, frozen=True):
    """The controller's answer: the partition as it is now."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


# -- proposals -------------------------------------------------------------------------------------------------------


def is_eligible(state: LeaderState, follower: int, active: ActiveBrokers) -> bool:
    """The controller would take it: it is active, and it was this very lifetime of it that fetched."""
    registered = active.get(follower)
    if registered is None:
        return False
    fetched = state.progress(follower).broker_epoch
    return fetched in (UNKNOWN_BROKER_EPOCH, registered)


def is_in_sync(state: LeaderState, follower: int, high_watermark: int) -> bool:
    """It has everything that is committed, and what was in the log when this leadership began.

    The second is not implied by the first: a new leader's watermark may lag behind what its predecessor has committed,
    but never behind in what lies before the start of its own epoch.
    """
    end = state.progress(follower).log_end_offset
    return end >= high_watermark and end >= state.epoch_start_offset


def try_expand(
    state: LeaderState, high_watermark: int, active: ActiveBrokers
) -> tuple[LeaderState, IsrProposal] | None:
    """After a fetch: take in everyone who is in sync and eligible. None when there is nobody, or a proposal under
    way."""
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
    """Now and then: leave out everyone who has not been caught up for replica.lag.time.max.ms."""
    if state.inflight is not None:
        return None
    late = out_of_sync(state, log_end_offset, replica_lag_time_max_ms, now_ms)
    return _propose(state, state.isr - late, active) if late else None


def out_of_sync(state: LeaderState, log_end_offset: int, replica_lag_time_max_ms: int, now_ms: int) -> frozenset[int]:
    """Members of the committed ISR that lag too long."""
    return frozenset(
        broker
        for broker in state.isr
        if broker != state.local_id
        and not state.progress(broker).is_caught_up(log_end_offset, now_ms, replica_lag_time_max_ms)
    )


def joining_soon(
    state: LeaderState, log_end_offset: int, active: ActiveBrokers, replica_lag_time_max_ms: int, now_ms: int
) -> Collection[int]:
    """Followers outside the maximal ISR that keep up and may join: the watermark waits for them."""
    maximal = state.maximal_isr
    return [
        broker
        for broker, progress in state.followers.items()
        if broker not in maximal
        and progress.is_caught_up(log_end_offset, now_ms, replica_lag_time_max_ms)
        and is_eligible(state, broker, active)
    ]


def _propose(state: LeaderState, members: frozenset[int], active: ActiveBrokers) -> tuple[LeaderState, IsrProposal]:
    isr = tuple((broker, _epoch_of(state, broker, active)) for broker in sorted(members))
    proposal = IsrProposal(state.leader_epoch, state.partition_epoch, isr)
    # What an earlier proposal may still do is not forgotten: `proposed_isr` is emptied by a new partition epoch only.
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
    """The controller's answer to `proposal`. A request that was not answered is REQUEST_TIMED_OUT."""
    if state.inflight != proposal:
        return state, Next.DONE  # an image or an earlier answer has settled it
    if error is ErrorCode.NONE and answer is not None:
        return _on_committed(state, answer)
    if error in _REFUSED:
        # An attempt that was not answered may yet arrive, and find the replica eligible by then: until the partition
        # epoch moves on, the watermark goes on waiting for it.
        kept = state.proposed_isr if state.in_doubt else frozenset()
        return replace(state, inflight=None, proposed_isr=kept), Next.DONE
    if error in _OVERTAKEN:
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
