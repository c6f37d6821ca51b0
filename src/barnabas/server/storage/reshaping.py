"""Shell: taking things out of a log: truncation, a later start, segments that go or are replaced.

Files are never unlinked at once: they are renamed to `.deleted`, and go after file.delete.delay.ms, so that readers
that hold them open, or are about to, find them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.server.storage import names
from barnabas.server.storage.recovery import replay_producers
from barnabas.server.storage.segments.segment import Segment

if TYPE_CHECKING:
    from barnabas.server.storage.log import Log


def truncate_to(self: Log, offset: int, *, now_ms: int | None = None) -> bool:
    """Drop `offset` and all after it; the log then ends at `offset`. False if it ends there or before already.

    A batch that holds `offset` goes as a whole.
    """
    with self.guarded():
        if offset >= self.log_end_offset:
            # An epoch in which this replica led and wrote nothing begins at the end: no other log knows of it, so
            # the epoch of the last record would be asked for in vain, for ever (UnifiedLog.truncateTo).
            self.epochs.truncate_from_end(self.log_end_offset)
            self.save_epochs()
            return False
        if offset < self.segments.first.base_offset:
            self.truncate_fully_and_start_at(offset, now_ms=now_ms)
            return True
        self.lower_durable_offset(offset)
        self.lower_cleaned_offset(offset)
        moment = self.seen_ms if now_ms is None else now_ms
        for segment in [s for s in self.segments if s.base_offset > offset]:
            self.drop_segment(segment, moment)
        active = self.segments.active
        active.prepare_append()
        active.truncate_to(offset)
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.epochs.truncate_from_end(offset)
        self.save_epochs()
        self.snapshots.delete_outside(self.log_start_offset, offset)
        replay_producers(self.producers, self.snapshots, list(self.segments), self.log_start_offset, offset, moment)
        _tell_of_cut(self, offset)
        return True


def truncate_fully_and_start_at(
    self: Log, offset: int, log_start_offset: int | None = None, *, now_ms: int | None = None
) -> None:
    """Drop everything; the log is empty and begins (and ends) at `offset`."""
    with self.guarded():
        moment = self.seen_ms if now_ms is None else now_ms
        self.lower_durable_offset(offset)
        self.lower_cleaned_offset(0)
        for segment in list(self.segments):
            self.drop_segment(segment, moment)
        self.segments.add(self.new_segment(offset, moment))
        self.snapshots.delete_outside(-1, -1)
        self.epochs.clear()
        self.save_epochs()
        self.log_end_offset = offset
        self.log_start_offset = offset if log_start_offset is None else log_start_offset
        self.recovery_point = min(self.recovery_point, offset)
        self.producers.reset(offset)
        _tell_of_cut(self, offset)


def _tell_of_cut(log: Log, offset: int) -> None:
    log.note_cut(offset)
    if log.on_cut is not None:
        log.on_cut()


def skip_to(self: Log, offset: int, *, now_ms: int) -> None:
    """Nothing lies between the log's end and `offset`, where it goes on: the copy of a log whose last records
    compaction has removed."""
    assert offset > self.log_end_offset, "there is nothing to skip"
    with self.guarded():
        active = self.segments.active
        if active.size:
            active.seal()
            self.lower_recovery_point(active.base_offset)
        else:
            self.drop_segment(active, now_ms)
        self.producers.end_offset = offset
        self.snapshots.take(self.producers)
        self.segments.add(self.new_segment(offset, now_ms))
        self.log_end_offset = offset


def advance_log_start(self: Log, offset: int) -> bool:
    """Records below `offset` are gone for readers; their segments go with the next retention. False if they were gone.

    Raises KafkaError(OFFSET_OUT_OF_RANGE) beyond the log's end.
    """
    if offset > self.log_end_offset:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{self.topic_partition} ends at {self.log_end_offset} and cannot start at {offset}",
        )
    if offset <= self.log_start_offset:
        return False
    with self.guarded():
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        self.save_epochs()
        self.producers.on_log_start(offset)
        if self.on_start is not None:
            self.on_start()
        return True


def delete_records(self: Log, before_offset: int, high_watermark: int, *, now_ms: int) -> int:
    """DeleteRecords: the log starts at `before_offset` (-1: at the high watermark). Returns the new start.

    Raises KafkaError: OFFSET_OUT_OF_RANGE above the high watermark or below -1, POLICY_VIOLATION if the topic is only
    compacted.
    """
    if not self.config.delete and self.config.cleanup_policy:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"records of {self.topic_partition} cannot be deleted: cleanup.policy does not include 'delete'",
        )
    offset = high_watermark if before_offset == -1 else before_offset
    if not 0 <= offset <= high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{self.topic_partition} cannot be deleted up to {before_offset}: its high watermark is {high_watermark}",
        )
    self.advance_log_start(offset)
    self.delete_old_segments(now_ms, high_watermark)
    return self.log_start_offset


def abort_cleaning(self: Log) -> None:
    """Call off the compaction under way: what it read is about to change."""
    if self.cleaning is not None:
        self.cleaning.abort()


def lower_cleaned_offset(self: Log, offset: int) -> None:
    """What will be written at or above `offset` is dirty, whatever lay there before."""
    if offset < self.cleaned_offset:
        self.cleaned_offset = offset
        if self.on_cleaned_lowered is not None:
            self.on_cleaned_lowered()


def drop_segment(self: Log, segment: Segment, now_ms: int) -> None:
    """Take a segment out of the log and rename its files, and its snapshot, to `.deleted`."""
    self.abort_cleaning()
    self.segments.remove(segment)
    paths = _set_aside(self, segment)
    snapshot = self.snapshots.set_aside(segment.base_offset)
    if snapshot is not None:
        paths.append(snapshot)
    self.pending_deletes.append((now_ms + self.config.file_delete_delay_ms, paths))


def _set_aside(log: Log, segment: Segment) -> list[str]:
    log.warm.forget(segment)
    segment.rename(names.DELETED)
    segment.cool()
    return [segment.file_path(kind) for kind in names.SEGMENT_SUFFIXES]


def delete_pending_files(self: Log, now_ms: int | None) -> int:
    """Unlink `.deleted` files whose delay is over (None: all of them); how many segments."""
    if self.failed:
        return 0
    with self.guarded():
        due = [entry for entry in self.pending_deletes if now_ms is None or entry[0] <= now_ms]
        for entry in due:
            for path in entry[1]:
                self.fs.unlink(path)
            self.pending_deletes.remove(entry)
        return len(due)


def replace_segments(self: Log, new: Sequence[Segment], old: Sequence[Segment], *, now_ms: int) -> None:
    """Put `new` segments, written and synced under `.cleaned`, in the place of `old` ones; safe at every step.

    1. `.cleaned` -> `.swap`, from the last to the first. A crash before the first is renamed undoes all: see recovery.
    2. The old files -> `.deleted`. From here on a crash finishes the replacement.
    3. `.swap` -> nothing.

    `old` may have lost segments to retention meanwhile. The active segment is never replaced.
    """
    with self.guarded():
        fresh = sorted(new, key=lambda s: s.base_offset)
        for segment in reversed(fresh):
            segment.rename(names.SWAP)
        self.fs.sync_dir(self.path)
        adopt_segments(self, fresh, old, now_ms=now_ms)
        self.fs.sync_dir(self.path)


def adopt_segments(self: Log, new: Sequence[Segment], old: Sequence[Segment], *, now_ms: int) -> None:
    """Steps 2 and 3 for segments that are `.swap` already, and durably so; the caller syncs the directory after."""
    with self.guarded():
        gone = [s for s in old if s in self.segments]
        assert new, "nothing to put in place; drop_segment is for that"
        assert self.segments.active not in gone, "the active segment must not be replaced"
        kept = {segment.base_offset for segment in new}
        for segment in gone:
            self.segments.remove(segment)
            paths = _set_aside(self, segment)
            if segment.base_offset not in kept:
                snapshot = self.snapshots.set_aside(segment.base_offset)
                paths += [snapshot] if snapshot is not None else []
            self.pending_deletes.append((now_ms + self.config.file_delete_delay_ms, paths))
        for segment in new:
            segment.rename("")
            segment.cool()
            self.segments.add(segment)
