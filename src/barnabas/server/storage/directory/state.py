"""Shell: the state of one data directory, shared by `LogDir` and `FutureLogs`: its logs, checkpoints and failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final
from uuid import UUID

from msgspec import Struct

from barnabas.core.ids import INTERNAL_TOPICS, TopicPartition
from barnabas.core.telemetry import get_logger
from barnabas.server.storage import names
from barnabas.server.storage.config import LogConfig
from barnabas.server.storage.directory.checkpoints import read_offsets, write_offsets
from barnabas.server.storage.directory.identity import take_clean_shutdown
from barnabas.server.storage.directory.segment_sizes import check_sizes, read_broker_epoch, read_sizes
from barnabas.server.storage.errors import (
    CorruptFileError,
    DamagedLogError,
    DescriptorsExhaustedError,
    LogFailedError,
    StorageError,
    TransientStorageError,
)
from barnabas.server.storage.fs import FileSystem
from barnabas.server.storage.listener import LogListener
from barnabas.server.storage.log import Log
from barnabas.server.storage.segments.open_segments import OpenSegments

log = get_logger("barnabas.server.storage")

Offsets = dict[TopicPartition, int]

VERIFIED_BYTES: Final = 64 << 20
"""When the logs of the coordinators are opened, the CRCs of this many bytes per directory are checked, which takes two
seconds at most (27 ms per MB of batches of 200 bytes, 1 ms per MB of batches of 15 kB). The other bytes are checked
when the logs are replayed."""


_EFFECTS: Final = {
    names.RECOVERY_POINT_CHECKPOINT: "after a crash all records are checked, and damage can look like a torn end",
    names.HIGH_WATERMARK_CHECKPOINT: "high watermarks begin at the log start offsets, and rise with the next fetches",
    names.LOG_START_CHECKPOINT: "records that DeleteRecords removed from an oldest segment can be read again",
    names.CLEANER_CHECKPOINT: "compaction begins again at the start of the logs",
}
"""What follows if a checkpoint file cannot be read."""


class FoundLog(Struct, frozen=True):
    """A partition's directory, as found by `LogDir.scan`."""

    topic_partition: TopicPartition
    name: str
    topic_id: UUID | None
    """The id of the log's topic; None if it is unknown."""
    future: bool
    problem: str = ""
    """The reason for which the topic id is unknown."""


class _DirectoryListener(LogListener):
    """Reports the events of one log to its directory."""

    def __init__(self, directory: LogDirState) -> None:
        self._directory = directory
        self.log: Log | None = None
        """The log; None until it is open."""

    def on_failed(self, error: StorageError) -> None:
        if not isinstance(error, DamagedLogError):
            self._directory.fail(error)

    def on_recovery_point_lowered(self) -> None:
        if self.log is not None:
            self._directory.on_recovery_point_lowered(self.log)

    def on_cleaned_offset_lowered(self) -> None:
        self._directory.checkpoint_cleaned()


class LogDirState:
    """The parts of a data directory. Reads the clean-shutdown marker and the checkpoints, and removes the marker."""

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        producer_id_expiration_ms: int,
        on_failed: Callable[[StorageError], None],
        open_segments: OpenSegments,
    ) -> None:
        self.fs = fs
        self.path = path
        self.failure: StorageError | None = None
        """The reason for which the directory is offline, or None."""
        self.clean_shutdown, self.previous_broker_epoch = take_clean_shutdown(fs, path)
        if self.clean_shutdown and self.previous_broker_epoch < 0:
            self.previous_broker_epoch = read_broker_epoch(fs, path)
        self.high_watermarks = self._read_checkpoint(names.HIGH_WATERMARK_CHECKPOINT)
        """The high watermarks that the previous process stored, and those stored since."""
        self.segment_sizes = read_sizes(fs, path, self.previous_broker_epoch) if self.clean_shutdown else {}
        """The sizes of the segments at the clean shutdown, of the logs that have not been opened."""
        self.logs: dict[TopicPartition, Log] = {}
        self.future_logs: dict[TopicPartition, Log] = {}
        """The unfinished copies, in this directory, of logs that are in other directories."""
        self._recovery_points = self._read_checkpoint(names.RECOVERY_POINT_CHECKPOINT)
        self._named_in_checkpoint: set[TopicPartition] = set()
        """The logs that a durable version of the checkpoint of recovery points may name."""
        if self._recovery_points and not self.clean_shutdown:
            with suppress(TransientStorageError):  # an older version may be the durable one
                write_offsets(fs, f"{path}/{names.RECOVERY_POINT_CHECKPOINT}", self._recovery_points)
        self._named_in_checkpoint.update(self._recovery_points)
        self._verify_bytes = VERIFIED_BYTES
        self._log_starts = self._read_checkpoint(names.LOG_START_CHECKPOINT)
        self._cleaned = self._read_checkpoint(names.CLEANER_CHECKPOINT)
        self.indexes_rebuilt = 0
        """The segments whose indexes this process has rebuilt when it opened logs."""
        self.created: list[str] = []
        """The paths of logs whose names and topic ids are not known to be durable."""
        self.unopened: set[str] = set()
        """Names of the logs' directories that this process has not opened."""
        self.pending_deletes: list[tuple[int, str]] = []
        """(time in ms, path): directories that have been renamed for deletion and are removed at that time."""
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._open_segments = open_segments
        self._on_failed = on_failed

    def _read_checkpoint(self, name: str) -> Offsets:
        try:
            return read_offsets(self.fs, f"{self.path}/{name}")
        except CorruptFileError as e:
            log.warning("checkpoint ignored", path=f"{self.path}/{name}", reason=str(e), effect=_EFFECTS[name])
            return {}

    # --- failure

    def fail(self, error: StorageError) -> None:
        """Take the directory and all its logs offline, and report the failure. A second call has no effect, and neither
        has a DescriptorsExhaustedError."""
        if self.failure is not None or isinstance(error, DescriptorsExhaustedError):
            return
        self.failure = error
        log.error("log directory failed", path=self.path, reason=str(error))
        for member in (*self.logs.values(), *self.future_logs.values()):
            member.fail(error)
        self._on_failed(error)

    def check_usable(self) -> None:
        """Raises LogFailedError once the directory has failed."""
        if self.failure is not None:
            raise LogFailedError(f"the data directory {self.path} is offline since: {self.failure}")

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Take the directory offline if the block raises a StorageError, unless the error is transient or concerns one
        damaged log."""
        try:
            yield
        except (TransientStorageError, DamagedLogError):
            raise
        except StorageError as e:
            self.fail(e)
            raise

    # --- logs

    def open_log(
        self, topic_partition: TopicPartition, name: str, topic_id: UUID | None, config: LogConfig, now_ms: int
    ) -> Log:
        """Open the log in the directory `name`. Raises DamagedLogError, which takes only this log offline, and
        StorageError."""
        self.check_usable()
        if topic_partition in self._named_in_checkpoint and topic_partition not in self._recovery_points:
            # The recovery point of a deleted log: a new log of the same name must not be opened with it.
            self.checkpoint_recovery_points(durable=True)
        sizes = self.segment_sizes.get(topic_partition) if name == str(topic_partition) else None
        if sizes is not None:
            check_sizes(self.fs, f"{self.path}/{name}", sizes)
        verified = topic_partition.topic in INTERNAL_TOPICS
        listener = _DirectoryListener(self)
        with self.guarded():
            opened = Log.open(
                self.fs,
                f"{self.path}/{name}",
                config,
                topic_partition=topic_partition,
                now_ms=now_ms,
                clean_shutdown=self.clean_shutdown,
                recovery_point=self._recovery_points.get(topic_partition, 0),
                log_start_offset=self._log_starts.get(topic_partition, 0),
                cleaned_offset=self._cleaned.get(topic_partition, 0),
                verify_bytes=self._verify_bytes if verified else 0,
                topic_id=topic_id,
                producer_id_expiration_ms=self._producer_id_expiration_ms,
                listeners=(listener,),
                open_segments=self._open_segments,
            )
        opened.cleaned_offset = min(self._cleaned.get(topic_partition, 0), opened.log_end_offset)
        listener.log = opened
        if sizes is not None:
            del self.segment_sizes[topic_partition]
        if verified:
            self._verify_bytes = max(self._verify_bytes - opened.size_bytes, 0)
        report = opened.recovery
        self.indexes_rebuilt += report.indexes_rebuilt
        if report.indexes_rebuilt and self.clean_shutdown:  # after a crash this is so with every log that has records
            log.warning(
                "indexes were missing or damaged, and were rebuilt from the log",
                partition=str(topic_partition), segments=report.indexes_rebuilt,
            )  # fmt: skip
        if report.bytes_truncated or report.segments_dropped:
            log.warning(
                "log repaired after a crash",
                partition=str(topic_partition),
                end_offset=opened.log_end_offset,
                bytes_checked=report.bytes_checked,
                bytes_truncated=report.bytes_truncated,
                segments_dropped=report.segments_dropped,
            )
        return opened

    def move_log(self, topic_partition: TopicPartition, source: str, target: str, *, durable: bool) -> None:
        """Rename a log's directory for deletion or as a stray, and remove the log from the checkpoints."""
        self.check_usable()
        with self.guarded():
            self.fs.rename(source, target)
            if durable:
                self.fs.sync_dir(self.path)
        for offsets in (self._recovery_points, self._log_starts, self.high_watermarks, self.segment_sizes):
            offsets.pop(topic_partition, None)
        if self._cleaned.pop(topic_partition, None) is not None:
            self._write(names.CLEANER_CHECKPOINT, self._cleaned, durable=False)

    # --- checkpoints

    def set_log_start(self, topic_partition: TopicPartition, offset: int) -> None:
        """Set the log start offset with which `open_log` opens the log, instead of the one in the checkpoint."""
        self._log_starts[topic_partition] = offset

    def forget(self, topic_partition: TopicPartition) -> None:
        """Remove the partition from the offsets that the next checkpoints write."""
        for offsets in (self._recovery_points, self._log_starts, self._cleaned, self.high_watermarks):
            offsets.pop(topic_partition, None)

    def checkpoint_recovery_points(self, *, durable: bool = False) -> None:
        """Write the recovery point of each log (log.flush.offset.checkpoint.interval.ms)."""
        self._recovery_points.update({tp: member.recovery_point for tp, member in self.logs.items()})
        self._write(names.RECOVERY_POINT_CHECKPOINT, self._recovery_points, durable)
        if durable:
            self._named_in_checkpoint.clear()
        self._named_in_checkpoint.update(self._recovery_points)

    def on_recovery_point_lowered(self, member: Log) -> None:
        """Write the checkpoint if it has a larger recovery point than the log, because a truncation follows.

        With the old checkpoint, a restart after a crash would accept truncated records without checking them.
        """
        known = self._recovery_points.get(member.topic_partition, 0)
        if known > member.recovery_point and self.logs.get(member.topic_partition) is member:
            self.checkpoint_recovery_points(durable=True)

    def checkpoint_log_starts(self, *, durable: bool = False) -> None:
        """Write the log start offsets that differ from the base offset of the first segment
        (log.flush.start.offset.checkpoint.interval.ms). Those of tiered logs may be lower, too."""
        for tp, member in self.logs.items():
            if member.log_start_offset > member.segments.first.base_offset or member.config.tiered:
                self._log_starts[tp] = member.log_start_offset
            else:
                self._log_starts.pop(tp, None)
        self._write(names.LOG_START_CHECKPOINT, self._log_starts, durable)

    def checkpoint_cleaned(self, *, durable: bool = False) -> None:
        """Write the cleaned offset of each log. With an older checkpoint, records are only compacted a second time."""
        for tp, member in self.logs.items():
            if member.cleaned_offset or tp in self._cleaned:
                self._cleaned[tp] = member.cleaned_offset
        self._write(names.CLEANER_CHECKPOINT, self._cleaned, durable)

    def checkpoint_high_watermarks(self, values: Mapping[TopicPartition, int], *, durable: bool = False) -> None:
        """Write high watermarks (replica.high.watermark.checkpoint.interval.ms). Logs that are not in `values` keep
        their stored one."""
        self.high_watermarks.update(values)
        self._write(names.HIGH_WATERMARK_CHECKPOINT, self.high_watermarks, durable)

    def _write(self, name: str, offsets: Offsets, durable: bool) -> None:
        self.check_usable()
        with self.guarded():
            write_offsets(self.fs, f"{self.path}/{name}", offsets, durable=durable)
