"""Shell: removing records from the end of a log, or all of them (Kafka's UnifiedLog.truncateTo).

Each operation first does everything that needs a file descriptor: it opens, reads and creates files. If that fails, the
log is unchanged. The steps that follow, which change the log, only rename, delete and shorten files.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.server.storage import names
from barnabas.server.storage.deleting import SegmentDeleter
from barnabas.server.storage.epochs import EpochEntry
from barnabas.server.storage.errors import StorageError
from barnabas.server.storage.flushing import LogFlusher
from barnabas.server.storage.producers.state import ProducerEntry
from barnabas.server.storage.replaying import replay_producers
from barnabas.server.storage.rolling import create_segment
from barnabas.server.storage.state import LogState


class Truncator:
    """Truncates one log."""

    __slots__ = ("_deleter", "_flusher", "_state")

    def __init__(self, state: LogState, flusher: LogFlusher, deleter: SegmentDeleter) -> None:
        self._state = state
        self._flusher = flusher
        self._deleter = deleter

    def truncate_to(self, offset: int, now_ms: int | None) -> bool:
        """Remove the records at and above `offset`; see `Log.truncate_to`."""
        state = self._state
        with state.guarded():
            if offset >= state.log_end_offset:
                # An epoch in which this replica led and appended nothing begins at the log's end, and no other log
                # contains it. If it stayed, each fetch would report a divergence again (UnifiedLog.truncateTo).
                state.epochs.truncate_from_end(state.log_end_offset)
                state.save_epochs()
                return False
            if offset < state.segments.first.base_offset:
                self.truncate_fully_and_start_at(offset, None, now_ms)
                return True
            delete_ms = state.now_ms if now_ms is None else now_ms
            log_start_offset = min(state.log_start_offset, offset)
            active = state.segments.starting_from(offset)[0]
            active.prepare_append(state.log_end_offset)
            producers = state.producers.blank()
            kept = [s for s in state.segments if s.base_offset <= offset]
            replay_producers(producers, state.snapshots, kept, log_start_offset, offset, delete_ms)
            self._flusher.lower_durable_offset(offset)
            state.lower_cleaned_offset(offset)
            active.prepare_append(state.log_end_offset)  # the replay may have closed the file
            for segment in [s for s in state.segments if s.base_offset > offset]:
                self._deleter.delete_segment(segment, delete_ms)
            active.truncate_to(offset)
            state.log_end_offset = offset
            state.log_start_offset = log_start_offset
            state.producers = producers
            state.epochs.truncate_from_end(offset)
            state.save_epochs()
            state.snapshots.delete_outside(state.log_start_offset, offset)
            self._after_truncation(offset)
            return True

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None, now_ms: int | None) -> None:
        """Remove all records and continue at `offset`; see `Log.truncate_fully_and_start_at`."""
        state = self._state
        with state.guarded():
            delete_ms = state.now_ms if now_ms is None else now_ms
            self._flusher.lower_durable_offset(offset)
            state.lower_cleaned_offset(0)
            # A present segment may have the same base offset, hence the suffix. A restart deletes such files.
            empty = create_segment(state, offset, delete_ms, names.TEMPORARY)
            for segment in list(state.segments):
                self._deleter.delete_segment(segment, delete_ms)
            empty.rename("")
            state.segments.add(empty)
            state.snapshots.delete_outside(-1, -1)
            state.epochs.clear()
            state.save_epochs()
            state.log_end_offset = offset
            state.log_start_offset = offset if log_start_offset is None else log_start_offset
            state.recovery_point = min(state.recovery_point, offset)
            state.producers.reset(offset)
            self._after_truncation(offset)

    def continue_above_copies(
        self,
        offset: int,
        log_start_offset: int,
        epochs: Sequence[EpochEntry],
        producers: Sequence[ProducerEntry],
        now_ms: int,
    ) -> None:
        """Remove all records and continue at `offset` with this state; see `Log.continue_above_copies`. The leader
        epochs are written last, because `lacks_lineage` tells an interrupted operation by them."""
        state = self._state
        self.truncate_fully_and_start_at(offset, log_start_offset, now_ms)
        with state.guarded():
            state.producers.reset(offset, producers)
            state.snapshots.take(state.producers)
            self._flusher.lower_recovery_point(offset - 1)  # so that the next flush syncs the snapshot
            for epoch, start_offset in epochs:
                state.epochs.assign(epoch, start_offset)
            state.epochs.truncate_from_start(log_start_offset)
            state.save_epochs()

    def _after_truncation(self, offset: int) -> None:
        self._flusher.note_truncation(offset)
        for listener in self._state.listeners:
            listener.on_truncated()

    def skip_to(self, offset: int, now_ms: int) -> None:
        """Continue at `offset`, above the log's end, without records in between; see `Log.skip_to`."""
        state = self._state
        assert offset > state.log_end_offset, "the log's end lies at or above the offset"
        with state.guarded():
            active = state.segments.active
            if active.size:
                active.seal()
                self._flusher.lower_recovery_point(active.base_offset)
            following = create_segment(state, offset, now_ms, names.TEMPORARY)
            known_end, state.producers.end_offset = state.producers.end_offset, offset
            try:
                state.snapshots.take(state.producers)
            except StorageError:
                state.producers.end_offset = known_end
                raise
            if not active.size:
                self._deleter.delete_segment(active, now_ms)
            following.rename("")
            state.segments.add(following)
            state.log_end_offset = offset
