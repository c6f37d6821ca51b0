"""Shell: making a log durable, off the event loop.

By default Kafka never calls fsync for an append: replicas protect it. Files are synced when a segment has rolled, when
flush.messages or flush.ms say so, and at a clean shutdown. Only then does the recovery point advance, below which
a restart checks nothing.

An fsync that fails may have dropped the dirty pages (the kernel reports that once and then forgets), so trying again
proves nothing: the log is failed and its directory goes offline.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from barnabas.server.storage import names
from barnabas.server.storage.errors import FileMissingError, StorageError
from barnabas.server.storage.fs import Access, File, FileSystem

if TYPE_CHECKING:
    from barnabas.server.storage.log import Log


class FlushJob:
    """`run()` belongs in an executor; then, back on the loop, `finish()`, or `failed(error)` if it raised.

    At most one per log is under way.
    """

    __slots__ = ("_directory", "_files", "_fs", "_log", "covers_cut", "durable_to", "paths", "up_to")

    def __init__(self, log: Log, fs: FileSystem, up_to: int, files: list[File], paths: list[str]) -> None:
        self._log = log
        self._fs = fs
        self._directory = log.path
        self._files = files
        self.paths = paths
        self.up_to = up_to
        """The recovery point to be. A truncation or a roll meanwhile lowers it."""
        self.durable_to = up_to
        """Every record below this offset will be durable. A truncation meanwhile lowers it."""
        self.covers_cut = False
        """What was cut off before will be gone for good."""

    def run(self) -> None:
        """Raises StorageError."""
        for file in self._files:
            file.sync()
        for path in self.paths:
            with contextlib.suppress(FileMissingError):  # deleted by retention in the meantime
                file = self._fs.open(path, Access.READ)
                try:
                    file.sync()
                finally:
                    file.close()
        self._fs.sync_dir(self._directory)
        if not self._log.named:  # the directory's own entry in its parent: once is enough
            self._fs.sync_dir(self._directory.rpartition("/")[0] or "/")

    def finish(self) -> None:
        self._log.named = True
        self._log.on_flushed(self)

    def failed(self, error: StorageError) -> None:
        """Marks the log failed and reports it. Never retried: see the module's docstring."""
        self._log.fail(error)


def flush_job(self: Log, *, everything: bool = True) -> FlushJob | None:
    """A job that makes the log durable up to its end.

    With `everything=False` the active segment is left out unless flush.messages or flush.ms demand it: what a roll
    asks for. None if there is nothing to sync, or a job is under way.
    """
    with self.guarded():
        active = self.segments.active
        include_active = everything or self.fsync_due(self.seen_ms)
        up_to = self.log_end_offset if include_active else active.base_offset
        # What was cut is gone for good with the segment that the cut was in.
        cut = self.unsynced_cut
        covers_cut = cut is not None and (include_active or cut < up_to)
        if self.flushing is not None or (up_to <= self.recovery_point and not covers_cut):
            return None
        self.save_epochs()
        files = []
        paths = [f"{self.path}/{names.LEADER_EPOCH_CHECKPOINT}"]
        for segment in self.segments.starting_from(self.recovery_point):
            if segment is active and not include_active:
                break
            files.append(segment.file())
            if segment is not active:  # the indexes of the last one are rebuilt after a crash in any case
                segment.write_indexes()
                paths += [segment.file_path(kind) for kind in names.SEGMENT_SUFFIXES[1:]]
        paths += [self.snapshots.path(o) for o in self.snapshots.offsets if self.recovery_point < o <= up_to]
        self.last_flush_ms = self.seen_ms
        self.flushing = FlushJob(self, self.fs, up_to, files, paths)
        self.flushing.covers_cut = covers_cut
        return self.flushing


def on_flushed(self: Log, job: FlushJob) -> None:
    """Called by the job, on the loop."""
    if self.flushing is job:
        self.flushing = None
    if job.covers_cut:
        self.unsynced_cut = None
    flushed_from, self.recovery_point = self.recovery_point, max(self.recovery_point, job.up_to)
    for segment in self.segments.starting_from(flushed_from):
        if segment is not self.segments.active and segment.base_offset < self.recovery_point:
            self.warm.touch(segment)
    if job.durable_to > self.durable_offset:
        self.durable_offset = job.durable_to
        if self.on_durable is not None:
            self.on_durable()


def lower_recovery_point(self: Log, offset: int) -> None:
    """What lies at or above `offset` is not (or no longer) what was synced."""
    self.recovery_point = min(self.recovery_point, offset)
    if self.flushing is not None:
        self.flushing.up_to = min(self.flushing.up_to, offset)


def lower_durable_offset(self: Log, offset: int) -> None:
    """The log is about to be cut: what is written from `offset` on is not what was synced."""
    self.lower_recovery_point(offset)
    if self.on_recovery_point_lowered is not None:
        self.on_recovery_point_lowered()
    self.durable_offset = min(self.durable_offset, offset)
    if self.flushing is not None:
        self.flushing.durable_to = min(self.flushing.durable_to, offset)


def note_cut(self: Log, offset: int) -> None:
    """The log has been cut; a flush that is under way may have come too early."""
    self.unsynced_cut = offset if self.unsynced_cut is None else min(offset, self.unsynced_cut)
    if self.flushing is not None:
        self.flushing.covers_cut = False


def flush(self: Log) -> None:
    """Make everything durable, here and now."""
    job = self.flush_job()
    if job is not None:
        _run(job)


def _run(job: FlushJob) -> None:
    try:
        job.run()
    except StorageError as e:
        job.failed(e)
        raise
    job.finish()


def close(self: Log, *, clean: bool = True) -> None:
    """`clean`: write indexes and a producer snapshot and sync all, so that the next start need not look.

    Raises StorageError if that fails: then the clean-shutdown marker must not be written.
    """
    self.abort_cleaning()
    if clean and self.failure is None:
        with self.guarded():
            self.flushing = None
            active = self.segments.active
            written = active.seal() if active.ready else []
            snapshot = None
            if active.size == 0:
                written = []  # indexes of nothing: a thousand unused partitions must not mean thousands of syncs
            if active.size or len(self.producers) or self.snapshots.offsets:
                snapshot = self.snapshots.take(self.producers)
            job = self.flush_job()
            if job is None and (written or snapshot):
                job = FlushJob(self, self.fs, self.recovery_point, [], [])
            if job is not None:
                job.paths += [*written, *([snapshot] if snapshot else [])]
                _run(job)
            self.delete_pending_files(None)
    for segment in self.segments:
        self.warm.forget(segment)
        segment.cool()
