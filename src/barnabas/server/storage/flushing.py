"""Shell: making a log durable, off the event loop.

By default Kafka never calls fsync for an append: the replicas protect the records. Files are synced after a segment has
rolled, when flush.messages or flush.ms require it, and at a clean shutdown. Only such a sync advances the recovery
point. After a crash, the records below the recovery point are not checked.

If an fsync fails, the kernel may have dropped the unwritten pages, and a second fsync could then succeed although the
data are lost. A failed fsync is therefore never retried: the log and its directory go offline.
"""

from __future__ import annotations

import contextlib

from barnabas.server.storage import names
from barnabas.server.storage.errors import (
    DescriptorsExhaustedError,
    DiskFullError,
    FileMissingError,
    StorageError,
)
from barnabas.server.storage.fs import Access, File
from barnabas.server.storage.state import LogState


class FlushJob:
    """One flush of a log. Call `run()` in an executor, then `finish()` on the loop, or `failed(error)` if `run` raised.

    A log has at most one flush job at a time.
    """

    __slots__ = (
        "_directory",
        "_files",
        "_flusher",
        "_fs",
        "_sync_parent",
        "covers_truncation",
        "durable_to",
        "paths",
        "up_to",
    )

    def __init__(
        self, flusher: LogFlusher, up_to: int, files: list[File], paths: list[str], *, covers_truncation: bool = False
    ) -> None:
        self._flusher = flusher
        self._fs = flusher.state.fs
        self._directory = flusher.state.path
        self._sync_parent = not flusher.directory_entry_durable
        self._files = files
        self.paths = paths
        self.up_to = up_to
        """The recovery point after the flush. A truncation or a roll during the flush lowers it."""
        self.durable_to = up_to
        """Every record below this offset will be durable. A truncation during the flush lowers it."""
        self.covers_truncation = covers_truncation
        """Whether the flush also makes the last truncation durable."""

    def run(self) -> None:
        """Sync the files and the directory. Raises StorageError."""
        for file in self._files:
            file.sync()
        for path in self.paths:
            with contextlib.suppress(FileMissingError):  # retention has deleted the file since the job was built
                file = self._fs.open(path, Access.READ)
                try:
                    file.sync()
                finally:
                    file.close()
        self._fs.sync_dir(self._directory)
        if self._sync_parent:  # the entry of the log's directory in its parent: one sync suffices
            self._fs.sync_dir(self._directory.rpartition("/")[0] or "/")

    def finish(self) -> None:
        """Raise the log's recovery point and durable offset."""
        self._flusher.on_flushed(self)

    def failed(self, error: StorageError) -> None:
        """Take the log offline. A flush is never retried: see the module's docstring.

        Only if a file could not be opened for want of a descriptor, nothing has failed, and a later job flushes again.
        """
        if isinstance(error, DescriptorsExhaustedError):
            if self._flusher.job is self:
                self._flusher.job = None
        else:
            self._flusher.state.fail(error)


class LogFlusher:
    """Builds the flush jobs of one log, and keeps its recovery point and durable offset."""

    __slots__ = ("directory_entry_durable", "job", "last_flush_ms", "state", "unsynced_truncation")

    def __init__(self, state: LogState, *, unsynced_truncation: int | None) -> None:
        self.state = state
        self.job: FlushJob | None = None
        """The flush under way, or None."""
        self.last_flush_ms = state.now_ms
        self.unsynced_truncation = unsynced_truncation
        """The lowest offset to which the log has been truncated since the last flush, or None.

        If the power fails before a flush, records that lay at or above this offset may reappear."""
        self.directory_entry_durable = False
        """Whether the entry of the log's directory in its parent directory is known to be durable."""

    # --- when to flush

    @property
    def unflushed_messages(self) -> int:
        return self.state.log_end_offset - self.state.recovery_point

    def is_due(self, now_ms: int) -> bool:
        """Whether a rolled segment, flush.messages or flush.ms require a flush, and no flush is under way."""
        state = self.state
        state.now_ms = now_ms
        return (
            state.failure is None
            and self.job is None
            and (state.recovery_point < state.segments.active.base_offset or self._fsync_due(now_ms))
        )

    def _fsync_due(self, now_ms: int) -> bool:
        """Whether flush.messages or flush.ms require a sync of the active segment."""
        config = self.state.config
        unflushed = self.unflushed_messages
        return unflushed >= config.flush_messages or (unflushed > 0 and now_ms - self.last_flush_ms >= config.flush_ms)

    # --- flushing

    def build_job(self, *, everything: bool = True) -> FlushJob | None:
        """A job that makes the log durable up to its end, or None if nothing needs a sync or a job is under way.

        With `everything=False`, as for a flush after a roll, the active segment is left out unless flush.messages or
        flush.ms require a sync of it.
        """
        state = self.state
        with state.guarded():
            active = state.segments.active
            include_active = everything or self._fsync_due(state.now_ms)
            up_to = state.log_end_offset if include_active else active.base_offset
            # A sync of the segment that was truncated makes the truncation durable.
            truncated_to = self.unsynced_truncation
            covers_truncation = truncated_to is not None and (include_active or truncated_to < up_to)
            if self.job is not None or (up_to <= state.recovery_point and not covers_truncation):
                return None
            state.save_epochs()
            if state.epochs.changed:
                # After a crash, recovery searches the records for leader epochs only above the recovery point. So the
                # recovery point must not pass epochs that the file does not have.
                raise DiskFullError(f"the leader epochs of {state.path} could not be written: no space is left")
            files = []
            paths = [f"{state.path}/{names.LEADER_EPOCH_CHECKPOINT}"]
            if not self.directory_entry_durable:  # nor, perhaps, the topic id of a new log
                paths.append(f"{state.path}/{names.PARTITION_METADATA}")
            for segment in state.segments.starting_from(state.recovery_point):
                if segment is active and not include_active:
                    break
                file = segment.open_file
                if file is not None:
                    files.append(file)
                else:  # the job opens it, so that a log with many segments does not need as many descriptors at once
                    paths.append(segment.file_path(names.LOG))
                if segment is not active:  # the indexes of the last one are rebuilt after a crash in any case
                    segment.write_indexes()
                    paths += [segment.file_path(kind) for kind in names.SEGMENT_SUFFIXES[1:]]
            snapshots = state.snapshots
            paths += [snapshots.path(o) for o in snapshots.offsets if state.recovery_point < o <= up_to]
            self.last_flush_ms = state.now_ms
            self.job = FlushJob(self, up_to, files, paths, covers_truncation=covers_truncation)
            return self.job

    def on_flushed(self, job: FlushJob) -> None:
        """Record the result of `job`. Called by the job, on the loop."""
        self.directory_entry_durable = True
        state = self.state
        if self.job is job:
            self.job = None
        if job.covers_truncation:
            self.unsynced_truncation = None
        state.recovery_point = max(state.recovery_point, job.up_to)
        if job.durable_to > state.durable_offset:
            state.durable_offset = job.durable_to
            for listener in state.listeners:
                listener.on_durable()

    def flush(self) -> None:
        """Make the whole log durable in the calling thread."""
        job = self.build_job()
        if job is not None:
            _run(job)

    def build_last_job(self) -> FlushJob | None:
        """Write the indexes and a producer snapshot. Returns the job that makes everything durable, so that the next
        start needs no recovery; None if nothing needs a sync."""
        state = self.state
        self.job = None
        active = state.segments.active
        written = active.seal() if active.indexed else []
        snapshot = None
        if active.size == 0:
            written = []  # the indexes of an empty segment: unused partitions must not cause thousands of syncs
        if active.size or len(state.producers) or state.snapshots.offsets:
            snapshot = state.snapshots.take(state.producers)
        job = self.build_job()
        if job is None and (written or snapshot):
            job = FlushJob(self, state.recovery_point, [], [])
        if job is not None:
            job.paths += [*written, *([snapshot] if snapshot else [])]
        return job

    def flush_for_close(self) -> None:
        """Write the indexes and a producer snapshot, and sync everything, so that the next start needs no recovery."""
        job = self.build_last_job()
        if job is not None:
            _run(job)

    # --- truncation

    def lower_recovery_point(self, offset: int) -> None:
        """Data at or above `offset` has to be synced again: it has changed, or was never synced completely."""
        self.state.recovery_point = min(self.state.recovery_point, offset)
        if self.job is not None:
            self.job.up_to = min(self.job.up_to, offset)

    def lower_durable_offset(self, offset: int) -> None:
        """Records that will be written at or above `offset` are not the ones that were synced: a truncation follows."""
        state = self.state
        self.lower_recovery_point(offset)
        for listener in state.listeners:
            listener.on_recovery_point_lowered()
        state.durable_offset = min(state.durable_offset, offset)
        if self.job is not None:
            self.job.durable_to = min(self.job.durable_to, offset)

    def note_truncation(self, offset: int) -> None:
        """Record a truncation to `offset`. A flush that is under way may have synced the files before the
        truncation."""
        known = self.unsynced_truncation
        self.unsynced_truncation = offset if known is None else min(offset, known)
        if self.job is not None:
            self.job.covers_truncation = False


def _run(job: FlushJob) -> None:
    try:
        job.run()
    except StorageError as e:
        job.failed(e)
        raise
    job.finish()
