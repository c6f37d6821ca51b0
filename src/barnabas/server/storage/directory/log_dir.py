"""Shell: a data directory and the partition logs in it (what Kafka's LogManager does for one of its log.dirs).

    meta.properties  .lock  .kafka_cleanshutdown  *-offset-checkpoint
    <topic>-<partition>/                    a log
    <topic>-<partition>.<uuid>-delete/      one that was deleted; its files go after file.delete.delay.ms
    <topic>-<partition>.<uuid>-future/      one that is being moved here from another directory
    <topic>-<partition>.<uuid>-stray/       one that the cluster does not place here; kept for a human to look at

The directory is locked while it is open. A failure of the disk takes all its logs offline, is reported once, and
leaves other directories alone. The checkpoints may lag behind and even be lost without harm: recovery then reads
more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from uuid import UUID

from msgspec import Struct

from barnabas.core.ids import METADATA_TOPIC, NO_TOPIC_ID, TopicPartition
from barnabas.core.telemetry import get_logger
from barnabas.server.storage import names
from barnabas.server.storage.config import LogConfig
from barnabas.server.storage.directory import moving
from barnabas.server.storage.directory.checkpoints import read_offsets, write_offsets
from barnabas.server.storage.directory.identity import (
    MetaProperties,
    leave_clean_shutdown,
    read_meta_properties,
    read_topic_id,
    take_clean_shutdown,
    write_topic_id,
)
from barnabas.server.storage.errors import (
    CorruptFileError,
    DiskFullError,
    LogDirError,
    LogDirMismatchError,
    LogFailedError,
    StorageError,
)
from barnabas.server.storage.fs import DiskUsage, FileSystem, Lock, replace_file
from barnabas.server.storage.listener import LogListener
from barnabas.server.storage.log import Log
from barnabas.server.storage.segments.segments import WarmSegments

log = get_logger("barnabas.server.storage")

Offsets = dict[TopicPartition, int]


class FoundLog(Struct, frozen=True):
    """A partition's directory met by `LogDir.scan`."""

    topic_partition: TopicPartition
    name: str
    topic_id: UUID | None
    future: bool


class _MemberListener(LogListener):
    """Reports the events of one log to its directory."""

    def __init__(self, directory: LogDir) -> None:
        self._directory = directory
        self.log: Log | None = None

    def on_failed(self, error: StorageError) -> None:
        self._directory.fail(error)

    def on_recovery_point_lowered(self) -> None:
        if self.log is not None:
            self._directory.on_recovery_point_lowered(self.log)

    def on_cleaned_offset_lowered(self) -> None:
        self._directory.checkpoint_cleaned()


class LogDir:
    """`LogDir.open` locks the directory and reads meta.properties and checkpoints; logs are opened one by one."""

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        lock: Lock,
        meta: MetaProperties,
        directory_id: UUID,
        on_failure: Callable[[LogDir, StorageError], None] | None,
    ) -> None:
        self.fs = fs
        self.path = path
        self.cluster_id = meta.cluster_id
        self.node_id = meta.node_id
        self.directory_id = directory_id
        self.failure: StorageError | None = None
        """Why the directory is offline, or None."""
        self.producer_expiration_ms = 86_400_000
        """producer.id.expiration.ms for logs opened from now on."""
        self.clean_shutdown, self.previous_broker_epoch = take_clean_shutdown(fs, path)
        self.high_watermarks = self._read_checkpoint(names.HIGH_WATERMARK_CHECKPOINT)
        """As the last process left them."""
        self._lock = lock
        self._on_failure = on_failure
        self._logs: dict[TopicPartition, Log] = {}
        self._futures: dict[TopicPartition, Log] = {}
        """Copies that are being made here of logs in other directories."""
        self._recovery_points = self._read_checkpoint(names.RECOVERY_POINT_CHECKPOINT)
        self._log_starts = self._read_checkpoint(names.LOG_START_CHECKPOINT)
        self._cleaned = self._read_checkpoint(names.CLEANER_CHECKPOINT)
        self._unopened = {name for name, _, _ in self._log_folders()}
        """From the first moment on: a process that ends before it has scanned vouches for nothing, either."""
        self._pending: list[tuple[int, str]] = []
        self._warm = WarmSegments()

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        path: str,
        *,
        cluster_id: str | None,
        node_id: int,
        new_directory_id: UUID,
        on_failure: Callable[[LogDir, StorageError], None] | None = None,
    ) -> LogDir:
        """Create the directory if it is new: then `cluster_id` must be given, and `new_directory_id` becomes its id.

        Raises LogDirLockedError, LogDirMismatchError, CorruptFileError, DiskIoError.
        """
        fs.mkdir(path)
        lock = fs.lock(f"{path}/{names.LOCK}")
        try:
            meta = read_meta_properties(fs, path)
            if meta is None:
                if cluster_id is None:
                    raise LogDirError(f"{path} is a new data directory: a cluster id is needed to claim it")
                meta = MetaProperties(cluster_id, node_id, None)
            _check_owner(path, meta, cluster_id, node_id)
            if meta.directory_id is None:
                meta = MetaProperties(meta.cluster_id, meta.node_id, new_directory_id)
                replace_file(fs, f"{path}/{names.META_PROPERTIES}", meta.encode())
            return cls(fs, path, lock, meta, meta.directory_id or new_directory_id, on_failure)
        except BaseException:
            lock.release()
            raise

    def __repr__(self) -> str:
        return f"LogDir({self.path!r}, {len(self._logs)} logs)"

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        """The open ones."""
        return self._logs

    def _read_checkpoint(self, name: str) -> Offsets:
        try:
            return read_offsets(self.fs, f"{self.path}/{name}")
        except CorruptFileError as e:
            log.warning("checkpoint ignored", path=f"{self.path}/{name}", reason=str(e))
            return {}

    # --- failure

    def fail(self, error: StorageError) -> None:
        """Take the directory and all its logs offline."""
        if self.failure is not None:
            return
        self.failure = error
        log.error("log directory failed", path=self.path, reason=str(error))
        for member in (*self._logs.values(), *self._futures.values()):
            member.fail(error)
        if self._on_failure is not None:
            self._on_failure(self, error)

    def _check_usable(self) -> None:
        if self.failure is not None:
            raise LogFailedError(f"the data directory {self.path} is offline since: {self.failure}")

    # --- logs

    def scan(self) -> list[FoundLog]:
        """The partition directories, by name. Deleted ones are noted for `delete_pending`; strays are left alone."""
        for name, _, mark in self._folders():
            if mark == names.DIR_DELETE:
                self._pending.append((0, f"{self.path}/{name}"))
        return [
            FoundLog(topic_partition, name, read_topic_id(self.fs, f"{self.path}/{name}"), mark == names.DIR_FUTURE)
            for name, topic_partition, mark in self._log_folders()
        ]

    def _log_folders(self) -> Iterator[tuple[str, TopicPartition, str]]:
        for name, topic_partition, mark in self._folders():
            if mark in ("", names.DIR_FUTURE) and topic_partition.topic != METADATA_TOPIC:
                yield name, topic_partition, mark

    def _folders(self) -> Iterator[tuple[str, TopicPartition, str]]:
        for name in self.fs.listdir(self.path):
            parsed = names.parse_partition_dir(name)
            if parsed is not None and self.fs.stat(f"{self.path}/{name}").is_dir:
                yield name, *parsed

    def open_log(self, found: FoundLog, config: LogConfig, *, now_ms: int) -> Log:
        """Open what `scan` has found; without a clean shutdown this recovers it. Raises StorageError."""
        opened = self._open(found.topic_partition, found.name, found.topic_id, config, now_ms)
        if not found.future:
            self._logs[found.topic_partition] = opened
        self._unopened.discard(found.name)
        return opened

    def create_log(
        self, topic_partition: TopicPartition, topic_id: UUID | None, config: LogConfig, *, now_ms: int
    ) -> Log:
        """A new, empty log. Opens the directory if it exists."""
        self._check_usable()
        path = f"{self.path}/{topic_partition}"
        try:
            self.fs.mkdir(path)
            if topic_id is not None and topic_id != NO_TOPIC_ID:
                write_topic_id(self.fs, path, topic_id)
        except StorageError as e:
            self._judge(e)
            raise
        opened = self._open(topic_partition, str(topic_partition), topic_id, config, now_ms)
        self._logs[topic_partition] = opened
        self._unopened.discard(str(topic_partition))
        return opened

    def _open(
        self, topic_partition: TopicPartition, name: str, topic_id: UUID | None, config: LogConfig, now_ms: int
    ) -> Log:
        self._check_usable()
        listener = _MemberListener(self)
        try:
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
                topic_id=topic_id,
                producer_expiration_ms=self.producer_expiration_ms,
                listeners=(listener,),
                warm=self._warm,
            )
        except StorageError as e:
            self._judge(e)
            raise
        opened.cleaned_offset = min(self._cleaned.get(topic_partition, 0), opened.log_end_offset)
        listener.log = opened
        report = opened.recovery
        if report.bytes_truncated or report.segments_dropped:
            log.warning(
                "log repaired after a crash",
                partition=str(topic_partition),
                end_offset=opened.log_end_offset,
                bytes_truncated=report.bytes_truncated,
                segments_dropped=report.segments_dropped,
            )
        return opened

    def _judge(self, error: StorageError) -> None:
        if not isinstance(error, DiskFullError):
            self.fail(error)

    def delete_log(self, topic_partition: TopicPartition, *, unique: UUID, now_ms: int, durable: bool = True) -> None:
        """Take a log away for good: renamed now, its files gone after file.delete.delay.ms. Without `durable` it is for
        the caller to see to it that the new name is on the disk (`sync_names`)."""
        doomed = self._logs.pop(topic_partition)
        doomed.close(clean=False)
        doomed.retire(f"{topic_partition} was deleted")
        target = f"{self.path}/{names.marked_dir(topic_partition, unique, names.DIR_DELETE)}"
        self._move(topic_partition, doomed.path, target, durable)
        self._pending.append((now_ms + doomed.config.file_delete_delay_ms, target))

    def sync_names(self) -> None:
        """Make the names of the logs durable. Touches no log: it may run in an executor. Raises StorageError; hand that
        to `fail`."""
        self.fs.sync_dir(self.path)

    def set_aside(self, found: FoundLog, *, unique: UUID) -> None:
        """Keep a directory that the cluster does not place here, under a name that says so."""
        target = f"{self.path}/{names.marked_dir(found.topic_partition, unique, names.DIR_STRAY)}"
        self._move(found.topic_partition, f"{self.path}/{found.name}", target)
        self._unopened.discard(found.name)

    def _move(self, topic_partition: TopicPartition, source: str, target: str, durable: bool = True) -> None:
        self._check_usable()
        try:
            self.fs.rename(source, target)
            if durable:
                self.fs.sync_dir(self.path)
        except StorageError as e:
            self._judge(e)
            raise
        for offsets in (self._recovery_points, self._log_starts, self.high_watermarks):
            offsets.pop(topic_partition, None)
        if self._cleaned.pop(topic_partition, None) is not None:
            self._write(names.CLEANER_CHECKPOINT, self._cleaned, durable=False)

    def delete_pending(self, now_ms: int) -> int:
        """Remove deleted directories whose delay is over; how many. Touches no log: it may run in an executor."""
        due = [entry for entry in self._pending if entry[0] <= now_ms]
        for entry in due:
            self.fs.rmtree(entry[1])
            self._pending.remove(entry)
        return len(due)

    # --- logs that move here from another directory

    create_future = moving.create_future
    adopt = moving.adopt
    settle = moving.settle
    leave_future = moving.leave_future
    drop_future = moving.drop_future
    drop_found_future = moving.drop_found_future
    set_log_aside = moving.set_log_aside

    # --- checkpoints

    def checkpoint_recovery_points(self, *, durable: bool = False) -> None:
        """`log.flush.offset.checkpoint.interval.ms`: how far each log is synced."""
        self._recovery_points.update({tp: member.recovery_point for tp, member in self._logs.items()})
        self._write(names.RECOVERY_POINT_CHECKPOINT, self._recovery_points, durable)

    def on_recovery_point_lowered(self, member: Log) -> None:
        """Write the checkpoint if its recovery point is above the log's, because a truncation follows.

        With the old checkpoint, a restart after a crash would accept truncated records without checking them.
        """
        known = self._recovery_points.get(member.topic_partition, 0)
        if known > member.recovery_point and self._logs.get(member.topic_partition) is member:
            self.checkpoint_recovery_points(durable=True)

    def checkpoint_log_starts(self, *, durable: bool = False) -> None:
        """`log.flush.start.offset.checkpoint.interval.ms`: starts that the first segment's name does not tell."""
        for tp, member in self._logs.items():
            if member.log_start_offset > member.segments.first.base_offset:
                self._log_starts[tp] = member.log_start_offset
            else:
                self._log_starts.pop(tp, None)
        self._write(names.LOG_START_CHECKPOINT, self._log_starts, durable)

    def checkpoint_cleaned(self, *, durable: bool = False) -> None:
        """How far the cleaner has come in each log. Older is as good: it cleans something twice."""
        for tp, member in self._logs.items():
            if member.cleaned_offset or tp in self._cleaned:
                self._cleaned[tp] = member.cleaned_offset
        self._write(names.CLEANER_CHECKPOINT, self._cleaned, durable)

    def checkpoint_high_watermarks(self, values: Mapping[TopicPartition, int], *, durable: bool = False) -> None:
        """`replica.high.watermark.checkpoint.interval.ms`. Logs not opened yet keep what the file had."""
        self.high_watermarks.update(values)
        self._write(names.HIGH_WATERMARK_CHECKPOINT, self.high_watermarks, durable)

    def _write(self, name: str, offsets: Offsets, durable: bool) -> None:
        self._check_usable()
        try:
            write_offsets(self.fs, f"{self.path}/{name}", offsets, durable=durable)
        except StorageError as e:
            self._judge(e)
            raise

    # --- the rest

    def disk_usage(self) -> DiskUsage:
        """Of the volume. Raises StorageError."""
        return self.fs.disk_usage(self.path)

    def size_bytes(self) -> Iterator[tuple[TopicPartition, int]]:
        for tp, member in self._logs.items():
            yield tp, member.size_bytes

    def close(self, *, clean: bool = True, broker_epoch: int = -1) -> None:
        """Close all logs. If everything is on disk, leave the mark by which the next start skips recovery."""
        clean = clean and self.failure is None
        for future in self._futures.values():
            future.close(clean=False)
        for tp, member in self._logs.items():
            try:
                member.close(clean=clean)
            except StorageError as e:
                log.error("log not closed cleanly", partition=str(tp), reason=str(e))
                clean = False
        # Logs that were never opened are as the last process left them: fit to be trusted only if they were then.
        if clean and self.failure is None and (self.clean_shutdown or not self._unopened):
            self.checkpoint_recovery_points(durable=True)
            self.checkpoint_log_starts(durable=True)
            leave_clean_shutdown(self.fs, self.path, broker_epoch)
        self._lock.release()


def _check_owner(path: str, meta: MetaProperties, cluster_id: str | None, node_id: int) -> None:
    if cluster_id is not None and meta.cluster_id != cluster_id:
        raise LogDirMismatchError(
            f"{path} belongs to cluster {meta.cluster_id}, not {cluster_id}. Choose another directory or cluster.id."
        )
    if meta.node_id != node_id:
        raise LogDirMismatchError(
            f"{path} belongs to node {meta.node_id}, not {node_id}. Choose another directory or node.id."
        )
