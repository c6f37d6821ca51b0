"""Machine: one mirror partition, as its leader sees it.

A `Mirror` is a value. `next_step` says what the leader has to do now; an `on_...` function says what has become of
it. The state changes are those of the table in `states.py`. A state that differs from the stored one is stored before
anything else happens, so that a new leader continues where the previous one stopped. A leader begins with `elected`.

    elected ─► LoadState ─► (state of the table) ─► step ─► on_... ─► StoreState ─► step ─► ...

Two rules keep acknowledged records. A truncation (LOG_ALIGNMENT, ULE_RECOVERY) is carried out only in a leader epoch
that began after the decision was stored, and nothing is fetched until every replica has followed it: SaveTail,
RaiseLeaderEpoch, TruncateMirror, AwaitReplicas. And a stop writes nothing before the position is stored, so the markers
that it appends are never taken for mirrored records.
"""

from __future__ import annotations

from typing import Final, Protocol
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from barnabas.core.backoff import Backoff
from barnabas.core.ids import NO_LEADER_EPOCH
from barnabas.core.rng import Rng
from barnabas.server.links.fetching.states import NEXT, MirrorEvent, MirrorState
from barnabas.server.links.fetching.values import NO_OFFSET, MirrorMode, MirrorPosition, StoredMirror
from barnabas.server.replication.rules.follower import EpochEnd, divergence_point
from barnabas.server.storage.values import EpochEndOffset

EPOCH_HEADROOM: Final = 10
"""By how much the local leader epoch is raised above the source's, so that the source's next elections do not stop
the mirror again."""
BACKOFF: Final = Backoff(100, 300_000)
"""Of a FAILED partition: 100 ms to 5 min, with jitter."""
STEP_BACKOFF: Final = Backoff(100, 5_000)
"""Of a step that could not be carried out. It is short, because a cut-over must not wait for long after the local
coordinator or controller was away."""


class MirrorLog(Protocol):
    """Port: the attributes of the local log that the machine reads."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def latest_epoch(self) -> int | None: ...

    def epoch_end_offset(self, epoch: int, /) -> EpochEnd: ...


# -- steps -------------------------------------------------------------------------------------------------------------


class LoadState(Struct, frozen=True):
    """Read the stored state, which fences earlier leaders; then `on_loaded`."""


class StoreState(Struct, frozen=True):
    """Write `state`; then `on_stored`."""

    state: StoredMirror


class CompareLogs(Struct, frozen=True):
    """Ask the source for its bounds and the end of what it has mirrored from here; then `on_compared`."""


class FindSource(Struct, frozen=True):
    """Ask the source for the partition's leader epoch and topic id; then `on_source_found`."""


class SaveTail(Struct, frozen=True):
    """Copy the records from `offset` on to a file and sync it; then `on_tail_saved`."""

    offset: int


class RaiseLeaderEpoch(Struct, frozen=True):
    """Let the controller raise the local leader epoch to at least `minimum`: this ends the leadership."""

    minimum: int


class TruncateMirror(Struct, frozen=True):
    """Truncate the local log to `offset`, below the high watermark if need be; then ask for the next step."""

    offset: int


class AwaitReplicas(Struct, frozen=True):
    """Wait until every assigned replica has fetched in this leader epoch from `offset` or below; `on_converged`."""

    offset: int


class FetchSource(Struct, frozen=True):
    """Fetch from the source until an event."""


class DropFetcher(Struct, frozen=True):
    """Wait until no fetch of the partition is under way; then `on_drained`."""


class RaiseProducerIds(Struct, frozen=True):
    """Keep producer ids that the cluster allocates from now on above all ids in the local log; `on_barrier`."""


class AbortTransactions(Struct, frozen=True):
    """Append an abort marker for each open transaction, and wait until the whole log is committed; `on_aborted`."""


class Retry(Struct, frozen=True):
    """The back-off of a FAILED partition has passed: `on_retry`."""


class Idle(Struct, frozen=True):
    """Nothing to do until the mode changes, or until `until_ms` (monotonic) if that is not None."""

    until_ms: int | None = None


Step = (
    LoadState | StoreState | CompareLogs | FindSource | SaveTail | RaiseLeaderEpoch | TruncateMirror | AwaitReplicas
    | FetchSource | DropFetcher | RaiseProducerIds | AbortTransactions | Retry | Idle
)  # fmt: skip


class LogComparison(Struct, frozen=True):
    """The source's answer to `CompareLogs`."""

    topic_id: UUID | None
    log_start_offset: int
    mirrored_from_here: MirrorPosition | None
    """The stored position of the opposite mirror, if the source was one of this partition and is STOPPED."""


# -- state -------------------------------------------------------------------------------------------------------------


class Mirror(Struct, frozen=True):
    """A mirror partition in one leadership."""

    leader_epoch: int
    mode: MirrorMode
    recovers: bool
    """Whether ULE_RECOVERY is allowed (mirror.support.unclean.leader.election)."""
    current: StoredMirror | None = None
    """The newest state. None until the stored state is known."""
    is_stored: bool = False
    """Whether `current` is stored."""
    source_epoch: int = NO_LEADER_EPOCH
    """The largest leader epoch of the source that this leader has seen."""
    tail_saved: bool = False
    has_barrier: bool = False
    failures: int = 0
    """How often the present step could not be carried out."""
    retry_at_ms: int = 0
    fails: int = 0
    """How often the partition became FAILED since its last records were appended."""
    failed_until_ms: int = 0
    trouble: str = ""
    """The reason for which the last step has to be repeated."""

    @property
    def state(self) -> MirrorState | None:
        return None if self.current is None else self.current.state


def elected(leader_epoch: int, mode: MirrorMode, *, recovers: bool = False) -> Mirror:
    """The state when this broker begins to lead the partition in `leader_epoch`."""
    return Mirror(leader_epoch, mode, recovers)


def next_step(mirror: Mirror, log: MirrorLog, now_ms: int) -> Step:
    """What the leader has to do now."""
    current = mirror.current
    if now_ms < mirror.retry_at_ms:
        return Idle(mirror.retry_at_ms)
    if current is None:
        return LoadState()
    if not mirror.is_stored:
        return StoreState(current)
    match current.state:
        case MirrorState.LOG_ALIGNMENT | MirrorState.ULE_RECOVERY:
            return _truncation(mirror, current, log) if current.truncate_to >= 0 else CompareLogs()
        case MirrorState.EPOCH_FENCING:
            if mirror.source_epoch <= mirror.leader_epoch:
                return FindSource()
            return RaiseLeaderEpoch(mirror.source_epoch + EPOCH_HEADROOM)
        case MirrorState.MIRRORING:
            return FetchSource()
        case MirrorState.PAUSING:
            return DropFetcher()
        case MirrorState.STOPPING:
            return _cut_over(mirror, current)
        case MirrorState.FAILED:
            return Retry() if now_ms >= mirror.failed_until_ms else Idle(mirror.failed_until_ms)
        case MirrorState.PAUSED | MirrorState.STOPPED:
            return Idle()


def _truncation(mirror: Mirror, current: StoredMirror, log: MirrorLog) -> Step:
    offset = current.truncate_to
    if log.log_end_offset > offset and not mirror.tail_saved:
        return SaveTail(offset)
    if mirror.leader_epoch < current.fence_epoch:
        return RaiseLeaderEpoch(current.fence_epoch)
    if log.log_end_offset > offset:
        return TruncateMirror(offset)
    return AwaitReplicas(offset)


def _cut_over(mirror: Mirror, current: StoredMirror) -> Step:
    if not current.is_aligned:
        return DropFetcher()  # nothing was mirrored, so nothing of the source is open
    if mirror.leader_epoch <= current.position.epoch:
        return RaiseLeaderEpoch(current.position.epoch + 1)
    return AbortTransactions() if mirror.has_barrier else RaiseProducerIds()


# -- events ------------------------------------------------------------------------------------------------------------


def on_loaded(mirror: Mirror, stored: StoredMirror | None, log: MirrorLog) -> Mirror:
    """The coordinator has returned the stored state, or None for a partition that has never been mirrored."""
    if stored is None:
        fresh = StoredMirror(MirrorState.LOG_ALIGNMENT, leader_epoch=mirror.leader_epoch)
        return on_mode(replace(mirror, current=fresh), mirror.mode, log)
    mirror = _healthy(replace(mirror, current=stored, is_stored=True))
    if stored.state is MirrorState.MIRRORING:
        mirror = _go(mirror, MirrorEvent.RESUME)
    elif stored.state is MirrorState.STOPPING and log.log_end_offset < stored.position.offset:
        # The previous leader's last records were not committed, and this replica does not have them.
        mirror = _store(mirror, position=_position(log))
    return on_mode(mirror, mirror.mode, log)


def on_stored(mirror: Mirror, state: StoredMirror) -> Mirror:
    """The coordinator has stored `state`."""
    return _healthy(replace(mirror, is_stored=mirror.current == state))


def on_mode(mirror: Mirror, mode: MirrorMode, log: MirrorLog) -> Mirror:
    """The operator's wish may have changed. A truncation that has begun is completed first. The back-off of a step
    that failed ends: above all, a failover does not wait for a source that is gone."""
    if mode is not mirror.mode:
        mirror = replace(_healthy(mirror), mode=mode)
    current = mirror.current
    if current is None:
        return mirror
    state, truncates = current.state, current.truncate_to >= 0
    if truncates and state in (MirrorState.LOG_ALIGNMENT, MirrorState.ULE_RECOVERY):
        return mirror
    match mode:
        case MirrorMode.ACTIVE:
            if state in (MirrorState.PAUSING, MirrorState.PAUSED):
                return _resume(mirror)
            if state is MirrorState.STOPPED:
                again = replace(mirror, has_barrier=False, tail_saved=False)
                return _go(again, MirrorEvent.REALIGN, is_aligned=False, source_topic_id=None)
        case MirrorMode.PAUSED:
            if MirrorEvent.PAUSE in NEXT[state]:
                return _go(mirror, MirrorEvent.PAUSE)
        case MirrorMode.STOPPING:
            if MirrorEvent.STOP in NEXT[state]:
                if truncates:
                    return _resume(mirror)  # the replicas must agree before the partition takes writes
                position = _position(log) if current.is_aligned else current.position
                return _go(mirror, MirrorEvent.STOP, position=position)
        case MirrorMode.STOPPED:
            pass  # the topic is an ordinary one again
    return mirror


def on_compared(mirror: Mirror, found: LogComparison, log: MirrorLog, now_ms: int, rng: Rng) -> Mirror:
    """The source has answered in LOG_ALIGNMENT. An empty log is aligned at once. A log with records must be what the
    source was mirrored from: it is truncated to the position at which that mirror was stopped, or to the end of the
    leader epoch of that position if the local log ends it earlier."""
    if mirror.state is not MirrorState.LOG_ALIGNMENT:
        return mirror
    mirror = _healthy(mirror)
    if log.log_end_offset == log.log_start_offset:
        return on_mode(
            _go(mirror, MirrorEvent.ALIGNED, is_aligned=True, source_topic_id=found.topic_id), mirror.mode, log
        )
    position = found.mirrored_from_here
    if position is None or position.offset < 0:
        return on_failed(
            mirror,
            "the local topic has records, and the source cannot say up to which offset it was mirrored from here. "
            "Delete the local topic, and the link creates it again with the source's records.",
            now_ms,
            rng,
        )
    # An unclean leader election here may have replaced records that were mirrored before it.
    mirrored = EpochEndOffset(position.epoch, position.offset)
    return _truncate(mirror, divergence_point(mirrored, log), found.topic_id)


def on_tail_saved(mirror: Mirror) -> Mirror:
    return _healthy(replace(mirror, tail_saved=True))


def on_converged(mirror: Mirror, log: MirrorLog) -> Mirror:
    """No replica has records beyond the truncation any more."""
    current = mirror.current
    if current is None or current.truncate_to < 0:
        return mirror
    mirror = _go(
        _healthy(mirror), MirrorEvent.ALIGNED, is_aligned=True, truncate_to=NO_OFFSET, fence_epoch=NO_LEADER_EPOCH
    )
    return on_mode(replace(mirror, tail_saved=False), mirror.mode, log)


def on_source_found(mirror: Mirror, leader_epoch: int, topic_id: UUID | None, now_ms: int, rng: Rng) -> Mirror:
    """The source's metadata: its leader epoch (-1 if it does not say), and its topic id (None likewise)."""
    current = mirror.current
    if current is None or current.state not in (MirrorState.EPOCH_FENCING, MirrorState.MIRRORING):
        return mirror
    known = current.source_topic_id
    if known is not None and topic_id is not None and known != topic_id:
        return on_failed(
            mirror,
            f"the topic was deleted and created again on the source: its id was {known} and is {topic_id}. "
            "Delete the local topic to mirror the new one.",
            now_ms,
            rng,
        )
    mirror = replace(mirror, source_epoch=max(mirror.source_epoch, leader_epoch))
    if known is None and topic_id is not None:
        mirror = _store(mirror, source_topic_id=topic_id)
    if mirror.source_epoch > mirror.leader_epoch:
        return _go(mirror, MirrorEvent.EPOCH_BEHIND) if current.state is MirrorState.MIRRORING else mirror
    return _go(mirror, MirrorEvent.FENCED) if current.state is MirrorState.EPOCH_FENCING else mirror


def on_diverged(mirror: Mirror, offset: int, now_ms: int, rng: Rng) -> Mirror:
    """The source no longer has the records from `offset` on: one of its partitions had an unclean leader election."""
    if mirror.state is not MirrorState.MIRRORING:
        return mirror
    if not mirror.recovers:
        return on_failed(
            mirror,
            f"the source lost the records from offset {offset} on by an unclean leader election, and the local log has "
            "them. Set mirror.support.unclean.leader.election=true on the topic to cut them off here, too (they are "
            "saved to a file first), or stop the mirror to keep them.",
            now_ms,
            rng,
        )
    return _truncate(_go(mirror, MirrorEvent.DIVERGED), offset, None)


def on_drained(mirror: Mirror) -> Mirror:
    """No fetch is under way any more."""
    if mirror.state is MirrorState.STOPPING:
        return _go(_healthy(mirror), MirrorEvent.CUT_OVER)
    return _go(_healthy(mirror), MirrorEvent.DRAINED) if mirror.state is MirrorState.PAUSING else mirror


def on_barrier(mirror: Mirror) -> Mirror:
    """Fresh producer ids are larger than all ids in the log."""
    return _healthy(replace(mirror, has_barrier=True))


def on_aborted(mirror: Mirror) -> Mirror:
    """No transaction is open, and the whole log is committed."""
    return _go(_healthy(mirror), MirrorEvent.CUT_OVER) if mirror.state is MirrorState.STOPPING else mirror


def on_answered(mirror: Mirror) -> Mirror:
    """The source has answered a fetch without an error: the mirror works."""
    return replace(_healthy(mirror), fails=0) if mirror.fails or mirror.failures or mirror.trouble else mirror


def on_failed(mirror: Mirror, reason: str, now_ms: int, rng: Rng) -> Mirror:
    """Something that the operator should know, and may have to mend. The leader tries again after a back-off."""
    if mirror.state is None or MirrorEvent.FAIL not in NEXT[mirror.state]:
        return on_trouble(mirror, reason, now_ms, rng)
    until_ms = now_ms + int(BACKOFF.delay_ms(mirror.fails, rng))
    failed = _go(mirror, MirrorEvent.FAIL, reason=reason)
    return replace(failed, trouble=reason, fails=mirror.fails + 1, failed_until_ms=until_ms)


def waiting(mirror: Mirror, reason: str) -> Mirror:
    """The step is under way, and waits for something that the operator should know."""
    return replace(mirror, trouble=reason)


def with_recovery(mirror: Mirror, *, recovers: bool) -> Mirror:
    """mirror.support.unclean.leader.election may have changed."""
    return replace(mirror, recovers=recovers)


def on_retry(mirror: Mirror) -> Mirror:
    """The back-off of a FAILED partition has passed."""
    return _resume(mirror) if mirror.state is MirrorState.FAILED else mirror


def on_reopened(mirror: Mirror) -> Mirror:
    """The link has another definition, so what has failed may work now: the back-off ends."""
    return on_retry(_healthy(mirror))


def on_trouble(mirror: Mirror, reason: str, now_ms: int, rng: Rng) -> Mirror:
    """A step could not be carried out: the coordinator, the controller or the source did not answer. It is repeated
    after a back-off."""
    delay_ms = int(STEP_BACKOFF.delay_ms(mirror.failures, rng))
    return replace(mirror, failures=mirror.failures + 1, retry_at_ms=now_ms + delay_ms, trouble=reason)


# -- inside ------------------------------------------------------------------------------------------------------------


def _go(mirror: Mirror, event: MirrorEvent, **changes: object) -> Mirror:
    """The mirror after an event that its state must list."""
    current = mirror.current
    assert current is not None and event in NEXT[current.state], f"{event} in {mirror.state}"
    return _store(mirror, **{"reason": "", **changes, "state": NEXT[current.state][event]})


def _store(mirror: Mirror, **changes: object) -> Mirror:
    current = mirror.current
    assert current is not None
    changed = replace(current, **changes, state_epoch=current.state_epoch + 1, leader_epoch=mirror.leader_epoch)
    return replace(mirror, current=changed, is_stored=False)


def _resume(mirror: Mirror) -> Mirror:
    current = mirror.current
    assert current is not None
    if current.truncate_to >= 0 and current.is_aligned:
        return _go(mirror, MirrorEvent.RECOVER)
    return _go(mirror, MirrorEvent.RESUME if current.is_aligned else MirrorEvent.REALIGN)


def _truncate(mirror: Mirror, offset: int, topic_id: UUID | None) -> Mirror:
    """Begin a truncation. Its fence is the next leader epoch, whoever leads then."""
    current = mirror.current
    assert current is not None
    return _store(
        replace(mirror, tail_saved=False),
        truncate_to=offset,
        fence_epoch=mirror.leader_epoch + 1,
        source_topic_id=topic_id or current.source_topic_id,
    )


def _position(log: MirrorLog) -> MirrorPosition:
    epoch = log.latest_epoch
    return MirrorPosition(NO_LEADER_EPOCH if epoch is None else epoch, log.log_end_offset)


def _healthy(mirror: Mirror) -> Mirror:
    return replace(mirror, failures=0, retry_at_ms=0, trouble="") if mirror.failures or mirror.trouble else mirror
