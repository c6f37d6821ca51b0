"""Shell: the steps of a cleaning pass that change the log: planning, and putting the new segments in place.

    plan_cleaning (loop)  ->  a CleaningPass reports groups (in any thread or process)
    for each group:  stage (executor)   `.cleaned` -> `.swap`, synced: recovery then completes the replacement
                     adopt (loop)       old files -> `.deleted`, `.swap` -> no suffix, segments replaced in memory
                     settle (executor)  sync of the directory
    finish (loop)         the log is clean below the end offset

A log that is truncated, closed or deleted during a pass, or loses segments to retention, first calls `abort` on the
loop. `abort` deletes the staged files, so that recovery after a crash cannot restore records that a truncation has
removed.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Lock

from barnabas.server.storage import names
from barnabas.server.storage.cleaner.cleanable import CleanableLog
from barnabas.server.storage.cleaner.errors import CleaningAbortedError
from barnabas.server.storage.cleaner.task import CleanerConfig, CleaningTask, GroupCleaned, LastRecord, SourceSegment
from barnabas.server.storage.errors import StorageError
from barnabas.server.storage.log import Log
from barnabas.server.storage.segments.segment import Segment
from barnabas.server.storage.values import AbortedTxn


def plan_cleaning(
    log: Log, candidate: CleanableLog, *, now_ms: int, secret: tuple[int, int], config: CleanerConfig
) -> CleaningJob:
    """Begin a pass over `log`, on the loop. No other pass over the log may be in progress. Raises StorageError."""
    assert log.cleaning is None, "one pass at a time per log"
    with log.guarded():
        log_config = log.config
        segments = [s for s in log.segments if s.base_offset < candidate.upper_offset]
        task = CleaningTask(
            path=log.path,
            partition=str(log.topic_partition),
            segments=[SourceSegment(s.base_offset, s.size) for s in segments],
            first_dirty_offset=candidate.first_dirty_offset,
            upper_offset=candidate.upper_offset,
            now_ms=now_ms,
            delete_retention_ms=log_config.delete_retention_ms,
            segment_bytes=log_config.segment_size,
            segment_index_bytes=log_config.segment_index_bytes,
            index_interval_bytes=log_config.index_interval_bytes,
            secret=secret,
            config=config,
            max_decompressed_message_bytes=log_config.max_decompressed_message_bytes,
            producers={
                e.producer_id: LastRecord(e.batches[-1].last_offset if e.batches else None, e.epoch)
                for e in log.producers.entries
            },
            later_aborted=_aborted_beyond(log, candidate.upper_offset),
        )
        job = log.cleaning = CleaningJob(log, task, segments)
        return job


def _aborted_beyond(log: Log, upper_offset: int) -> list[AbortedTxn]:
    """The aborted transactions with records below `upper_offset` whose markers are in later segments."""
    found: list[AbortedTxn] = []
    for segment in log.segments:
        if segment.base_offset >= upper_offset:
            some, complete = segment.txn_index.collect(0, upper_offset)
            found += some
            if complete:
                break
    return found


class CleaningJob:
    """One pass. `stage` and `settle` may run in an executor, all other methods on the loop."""

    def __init__(self, log: Log, task: CleaningTask, segments: list[Segment]) -> None:
        self.log = log
        self.task = task
        self.aborted = False
        self._fs = log.fs
        self._path = log.path
        self._sources = {s.base_offset: s for s in segments}
        self._lock = Lock()
        """Held while files are renamed, so that `abort` finds all of them under the same suffix."""
        self._staged: Segment | None = None

    def check(self) -> None:
        """Raises CleaningAbortedError if the log has aborted the pass."""
        if self.aborted:
            raise CleaningAbortedError(f"the log of {self.task.partition} changed while it was being cleaned")

    def stage(self, group: GroupCleaned) -> None:
        """Rename the new segment to `.swap` and sync the directory, after which a crash does not undo the replacement.
        Raises StorageError."""
        fresh = Segment(
            self._fs,
            self._path,
            group.sources[0],
            index_interval_bytes=self.task.index_interval_bytes,
            created_ms=self.task.now_ms,
            size=group.size,
            suffix=names.CLEANED,
        )
        with self._lock:
            self.check()
            self._staged = fresh
            try:
                fresh.rename(names.SWAP)
            except StorageError:
                self._staged = None
                for suffix in (names.SWAP, names.CLEANED):
                    fresh.suffix = suffix
                    with suppress(StorageError):
                        fresh.unlink()
                raise
        self._fs.sync_dir(self._path)

    def adopt(self, group: GroupCleaned, *, now_ms: int) -> None:
        """Replace the source segments by the staged one. Raises StorageError, after which the log is offline."""
        self.check()
        fresh, self._staged = self._staged, None
        assert fresh is not None, "stage comes first"
        old = [self._sources[base] for base in group.sources]
        assert all(s in self.log.segments for s in old), "a deletion of segments aborts the pass"
        self.log.replace_segments([fresh], old, now_ms=now_ms)

    def settle(self) -> None:
        """Make the replacement durable. Raises StorageError."""
        if not self.aborted:
            self._fs.sync_dir(self._path)

    def finish(self, end_offset: int) -> None:
        """End the pass and set the log's cleaned offset. The caller writes the checkpoint."""
        self.check()
        self.log.cleaning = None
        self.log.cleaned_offset = end_offset

    def abort(self) -> None:
        """Abort the pass, and delete a staged segment."""
        if self.aborted:
            return
        self.aborted = True
        if self.log.cleaning is self:
            self.log.cleaning = None
        with self._lock, suppress(StorageError):
            staged, self._staged = self._staged, None
            if staged is not None:
                staged.unlink()
                self._fs.sync_dir(self._path)

    def remove_leftovers(self) -> None:
        """Delete the `.cleaned` files of a failed pass. The pass must have stopped writing."""
        if self.log.failed:
            return
        with suppress(StorageError):
            for name in self._fs.listdir(self._path):
                if name.endswith(names.CLEANED):
                    self._fs.unlink(f"{self._path}/{name}")
