"""Shell: a data directory and the partition logs in it (what Kafka's LogManager does for one of its log.dirs).

    meta.properties  .lock  .kafka_cleanshutdown  *-offset-checkpoint
    <topic>-<partition>/                    a log
    <topic>-<partition>.<uuid>-delete/      a deleted log; its files are removed after file.delete.delay.ms
    <topic>-<partition>.<uuid>-future/      the copy of a log that moves here from another directory
    <topic>-<partition>.<uuid>-stray/       a log that the cluster does not place here; kept for an operator

The directory is locked while it is open. A failure of the disk takes all logs of the directory offline, is reported
once, and does not affect other directories. A checkpoint may be old or missing: recovery then reads more of the logs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from uuid import UUID

from barnabas.core.ids import METADATA_TOPIC, NO_TOPIC_ID, TopicPartition
from barnabas.core.telemetry import get_logger
from barnabas.protocol.records.log_files import MetaProperties
from barnabas.server.storage import names
from barnabas.server.storage.config import LogConfig
from barnabas.server.storage.directory.flush_all import VOLUME_SYNC_LOGS, flush_all
from barnabas.server.storage.directory.future_logs import FutureLogs
from barnabas.server.storage.directory.identity import (
    leave_clean_shutdown,
    read_meta_properties,
    read_topic_id,
    write_topic_id,
)
from barnabas.server.storage.directory.segment_sizes import write_sizes
from barnabas.server.storage.directory.state import FoundLog, LogDirState
from barnabas.server.storage.errors import (
    CorruptFileError,
    FileMissingError,
    LogDirError,
    LogDirMismatchError,
    StorageError,
)
from barnabas.server.storage.fs import Access, DiskUsage, FileSystem, Lock, replace_file
from barnabas.server.storage.log import Log
from barnabas.server.storage.segments.open_segments import OpenSegments

log = get_logger("barnabas.server.storage")


class LogDir:
    """A data directory. `LogDir.open` locks the directory and reads its identity and checkpoints.

    The logs are opened one by one, with `open_log` and `create_log`.
    """

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        lock: Lock,
        meta: MetaProperties,
        directory_id: UUID,
        producer_id_expiration_ms: int,
        on_failure: Callable[[LogDir, StorageError], None] | None,
        open_segments: OpenSegments | None,
    ) -> None:
        self.fs = fs
        self.path = path
        self.cluster_id = meta.cluster_id
        self.node_id = meta.node_id
        self.directory_id = directory_id
        self._lock = lock
        self._on_failure = on_failure
        self._state = LogDirState(
            fs,
            path,
            producer_id_expiration_ms,
            self._on_failed,
            OpenSegments() if open_segments is None else open_segments,
        )
        # Before the scan: a process that ends before it has scanned must not mark unopened logs as clean (see `close`).
        self._state.unopened.update(name for name, partition, mark in self._folders() if _holds_log(partition, mark))
        self.future_logs = FutureLogs(self._state)

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        path: str,
        *,
        cluster_id: str | None,
        node_id: int,
        new_directory_id: UUID,
        producer_id_expiration_ms: int = 86_400_000,
        on_failure: Callable[[LogDir, StorageError], None] | None = None,
        open_segments: OpenSegments | None = None,
    ) -> LogDir:
        """Open a directory, or create it: then `cluster_id` is required, and `new_directory_id` becomes its id.

        `on_failure` is called once, when the directory goes offline. `open_segments` bounds the open files of this
        directory and of all others that are given the same object. Raises LogDirLockedError, LogDirMismatchError,
        CorruptFileError, DiskIoError.
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
            directory_id = meta.directory_id or new_directory_id
            return cls(fs, path, lock, meta, directory_id, producer_id_expiration_ms, on_failure, open_segments)
        except BaseException:  # any error: the directory must not stay locked
            lock.release()
            raise

    def __repr__(self) -> str:
        return f"LogDir({self.path!r}, {len(self.logs)} logs)"

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        """The open logs, without the copies in `future_logs`."""
        return self._state.logs

    @property
    def clean_shutdown(self) -> bool:
        """Whether the previous process closed the directory cleanly."""
        return self._state.clean_shutdown

    @property
    def previous_broker_epoch(self) -> int:
        """The broker epoch of the previous process, -1 if unknown."""
        return self._state.previous_broker_epoch

    @property
    def indexes_rebuilt(self) -> int:
        """The segments whose indexes this process has rebuilt when it opened logs."""
        return self._state.indexes_rebuilt

    @property
    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        """The high watermarks that were last read from or written to the checkpoint file."""
        return self._state.high_watermarks

    # --- failure

    @property
    def failure(self) -> StorageError | None:
        """Why the directory is offline, or None."""
        return self._state.failure

    def fail(self, error: StorageError) -> None:
        """Take the directory and all its logs offline. A second call has no effect."""
        self._state.fail(error)

    def _on_failed(self, error: StorageError) -> None:
        if self._on_failure is not None:
            self._on_failure(self, error)

    # --- logs

    def scan(self) -> list[FoundLog]:
        """The partition directories, in the order of their names.

        Directories of deleted logs are scheduled for `delete_pending`. Stray directories are ignored.
        """
        return list(self.found_logs())

    def found_logs(self) -> Iterator[FoundLog]:
        """As `scan`, but each directory is read when the iterator reaches it, so that the caller can pause. Raises
        StorageError if the disk fails, which takes the directory offline."""
        for name, topic_partition, mark in self._folders():
            path = f"{self.path}/{name}"
            if mark == names.DIR_DELETE:
                self._state.pending_deletes.append((0, path))
            elif _holds_log(topic_partition, mark):
                yield self._found(topic_partition, name, future=mark == names.DIR_FUTURE)

    def _found(self, topic_partition: TopicPartition, name: str, *, future: bool) -> FoundLog:
        with self._state.guarded():
            try:
                topic_id = read_topic_id(self.fs, f"{self.path}/{name}")
            except CorruptFileError as error:
                return FoundLog(topic_partition, name, None, future, str(error))
        missing = "" if topic_id is not None else f"{self.path}/{name}/{names.PARTITION_METADATA} is missing"
        return FoundLog(topic_partition, name, topic_id, future, missing)

    def is_unused(self, found: FoundLog) -> bool:
        """Whether a log that has not been opened has never had a record, so that no topic's records can be in it."""
        path = f"{self.path}/{found.name}"
        with self._state.guarded():
            for name in self.fs.listdir(path):
                base, kind, _ = names.parse_offset_file(name) or (0, "", "")
                if base or (kind == names.LOG and self.fs.stat(f"{path}/{name}").size):
                    return False
        return True

    def _folders(self) -> Iterator[tuple[str, TopicPartition, str]]:
        for name in self.fs.listdir(self.path):
            parsed = names.parse_partition_dir(name)
            if parsed is not None and self.fs.stat(f"{self.path}/{name}").is_dir:
                yield name, *parsed

    def open_log(self, found: FoundLog, config: LogConfig, *, now_ms: int) -> Log:
        """Open a log that `scan` has found. Without a clean shutdown, this recovers the log. Raises StorageError."""
        opened = self._state.open_log(found.topic_partition, found.name, found.topic_id, config, now_ms)
        if not found.future:
            self._state.logs[found.topic_partition] = opened
        self._state.unopened.discard(found.name)
        if not self.clean_shutdown:
            self._state.created.append(opened.path)  # the process that created it may have died before the sync
        return opened

    def create_log(
        self, topic_partition: TopicPartition, topic_id: UUID | None, config: LogConfig, *, now_ms: int
    ) -> Log:
        """Create an empty log, or open the partition's directory if it exists. Raises StorageError.

        The caller has to make the log's name and topic id durable (`take_created`), off the event loop. Until then a
        power failure can take the topic id from records that survive it; the first flush of the log ends that, too.
        """
        state = self._state
        state.check_usable()
        path = f"{self.path}/{topic_partition}"
        if state.segment_sizes.pop(topic_partition, None) is not None and not self.fs.exists(path):
            log.warning(
                "the directory of a partition was deleted since the broker was stopped; an empty log is created",
                path=path,
            )
        with state.guarded():
            self.fs.mkdir(path)
            if topic_id is not None and topic_id != NO_TOPIC_ID:
                write_topic_id(self.fs, path, topic_id, durable=False)
        state.created.append(path)
        opened = state.open_log(topic_partition, str(topic_partition), topic_id, config, now_ms)
        state.logs[topic_partition] = opened
        state.unopened.discard(str(topic_partition))
        return opened

    def delete_log(self, topic_partition: TopicPartition, *, unique: UUID, now_ms: int, durable: bool = True) -> None:
        """Close a log and rename its directory for deletion; the files are removed after file.delete.delay.ms.

        Without `durable`, the caller has to make the new name durable with `sync_names`.
        """
        closing = self._state.logs.pop(topic_partition)
        closing.close(clean=False)
        closing.retire(f"{topic_partition} was deleted")
        target = f"{self.path}/{names.marked_dir(topic_partition, unique, names.DIR_DELETE)}"
        self._state.move_log(topic_partition, closing.path, target, durable=durable)
        self._state.pending_deletes.append((now_ms + closing.config.file_delete_delay_ms, target))

    def sync_names(self) -> None:
        """Make the names of the logs' directories durable.

        Safe in an executor. Raises StorageError, which the caller has to pass to `fail`.
        """
        self.fs.sync_dir(self.path)

    def take_created(self) -> list[str]:
        """The paths of the logs that have been created since the last call; `sync_created` makes them durable."""
        created, self._state.created = self._state.created, []
        return created

    def sync_created(self, paths: Sequence[str]) -> None:
        """Make the names and topic ids of these logs durable.

        Safe in an executor. Raises StorageError, which the caller has to pass to `fail`.
        """
        if len(paths) >= VOLUME_SYNC_LOGS and self.fs.sync_volume(self.path):
            return
        for path in paths:
            with contextlib.suppress(FileMissingError):  # the log was deleted since, or its topic has no id
                file = self.fs.open(f"{path}/{names.PARTITION_METADATA}", Access.READ)
                try:
                    file.sync()
                finally:
                    file.close()
                self.fs.sync_dir(path)
        if paths:
            self.fs.sync_dir(self.path)

    def correct_topic_id(self, found: FoundLog, topic_id: UUID) -> FoundLog:
        """Write this topic id into `partition.metadata` of a directory that has not been opened."""
        with self._state.guarded():
            write_topic_id(self.fs, f"{self.path}/{found.name}", topic_id, durable=True)
        return FoundLog(found.topic_partition, found.name, topic_id, found.future)

    def set_aside(self, found: FoundLog, *, unique: UUID) -> str:
        """Rename a directory that has not been opened to a stray: the cluster does not place the partition here.

        Returns the new path."""
        target = f"{self.path}/{names.marked_dir(found.topic_partition, unique, names.DIR_STRAY)}"
        self._state.move_log(found.topic_partition, f"{self.path}/{found.name}", target, durable=True)
        self._state.unopened.discard(found.name)
        return target

    def set_log_aside(self, topic_partition: TopicPartition, *, unique: UUID) -> None:
        """Close a log and rename its directory to a stray: the cluster does not place the partition here."""
        closing = self._state.logs.pop(topic_partition)
        closing.close(clean=False)
        closing.retire(f"{topic_partition} was set aside")
        target = f"{self.path}/{names.marked_dir(topic_partition, unique, names.DIR_STRAY)}"
        self._state.move_log(topic_partition, closing.path, target, durable=True)

    def delete_pending(self, now_ms: int) -> int:
        """Remove the directories of deleted logs whose delay is over, and return their number. Safe in an executor."""
        pending = self._state.pending_deletes
        due = [entry for entry in pending if entry[0] <= now_ms]
        for entry in due:
            self.fs.rmtree(entry[1])
            pending.remove(entry)
        return len(due)

    # --- checkpoints

    def checkpoint_recovery_points(self, *, durable: bool = False) -> None:
        """Write the recovery point of each log."""
        self._state.checkpoint_recovery_points(durable=durable)

    def checkpoint_log_starts(self, *, durable: bool = False) -> None:
        """Write the log start offset of each log."""
        self._state.checkpoint_log_starts(durable=durable)

    def checkpoint_cleaned(self, *, durable: bool = False) -> None:
        """Write the cleaned offset of each log."""
        self._state.checkpoint_cleaned(durable=durable)

    def checkpoint_high_watermarks(self, values: Mapping[TopicPartition, int], *, durable: bool = False) -> None:
        """Write high watermarks. Logs that are not in `values` keep their stored one."""
        self._state.checkpoint_high_watermarks(values, durable=durable)

    # --- end

    def disk_usage(self) -> DiskUsage:
        """The size of the volume and its free space. Raises StorageError."""
        return self.fs.disk_usage(self.path)

    def close(self, *, clean: bool = True, broker_epoch: int = -1) -> None:
        """Close all logs. If everything is durable, write the marker by which the next start skips recovery.

        Without a `broker_epoch` this process has not served any log: the epoch of the previous one stays."""
        state = self._state
        if broker_epoch < 0:
            broker_epoch = state.previous_broker_epoch
        clean = clean and state.failure is None
        for future in state.future_logs.values():
            future.close(clean=False)
        if clean:
            clean = flush_all(self.fs, self.path, state.logs)
        for tp, member in state.logs.items():
            try:
                member.close(clean=clean, flushed=True)
            except StorageError as e:
                log.error("log not closed cleanly", partition=str(tp), reason=str(e))
                clean = False
        # Logs that this process has not opened are as the previous process left them.
        if clean and state.failure is None and (state.clean_shutdown or not state.unopened):
            state.checkpoint_recovery_points(durable=True)
            state.checkpoint_log_starts(durable=True)
            write_sizes(self.fs, self.path, broker_epoch, state.logs.values(), state.segment_sizes)
            leave_clean_shutdown(self.fs, self.path, broker_epoch)
        self._lock.release()


def _holds_log(topic_partition: TopicPartition, mark: str) -> bool:
    return mark in ("", names.DIR_FUTURE) and topic_partition.topic != METADATA_TOPIC


def _check_owner(path: str, meta: MetaProperties, cluster_id: str | None, node_id: int) -> None:
    if cluster_id is not None and meta.cluster_id != cluster_id:
        raise LogDirMismatchError(
            f"{path} belongs to cluster {meta.cluster_id}, not {cluster_id}. Choose another directory or cluster.id."
        )
    if meta.node_id != node_id:
        raise LogDirMismatchError(
            f"{path} belongs to node {meta.node_id}, not {node_id}. Choose another directory or node.id."
        )
