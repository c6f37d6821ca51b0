"""Shell: beginning a new active segment (Kafka's LocalLog.roll).

Only an append decides that a segment is full (`appending.py`, `_must_roll`). The cleaner on request, `barnabas logs`
and a snapshot of the metadata log roll by `Log.roll`.
"""

from __future__ import annotations

from barnabas.core.hashing import murmur2
from barnabas.server.storage.flushing import LogFlusher
from barnabas.server.storage.segments.segment import Segment, reaches
from barnabas.server.storage.state import LogState


def roll_if_filled(state: LogState, flusher: LogFlusher, now_ms: int) -> None:
    """Begin a new segment unless the active one is empty. The old segment is then due to be flushed."""
    with state.guarded():
        active = state.segments.active
        if active.size > 0:
            if not active.ready:
                active.prepare_append(state.log_end_offset)
            roll(state, flusher, now_ms)


def roll(state: LogState, flusher: LogFlusher, now_ms: int, first_offset: int = 0, last_offset: int = 0) -> Segment:
    """Begin a new segment for batches from `first_offset` to `last_offset`.

    The segment's base offset is the log end offset, even if a follower's first batch begins after a gap: recovery then
    knows that no batch is missing in between. Only if the gap is too wide for the segment's 32-bit relative offsets
    does the segment begin at `first_offset`.
    """
    base_offset = state.log_end_offset
    if not reaches(base_offset, last_offset):
        base_offset = max(base_offset, first_offset)
    active = state.segments.active
    active.seal()
    # The segment may have been synced while it was active, but a flush syncs indexes of sealed segments only.
    flusher.lower_recovery_point(active.base_offset)
    state.producers.end_offset = base_offset
    state.snapshots.take(state.producers)
    segment = create_segment(state, base_offset, now_ms)
    state.segments.add(segment)
    return segment


def create_segment(state: LogState, base_offset: int, now_ms: int, suffix: str = "") -> Segment:
    """Create the files of an empty segment with the log's config. The segment is not yet part of the log."""
    config = state.config
    jitter_max = config.segment_jitter_ms
    # The jitter is a hash and not a random number, so that a replayed simulation rolls segments at the same times.
    spread = murmur2(f"{state.topic_partition}@{base_offset}".encode()) % jitter_max if jitter_max > 0 else 0
    segment = Segment(
        state.fs,
        state.path,
        base_offset,
        index_interval_bytes=config.index_interval_bytes,
        created_ms=now_ms,
        jitter_ms=min(spread, config.segment_ms),
        suffix=suffix,
    ).create()
    segment.join(state.open_segments)
    return segment
