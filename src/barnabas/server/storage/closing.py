"""Shell: closing a log, so that the next start needs no recovery."""

from __future__ import annotations

from barnabas.server.storage.deleting import SegmentDeleter
from barnabas.server.storage.flushing import FlushJob, LogFlusher
from barnabas.server.storage.state import LogState


def build_last_job(state: LogState, flusher: LogFlusher) -> FlushJob | None:
    """Write what a clean close writes, and return the flush that makes it durable; see `Log.build_last_job`."""
    state.abort_cleaning()
    with state.guarded():
        return flusher.build_last_job()


def close(state: LogState, flusher: LogFlusher, deleter: SegmentDeleter, *, clean: bool, flushed: bool) -> None:
    """Close the files, after a flush if `clean` and not `flushed`; see `Log.close`."""
    state.abort_cleaning()
    if clean and state.failure is None:
        with state.guarded():
            if not flushed:
                flusher.flush_for_close()
            deleter.delete_pending_files(None)
    for segment in state.segments:
        state.open_segments.forget(segment)
        segment.cool()
