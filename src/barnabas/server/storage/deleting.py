"""Shell: removing segments from a log, and replacing them after a compaction.

Files are not unlinked at once: they are renamed to `.deleted` and unlinked after file.delete.delay.ms, so that readers
that have opened the files, or are about to open them, still find them.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.server.storage import names
from barnabas.server.storage.segments.segment import Segment
from barnabas.server.storage.state import LogState


class SegmentDeleter:
    """Removes segments from one log, and keeps the list of files that are still to be unlinked."""

    __slots__ = ("_pending", "_state")

    def __init__(self, state: LogState) -> None:
        self._state = state
        self._pending: list[tuple[int, list[str]]] = []
        """(time in ms, paths): files that have been renamed to `.deleted` and are unlinked at that time."""

    def delete_segment(self, segment: Segment, now_ms: int) -> None:
        """Remove a segment from the log and rename its files, and its producer snapshot, to `.deleted`."""
        state = self._state
        state.abort_cleaning()
        state.segments.remove(segment)
        paths = self._rename_to_deleted(segment)
        snapshot = state.snapshots.set_aside(segment.base_offset)
        if snapshot is not None:
            paths.append(snapshot)
        self._schedule(paths, now_ms)

    def replace_segments(self, new: Sequence[Segment], old: Sequence[Segment], *, now_ms: int) -> None:
        """Put the compacted segments `new` in the place of `old`. The caller syncs the directory afterwards.

        The files of `new` carry the suffix `.swap`, durably. First the files of `old` are renamed to `.deleted`; from
        then on, recovery completes the replacement after a crash. Then the files of `new` lose the suffix. `old` may
        contain segments that retention has deleted meanwhile. The active segment is never replaced.
        """
        state = self._state
        with state.guarded():
            replaced = [s for s in old if s in state.segments]
            assert new, "an empty replacement is a deletion"
            assert state.segments.active not in replaced, "the active segment must not be replaced"
            kept = {segment.base_offset for segment in new}
            for segment in replaced:
                state.segments.remove(segment)
                paths = self._rename_to_deleted(segment)
                if segment.base_offset not in kept:
                    snapshot = state.snapshots.set_aside(segment.base_offset)
                    paths += [snapshot] if snapshot is not None else []
                self._schedule(paths, now_ms)
            for segment in new:
                segment.rename("")
                segment.cool()
                segment.join(state.open_segments)
                state.segments.add(segment)

    def _rename_to_deleted(self, segment: Segment) -> list[str]:
        self._state.open_segments.forget(segment)
        segment.rename(names.DELETED)
        segment.cool()
        return [segment.file_path(kind) for kind in names.SEGMENT_SUFFIXES]

    def _schedule(self, paths: list[str], now_ms: int) -> None:
        self._pending.append((now_ms + self._state.config.file_delete_delay_ms, paths))

    def delete_pending_files(self, now_ms: int | None) -> int:
        """Unlink the `.deleted` files whose delay is over, or all of them if `now_ms` is None.

        Returns the number of segments whose files were unlinked.
        """
        state = self._state
        if state.failure is not None:
            return 0
        with state.guarded():
            due = [entry for entry in self._pending if now_ms is None or entry[0] <= now_ms]
            for entry in due:
                for path in entry[1]:
                    state.fs.unlink(path)
                self._pending.remove(entry)
            return len(due)

    def on_directory_renamed(self, before: str, after: str) -> None:
        """Correct the paths of the files that are still to be unlinked."""
        self._pending = [(due, [after + p[len(before) :] for p in paths]) for due, paths in self._pending]
