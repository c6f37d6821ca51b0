"""Shell: a cleaning pass seen from the log: planned on the event loop, carried out elsewhere, put in place on the loop.

    plan_cleaning (loop)  ->  a CleaningPass reports groups (anywhere)
    for each group:  stage (executor)   `.cleaned` -> `.swap`, synced: after a crash it will take its place
                     adopt (loop)       old files -> `.deleted`, `.swap` -> nothing, segments exchanged in memory
                     settle (executor)  the directory synced
    finish (loop)         everything below the end offset is clean

A log that is truncated, shortened, closed or deleted meanwhile calls `abort` first, on the loop. That takes staged
files away again before anything else happens, so that no crash can bring back what a truncation has removed.
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
    """Begin a pass over `log`, which must have none under way. On the loop. Raises StorageError."""
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
            producers={
                e.producer_id: LastRecord(e.batches[-1].last_offset if e.batches else None, e.epoch)
                for e in log.producers.entries
            },
            later_aborted=_aborted_beyond(log, candidate.upper_offset),
        )
        job = log.cleaning = CleaningJob(log, task, segments)
        return job


def _aborted_beyond(log: Log, upper_offset: int) -> list[AbortedTxn]:
    """Aborted transactions that reach below `upper_offset` and are listed in later segments."""
    found: list[AbortedTxn] = []
    for segment in log.segments:
        if segment.base_offset >= upper_offset:
            some, complete = segment.txn_index.collect(0, upper_offset)
            found += some
            if complete:
                break
    return found


class CleaningJob:
    """One pass. `stage` and `settle` may run anywhere; the rest belongs to the loop."""

    def __init__(self, log: Log, task: CleaningTask, segments: list[Segment]) -> None:
        self.log = log
        self.task = task
        self.aborted = False
        self._fs = log.fs
        self._path = log.path
        self._sources = {s.base_offset: s for s in segments}
        self._lock = Lock()
        """Held while files are renamed, so that `abort` finds them under one name or the other."""
        self._staged: Segment | None = None

    def check(self) -> None:
        """Raises CleaningAbortedError once the log has called the pass off."""
        if self.aborted:
            raise CleaningAbortedError(f"the log of {self.task.partition} changed while it was being cleaned")

    def stage(self, group: GroupCleaned) -> None:
        """Make the new segment final: from here on a crash does not undo it. Raises StorageError."""
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
        """Put the staged segment in the place of its sources. Raises StorageError (the log has then failed)."""
        self.check()
        fresh, self._staged = self._staged, None
        assert fresh is not None, "stage comes first"
        old = [self._sources[base] for base in group.sources]
        assert all(s in self.log.segments for s in old), "whoever takes segments away aborts the pass"
        self.log.replace_segments([fresh], old, now_ms=now_ms)

    def settle(self) -> None:
        """Make the exchange itself durable. Raises StorageError."""
        if not self.aborted:
            self._fs.sync_dir(self._path)

    def finish(self, end_offset: int) -> None:
        """The pass is over. The new cleaned offset is still to be checkpointed."""
        self.check()
        self.log.cleaning = None
        self.log.cleaned_offset = end_offset

    def abort(self) -> None:
        """Call the pass off and take away what it has not yet put in place."""
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
        """What a pass that failed had begun to write. Once nobody writes any more."""
        if self.log.failed:
            return
        with suppress(StorageError):
            for name in self._fs.listdir(self._path):
                if name.endswith(names.CLEANED):
                    self._fs.unlink(f"{self._path}/{name}")
