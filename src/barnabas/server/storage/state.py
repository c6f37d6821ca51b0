"""Value: the state of one log, shared by the classes and functions that append, read, truncate, flush and delete.

    log_start_offset <= recovery_point <= log_end_offset       (the recovery point may also lie below the start)
    ^ oldest record     ^ durable below     ^ next to be written

`Log` builds the state when it opens the directory. All of it is used on one thread, the event loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from barnabas.core.ids import TopicPartition
from barnabas.server.storage import names
from barnabas.server.storage.config import LogConfig
from barnabas.server.storage.epochs import LeaderEpochs
from barnabas.server.storage.errors import (
    DescriptorsExhaustedError,
    LogFailedError,
    StorageError,
    TransientStorageError,
)
from barnabas.server.storage.fs import FileSystem, replace_file
from barnabas.server.storage.listener import LogListener
from barnabas.server.storage.producers.snapshots import SnapshotFiles
from barnabas.server.storage.producers.state import ProducerState
from barnabas.server.storage.segments.open_segments import OpenSegments
from barnabas.server.storage.segments.segments import Segments


class OngoingCleaning(Protocol):
    """The compaction pass that is reading the log's segments."""

    def abort(self) -> None: ...


class LogState:
    """The parts of a log: its segments, its offsets, its leader epochs and its producers."""

    __slots__ = (
        "cleaned_offset",
        "cleaning",
        "config",
        "durable_offset",
        "epochs",
        "failure",
        "fs",
        "highest_copied_offset",
        "listeners",
        "log_end_offset",
        "log_start_offset",
        "moving",
        "now_ms",
        "open_segments",
        "path",
        "producers",
        "recovery_point",
        "segments",
        "snapshots",
        "topic_partition",
    )

    def __init__(
        self,
        *,
        fs: FileSystem,
        path: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        segments: Segments,
        epochs: LeaderEpochs,
        producers: ProducerState,
        snapshots: SnapshotFiles,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        now_ms: int,
        open_segments: OpenSegments,
        listeners: tuple[LogListener, ...],
    ) -> None:
        self.fs = fs
        self.path = path
        self.topic_partition = topic_partition
        self.config = config
        self.segments = segments
        self.epochs = epochs
        self.producers = producers
        self.snapshots = snapshots
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.recovery_point = recovery_point
        """Everything below this offset is durable, including the indexes of segments that have been rolled."""
        self.durable_offset = recovery_point
        """Every record below this offset is durable. Unlike the recovery point, a roll does not lower it."""
        self.cleaned_offset = 0
        """Compaction has processed everything below this offset. The log's directory stores it in a checkpoint."""
        self.highest_copied_offset = -1
        """Everything from the local start up to this offset, inclusive, is in the object store (KIP-405). Tiered
        storage sets the offset; without it, a tiered log deletes no segment above its start."""
        self.failure: StorageError | None = None
        """The reason for which the log is offline, or None."""
        self.now_ms = now_ms
        """The latest time that a caller has passed to the log."""
        self.open_segments = open_segments
        for segment in segments:
            segment.join(open_segments)
        self.listeners = listeners
        self.cleaning: OngoingCleaning | None = None
        self.moving = False
        """Whether the log is being copied to another directory. Compaction is suspended meanwhile: a tombstone that is
        removed now may leave the record that the tombstone deletes in the copy."""

    @property
    def local_log_start_offset(self) -> int:
        """The oldest offset that the local segments have. Below, a tiered log has only copies."""
        return max(self.log_start_offset, self.segments.first.base_offset)

    @property
    def is_continued_below(self) -> bool:
        """Whether the log has records that are only in the object store."""
        return self.config.tiered and self.log_start_offset < self.segments.first.base_offset

    @property
    def size_bytes(self) -> int:
        return sum([segment.size for segment in self.segments])

    def figures(self) -> tuple[int, int, int, int, int]:
        """The size in bytes, the number of segments, the log start offset, the log end offset and the number of
        producers: what a page of metrics shows of each log, in one call."""
        segments = self.segments
        count = len(segments)
        size = segments.active.size if count == 1 else self.size_bytes  # the common case, on a hot path
        return size, count, self.log_start_offset, self.log_end_offset, len(self.producers)

    # --- failure

    def check_usable(self) -> None:
        """Raises LogFailedError once the log has failed."""
        if self.failure is not None:
            raise LogFailedError(f"the log of {self.topic_partition} is offline since: {self.failure}")

    def fail(self, error: StorageError) -> None:
        """Take the log offline and notify the listeners. A second call has no effect.

        A DescriptorsExhaustedError does not take the log offline: the file that could not be opened is intact.
        """
        if self.failure is None and not isinstance(error, DescriptorsExhaustedError):
            self.failure = error
            for listener in self.listeners:
                listener.on_failed(error)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Take the log offline if the block raises a StorageError other than TransientStorageError.

        A full disk or a lack of descriptors only fails the operation. Raises LogFailedError if the log is offline
        already.
        """
        self.check_usable()
        try:
            yield
        except TransientStorageError:
            raise
        except StorageError as e:
            self.fail(e)
            raise

    # --- leader epochs

    def save_epochs(self) -> None:
        """Write the leader epoch checkpoint if the epochs have changed. A flush syncs the file.

        After a crash the file may be old or torn: recovery adds the epochs of the batches that it checks. A tiered log
        has records only in the object store, whose epochs would be lost, so its file is synced at once. If the disk is
        full, or no descriptor is left, the next flush tries to write the file again.
        """
        if self.epochs.changed:
            try:
                path = f"{self.path}/{names.LEADER_EPOCH_CHECKPOINT}"
                is_tiered = self.config.copies or self.is_continued_below
                replace_file(self.fs, path, self.epochs.encode(), durable=is_tiered)
                self.epochs.changed = False
            except TransientStorageError:
                pass  # `changed` stays set
            except StorageError as e:
                self.fail(e)

    # --- compaction

    def abort_cleaning(self) -> None:
        """Abort the compaction pass that is under way, because the segments that the pass reads are about to change."""
        if self.cleaning is not None:
            self.cleaning.abort()

    def lower_cleaned_offset(self, offset: int) -> None:
        """Lower `cleaned_offset` to `offset` because of a truncation: records that follow have not been compacted."""
        if offset < self.cleaned_offset:
            self.cleaned_offset = offset
            for listener in self.listeners:
                listener.on_cleaned_offset_lowered()
