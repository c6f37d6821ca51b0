"""Machine: a follower of a partition: its fetch position, the truncation of its log, its retries.

    follow ──► FETCHING ◄──────────────────────────────────────┐
                  │ divergence: truncate, fetch again ──────────┤
                  │ OFFSET_OUT_OF_RANGE ──► OUT_OF_RANGE ───────┘ with the leader's log start and end offsets: truncate,
                  │                                              or restart the log at the leader's log start
                  │ OFFSET_MOVED_TO_TIERED_STORAGE ──► TIERED    the leader has the next records only in the object
                  │                                              store: continue above, with the state at their end
                  │ FENCED_LEADER_EPOCH ──► FENCED   no requests until an image has a newer leader epoch

A follower never truncates to its high watermark. That offset may lie below records that the leader has committed, and
above records that a later leader wrote differently (KIP-101, KIP-279). Leader epochs alone determine where two logs
diverge: each Fetch carries the epoch of the follower's last record, and the leader responds with the end offset of that
epoch in its own log (KIP-595). Kafka's counterpart is `AbstractFetcherThread`. The functions here take a state and a
response and return a step; the shell `roles/follower.py` truncates and appends.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from barnabas.core.errors import ErrorCode
from barnabas.core.ids import NO_LEADER, NO_LEADER_EPOCH
from barnabas.server.replication.rules.watermark import follower_watermark, truncated_watermark

FIRST_RETRY_MS: Final = 50
"""The time before the first retry of a failed request. It doubles with each failure, up to replica.fetch.backoff.ms
(Kafka always waits for the latter). After an election some replicas fetch before their new leader has read that it
leads, and until they fetch again nothing that needs them is committed."""


class EpochEnd(Protocol):
    """The result of OffsetForLeaderEpoch: a leader epoch and its end offset in a log; (-1, -1) if unknown."""

    @property
    def leader_epoch(self) -> int: ...

    @property
    def end_offset(self) -> int: ...


class EpochLog(Protocol):
    """Port: a log whose leader epochs are compared with those of its leader."""

    @property
    def log_end_offset(self) -> int: ...

    def epoch_end_offset(self, epoch: int, /) -> EpochEnd: ...


class ReplicaLog(EpochLog, Protocol):
    """Port: the attributes of the follower's own log that the rules read."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def local_log_start_offset(self) -> int:
        """Above `log_start_offset` if the records below are only in the object store (KIP-405)."""
        ...

    @property
    def lacks_lineage(self) -> bool:
        """Whether the log does not know the leader epochs of its records in the object store."""
        ...

    @property
    def latest_epoch(self) -> int | None:
        """The leader epoch of the last record, or a later one in which this replica led and appended nothing."""
        ...


class FollowerStage(Enum):
    """What a follower does next; the module's docstring has a drawing. NO_LEADER: there is no leader to fetch from."""

    NO_LEADER = auto()
    FETCHING = auto()
    OUT_OF_RANGE = auto()
    TIERED = auto()
    FENCED = auto()


class FollowerState(Struct, frozen=True):
    """The state of a follower besides its log and its high watermark."""

    leader_id: int
    leader_epoch: int
    stage: FollowerStage
    electable: bool = False
    """Whether the newest image has this replica in the ISR or among the eligible leader replicas (KIP-966)."""
    retry_at_ms: int = 0
    failures: int = 0


class FetchFrom(Struct, frozen=True):
    """The partition's entry in a Fetch request. The response is discarded if the log has changed in the meantime."""

    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


class BoundsRequest(Struct, frozen=True):
    """A request for the leader's log start and log end offsets: ListOffsets, sent as a replica."""

    leader_epoch: int


class TieredRequest(Struct, frozen=True):
    """The request for the state at the end of the leader's copies: several requests to the leader and to the store."""

    leader_epoch: int


class FetchAnswer(Struct, frozen=True):
    """The leader's response without an error; `has_records` is True if there are batches to append."""

    high_watermark: int
    log_start_offset: int
    has_records: bool = False
    diverging: EpochEnd | None = None


class AppendFetched(Struct, frozen=True):
    """Step: append the fetched batches, then call `after_append`. Batches of an epoch later than `leader_epoch` are
    left out."""

    leader_epoch: int


class TruncateLog(Struct, frozen=True):
    """Step: truncate the log to `offset`, then call `after_truncation`. Leader epochs that start at or above `offset`
    are removed too, even if the log has no record there."""

    offset: int


class RestartLog(Struct, frozen=True):
    """Step: delete the whole log and start it at `offset`, then call `after_truncation`. `offset` is the leader's log
    start."""

    offset: int


class ContinueAbove(Struct, frozen=True):
    """Step: remove all local records, and continue at `offset` with the state that the object store has of it. The
    records below are committed."""

    offset: int
    log_start_offset: int


Step = AppendFetched | TruncateLog | RestartLog | None


class ReplicaBounds(Struct, frozen=True):
    """The high watermark and the log start offset of the follower after a step."""

    high_watermark: int
    log_start_offset: int


# -- roles and requests ------------------------------------------------------------------------------------------------


def follow(state: FollowerState | None, leader_id: int, leader_epoch: int, *, electable: bool = False) -> FollowerState:
    """The state after an image with this leader. An image with the same leader and leader epoch changes only
    `electable`."""
    if state is not None and leader_epoch < state.leader_epoch:
        return state
    if state is not None and (leader_id, leader_epoch) == (state.leader_id, state.leader_epoch):
        return state if state.electable == electable else replace(state, electable=electable)
    stage = FollowerStage.FETCHING if leader_id != NO_LEADER else FollowerStage.NO_LEADER
    return FollowerState(leader_id, leader_epoch, stage, electable)


def next_request(
    state: FollowerState, log: ReplicaLog, now_ms: int
) -> FetchFrom | BoundsRequest | TieredRequest | None:
    """The next request to the leader. None until `retry_at_ms`, or until an image with a newer leader epoch."""
    if now_ms < state.retry_at_ms:
        return None
    match state.stage:
        case FollowerStage.FETCHING if not log.lacks_lineage:
            return FetchFrom(state.leader_epoch, log.log_end_offset, _last_epoch(log), log.log_start_offset)
        case FollowerStage.OUT_OF_RANGE:
            return BoundsRequest(state.leader_epoch)
        case FollowerStage.TIERED | FollowerStage.FETCHING:
            return TieredRequest(state.leader_epoch)
        case FollowerStage.NO_LEADER | FollowerStage.FENCED:
            return None


# -- responses ---------------------------------------------------------------------------------------------------------


def on_answer(
    state: FollowerState, request: FetchFrom, answer: FetchAnswer, log: ReplicaLog
) -> tuple[FollowerState, Step]:
    """The state and the step after a response without an error. The step is None if the response is discarded."""
    if not _is_current(state, request, log):
        return state, None
    state = _healthy(state)
    if answer.diverging is not None:
        return _truncate(state, divergence_point(answer.diverging, log), log)
    if _leaves_a_hole(state, answer, log):
        return state, RestartLog(answer.log_start_offset)
    return state, AppendFetched(state.leader_epoch)


def _leaves_a_hole(state: FollowerState, answer: FetchAnswer, log: ReplicaLog) -> bool:
    """Whether an append to an empty log would leave out records that the leader has below.

    Nothing shows that such a log has had these records: retention may have deleted them here first, but the log may
    also be left over from an earlier topic of this name. A replica that may be elected keeps its log end: if its log
    began again, it would as a leader write other records at committed offsets.
    """
    is_empty = log.log_start_offset == log.log_end_offset
    return is_empty and not state.electable and 0 <= answer.log_start_offset < log.log_start_offset


def _truncate(state: FollowerState, offset: int, log: ReplicaLog) -> tuple[FollowerState, Step]:
    """Truncate to `offset`. Below the local start of a tiered log there is nothing to continue from: the follower needs
    the state at the end of the leader's copies."""
    if log.log_start_offset < log.local_log_start_offset and offset < log.local_log_start_offset:
        return replace(state, stage=FollowerStage.TIERED), None
    return state, TruncateLog(offset)


def divergence_point(leader_end: EpochEnd, log: EpochLog) -> int:
    """The offset to truncate to, given the leader's end offset of a leader epoch.

    If the follower's log has this epoch, the logs agree up to the smaller of the epoch's two end offsets. Otherwise,
    the follower keeps its records up to the end of its largest earlier epoch, which the next fetch carries (KIP-279).
    If the follower's log has no earlier epoch either, the follower truncates to the leader's end offset.
    """
    ours = log.epoch_end_offset(leader_end.leader_epoch)
    if ours.end_offset < 0:
        offset = leader_end.end_offset
    elif ours.leader_epoch != leader_end.leader_epoch:
        offset = ours.end_offset
    else:
        offset = min(ours.end_offset, leader_end.end_offset)
    return min(offset, log.log_end_offset)


def on_bounds(
    state: FollowerState,
    request: BoundsRequest,
    leader_start: int,
    leader_end: int,
    log: ReplicaLog,
    now_ms: int,
    *,
    backoff_ms: int,
) -> tuple[FollowerState, Step]:
    """The state and the step after the leader has returned its log start and end offsets (`BoundsRequest`)."""
    if state.stage is not FollowerStage.OUT_OF_RANGE or request.leader_epoch != state.leader_epoch:
        return state, None
    state = replace(state, stage=FollowerStage.FETCHING)
    if leader_start > log.log_end_offset:
        return _healthy(state), RestartLog(leader_start)
    if leader_end < log.log_end_offset:
        return _truncate(_healthy(state), max(leader_end, 0), log)  # only an unclean election leads here
    # The follower's offset is within the leader's bounds: these have changed since. The fetch waits for the backoff,
    # because it might fail again.
    return _retry_later(state, now_ms, backoff_ms), None


def on_tiered(
    state: FollowerState, request: TieredRequest, leader_start: int, offset: int, log: ReplicaLog
) -> tuple[FollowerState, RestartLog | ContinueAbove | None]:
    """The state and the step after a `TieredRequest`. `offset` is the end of a remote segment, or the leader's log
    start if the leader has no records that are only in the object store."""
    waits = state.stage is FollowerStage.TIERED or (state.stage is FollowerStage.FETCHING and log.lacks_lineage)
    if not waits or request.leader_epoch != state.leader_epoch:
        return state, None
    state = _healthy(replace(state, stage=FollowerStage.FETCHING))
    return state, RestartLog(offset) if offset <= leader_start else ContinueAbove(offset, leader_start)


def on_error(
    state: FollowerState,
    request: FetchFrom | BoundsRequest | TieredRequest,
    error: ErrorCode,
    now_ms: int,
    *,
    backoff_ms: int,
) -> FollowerState:
    """The state after the leader has rejected the request, or has not responded (REQUEST_TIMED_OUT).

    `backoff_ms` is replica.fetch.backoff.ms with jitter.
    """
    if request.leader_epoch != state.leader_epoch:
        return state  # the request was sent in an earlier leader epoch
    if error is ErrorCode.FENCED_LEADER_EPOCH:
        return replace(state, stage=FollowerStage.FENCED, failures=state.failures + 1)
    stage = state.stage
    if error is ErrorCode.OFFSET_OUT_OF_RANGE and stage is FollowerStage.FETCHING:
        return replace(state, stage=FollowerStage.OUT_OF_RANGE)
    if error is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE and stage is FollowerStage.FETCHING:
        return replace(state, stage=FollowerStage.TIERED)
    # UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_ID: the leader has an older image. Other errors come
    # from its disk or from the network.
    return _retry_later(state, now_ms, backoff_ms)


def _retry_later(state: FollowerState, now_ms: int, backoff_ms: int) -> FollowerState:
    wait_ms = min(backoff_ms, FIRST_RETRY_MS << min(state.failures, 16))
    return replace(state, retry_at_ms=now_ms + wait_ms, failures=state.failures + 1)


# -- after a step ------------------------------------------------------------------------------------------------------


def after_append(answer: FetchAnswer, log: ReplicaLog, high_watermark: int) -> ReplicaBounds:
    """The follower's high watermark and log start offset after an `AppendFetched` step.

    Both are raised to the leader's values, but the high watermark at most to the follower's log end offset, and the log
    start offset at most to the high watermark.
    """
    watermark = follower_watermark(high_watermark, answer.high_watermark, log.log_start_offset, log.log_end_offset)
    return ReplicaBounds(watermark, max(log.log_start_offset, min(answer.log_start_offset, watermark)))


def after_truncation(log: ReplicaLog, high_watermark: int) -> ReplicaBounds:
    """The high watermark and the log start offset of the replica after a `TruncateLog` or `RestartLog` step."""
    watermark = max(truncated_watermark(high_watermark, log.log_end_offset), log.log_start_offset)
    return ReplicaBounds(watermark, log.log_start_offset)


def loses_committed(step: Step, high_watermark: int) -> bool:
    """Whether a truncation removes records below the high watermark: after an unclean election, or because of a bug.

    `RestartLog` does not count: the leader itself no longer has the records, or the log is empty.
    """
    return isinstance(step, TruncateLog) and step.offset < high_watermark


def _is_current(state: FollowerState, request: FetchFrom, log: ReplicaLog) -> bool:
    """Whether the response may be applied. A response to a request of an earlier role, or of a log that has changed
    since the request, is discarded (KAFKA-18723)."""
    return (
        state.stage is FollowerStage.FETCHING
        and request.leader_epoch == state.leader_epoch != NO_LEADER_EPOCH
        and request.fetch_offset == log.log_end_offset
        and request.last_fetched_epoch == _last_epoch(log)
    )


def _last_epoch(log: ReplicaLog) -> int:
    epoch = log.latest_epoch
    return NO_LEADER_EPOCH if epoch is None else epoch


def _healthy(state: FollowerState) -> FollowerState:
    return state if state.failures == 0 else replace(state, failures=0, retry_at_ms=0)
