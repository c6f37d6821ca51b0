"""Machine: a follower of a partition: where it fetches, where it cuts its log, when it tries again.

    follow ──► FETCHING ◄───────────────────────────────┐
                  │ divergence: cut, fetch again ────────┤
                  │ OFFSET_OUT_OF_RANGE ──► OUT_OF_RANGE ┘ the leader's bounds: cut there, or begin again at its start
                  │ FENCED_LEADER_EPOCH ──► FENCED        nothing until an image names a newer epoch

A follower never cuts at its high watermark: that may lie below what the leader has committed, and above what a later
leader wrote differently (KIP-101, KIP-279). Where two logs part is found by leader epochs alone: each Fetch names the
epoch of the last record, the leader answers where that epoch ended in its log (KIP-595). `AbstractFetcherThread` does
this in Kafka. Here the state and the answer come in and a step comes out; the shell reads, cuts and appends.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from barnabas.core.errors import ErrorCode
from barnabas.core.ids import NO_LEADER, NO_LEADER_EPOCH
from barnabas.server.replication.rules.watermark import follower_watermark, truncated_watermark

RETRY_BACKOFF_MS: Final = 1_000
"""`replica.fetch.backoff.ms` by default."""


class EpochEnd(Protocol):
    """An epoch, and the offset at which it ended in some log; (-1, -1) when it is not known there."""

    @property
    def leader_epoch(self) -> int: ...

    @property
    def end_offset(self) -> int: ...


class ReplicaLog(Protocol):
    """What a follower asks its own log."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def latest_epoch(self) -> int | None:
        """The latest epoch it knows of: that of the last record, or one in which it led and wrote nothing."""
        ...

    def epoch_end_offset(self, epoch: int, /) -> EpochEnd: ...


class Stage(Enum):
    NO_LEADER = auto()
    FETCHING = auto()
    OUT_OF_RANGE = auto()
    FENCED = auto()


class FollowerState(Struct, frozen=True):
    """What a follower remembers besides its log and high watermark."""

    leader_id: int
    leader_epoch: int
    stage: Stage
    retry_at_ms: int = 0
    failures: int = 0


class FetchFrom(Struct, frozen=True):
    """The partition's part of the next Fetch. An answer counts only while this is still what would be asked."""

    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


class AskBounds(Struct, frozen=True):
    """Ask the leader by ListOffsets, as a replica, for its log start and log end."""

    leader_epoch: int


class FetchAnswer(Struct, frozen=True):
    """What the leader answered without an error; `has_records` says that there are batches to append."""

    high_watermark: int
    log_start_offset: int
    has_records: bool = False
    diverging: EpochEnd | None = None


class Append(Struct, frozen=True):
    """Append the batches (those of later epochs left out: `append_as_follower(leader_epoch=...)`), then `applied`."""

    leader_epoch: int


class Truncate(Struct, frozen=True):
    """Cut the log to `offset` (its epochs too, even where there is no record to cut), then `cut`."""

    offset: int


class Restart(Struct, frozen=True):
    """Drop the whole log and begin at `offset`, then `cut`: the leader has nothing older any more."""

    offset: int


Step = Append | Truncate | Restart | None


class Bounds(Struct, frozen=True):
    """What a follower's partition is to have after a step."""

    high_watermark: int
    log_start_offset: int


# -- roles and requests ----------------------------------------------------------------------------------------------


def follow(state: FollowerState | None, leader_id: int, leader_epoch: int) -> FollowerState:
    """The image's word. An epoch that is known already leaves back-off and fencing as they are."""
    if state is not None and leader_epoch < state.leader_epoch:
        return state
    if state is not None and (leader_id, leader_epoch) == (state.leader_id, state.leader_epoch):
        return state
    return FollowerState(leader_id, leader_epoch, Stage.FETCHING if leader_id != NO_LEADER else Stage.NO_LEADER)


def next_request(state: FollowerState, log: ReplicaLog, now_ms: int) -> FetchFrom | AskBounds | None:
    """What to ask the leader now; None for nothing, until `retry_at_ms` or an image."""
    if now_ms < state.retry_at_ms:
        return None
    match state.stage:
        case Stage.FETCHING:
            return FetchFrom(state.leader_epoch, log.log_end_offset, _last_epoch(log), log.log_start_offset)
        case Stage.OUT_OF_RANGE:
            return AskBounds(state.leader_epoch)
        case Stage.NO_LEADER | Stage.FENCED:
            return None


# -- answers ---------------------------------------------------------------------------------------------------------


def on_answer(
    state: FollowerState, asked: FetchFrom, answer: FetchAnswer, log: ReplicaLog
) -> tuple[FollowerState, Step]:
    """The leader answered a fetch."""
    if not _is_current(state, asked, log):
        return state, None
    state = _healthy(state)
    if answer.diverging is not None:
        return state, Truncate(divergence_point(answer.diverging, log))
    return state, Append(state.leader_epoch)


def divergence_point(leader_end: EpochEnd, log: ReplicaLog) -> int:
    """Where to cut, when the leader says that `leader_end.leader_epoch` ended at `leader_end.end_offset`.

    If our log has that epoch too, the logs agree up to where the first of the two ended it. If it has not, everything
    after the largest epoch below goes, and the next fetch asks again with that epoch (KIP-279).
    """
    ours = log.epoch_end_offset(leader_end.leader_epoch)
    if ours.end_offset < 0:
        cut = leader_end.end_offset
    elif ours.leader_epoch != leader_end.leader_epoch:
        cut = ours.end_offset
    else:
        cut = min(ours.end_offset, leader_end.end_offset)
    return min(cut, log.log_end_offset)


def on_bounds(
    state: FollowerState,
    asked: AskBounds,
    leader_start: int,
    leader_end: int,
    log: ReplicaLog,
    now_ms: int,
    *,
    backoff_ms: int,
) -> tuple[FollowerState, Step]:
    """The leader said where its log begins and ends, after we had asked for something outside."""
    if state.stage is not Stage.OUT_OF_RANGE or asked.leader_epoch != state.leader_epoch:
        return state, None
    state = replace(state, stage=Stage.FETCHING)
    if leader_start > log.log_end_offset:
        return _healthy(state), Restart(leader_start)
    if leader_end < log.log_end_offset:
        return _healthy(state), Truncate(max(leader_end, 0))  # only an unclean election leads here
    # Within its bounds after all: they have moved. Not at once, in case they have not.
    return replace(state, retry_at_ms=now_ms + backoff_ms, failures=state.failures + 1), None


def on_error(
    state: FollowerState, asked: FetchFrom | AskBounds, error: ErrorCode, now_ms: int, *, backoff_ms: int
) -> FollowerState:
    """The leader refused, or did not answer (REQUEST_TIMED_OUT). `backoff_ms`: `replica.fetch.backoff.ms`, jittered."""
    if asked.leader_epoch != state.leader_epoch:
        return state  # asked in an epoch that is over
    if error is ErrorCode.FENCED_LEADER_EPOCH:
        return replace(state, stage=Stage.FENCED, failures=state.failures + 1)
    stage = state.stage
    if error is ErrorCode.OFFSET_OUT_OF_RANGE and stage is Stage.FETCHING:
        return replace(state, stage=Stage.OUT_OF_RANGE)
    # UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_ID: it does not know yet; or its disk, or the network.
    return replace(state, retry_at_ms=now_ms + backoff_ms, failures=state.failures + 1)


# -- after the step has been carried out -------------------------------------------------------------------------------


def applied(answer: FetchAnswer, log: ReplicaLog, high_watermark: int) -> Bounds:
    """After an Append: the watermark follows the leader's, and the log start too, never beyond what is committed."""
    watermark = follower_watermark(high_watermark, answer.high_watermark, log.log_start_offset, log.log_end_offset)
    return Bounds(watermark, max(log.log_start_offset, min(answer.log_start_offset, watermark)))


def cut(log: ReplicaLog, high_watermark: int) -> Bounds:
    """After a Truncate or Restart."""
    watermark = max(truncated_watermark(high_watermark, log.log_end_offset), log.log_start_offset)
    return Bounds(watermark, log.log_start_offset)


def loses_committed(step: Step, high_watermark: int) -> bool:
    """A cut below the watermark: an unclean election, or a fault. Worth a loud line in the log."""
    return isinstance(step, Truncate) and step.offset < high_watermark


def _is_current(state: FollowerState, asked: FetchFrom, log: ReplicaLog) -> bool:
    """KAFKA-18723 and its kin: answers of an earlier role, or to a log that has changed since, are dropped."""
    return (
        state.stage is Stage.FETCHING
        and asked.leader_epoch == state.leader_epoch != NO_LEADER_EPOCH
        and asked.fetch_offset == log.log_end_offset
        and asked.last_fetched_epoch == _last_epoch(log)
    )


def _last_epoch(log: ReplicaLog) -> int:
    epoch = log.latest_epoch
    return NO_LEADER_EPOCH if epoch is None else epoch


def _healthy(state: FollowerState) -> FollowerState:
    return state if state.failures == 0 else replace(state, failures=0, retry_at_ms=0)
