"""Shell: copies of logs that move to this data directory from another one of the same node (KIP-113).

    <topic>-<partition>.<uuid>-future/      the copy, until it is complete
    <topic>-<partition>/                    after the adoption; both directories then contain a log of this name

`replication/directories/mover.py` decides when the copy is adopted, and which of the two logs is used after a crash.
"""

from __future__ import annotations

import contextlib
from uuid import UUID

from barnabas.core.ids import NO_TOPIC_ID, TopicPartition
from barnabas.server.storage import names
from barnabas.server.storage.config import LogConfig
from barnabas.server.storage.directory.identity import write_topic_id
from barnabas.server.storage.directory.state import FoundLog, LogDirState
from barnabas.server.storage.errors import FileMissingError, StorageError
from barnabas.server.storage.fs import Access
from barnabas.server.storage.log import Log


class FutureLogs:
    """The copies, in one data directory, of logs that move there. A partition has at most one copy."""

    def __init__(self, directory: LogDirState) -> None:
        self._directory = directory

    def create(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID | None,
        config: LogConfig,
        *,
        begin_at: int,
        unique: UUID,
        now_ms: int,
    ) -> Log:
        """Create an empty log that starts at `begin_at`, to which the caller copies the original's records.

        `LogDir.logs` does not contain the copy before `adopt`. `unique` becomes a part of the directory's name.

        Raises StorageError, and LogDirError if the topic's name is too long for the directory's name.
        """
        directory = self._directory
        directory.check_usable()
        assert topic_partition not in directory.future_logs, "the partition has a copy already"
        name = names.marked_dir(topic_partition, unique, names.DIR_FUTURE)
        directory.forget(topic_partition)  # checkpoints of an earlier log of the same name
        with directory.guarded():
            directory.fs.mkdir(f"{directory.path}/{name}")
            if topic_id is not None and topic_id != NO_TOPIC_ID:
                write_topic_id(directory.fs, f"{directory.path}/{name}", topic_id, durable=False)
        directory.set_log_start(topic_partition, begin_at)
        try:
            future = directory.open_log(topic_partition, name, topic_id, config, now_ms)
            directory.future_logs[topic_partition] = future
        finally:
            directory.forget(topic_partition)
        return future

    def adopt(self, topic_partition: TopicPartition, high_watermark: int) -> Log:
        """Give the complete copy the plain name of a log, and add the copy to the directory's logs.

        The new name is durable after `sync_adopted`. The checkpoints are written first, because they may hold offsets
        of an earlier log of the same name. Raises StorageError; then the copy is unchanged.
        """
        directory = self._directory
        future = directory.future_logs[topic_partition]
        directory.check_usable()
        directory.logs[topic_partition] = future
        target = f"{directory.path}/{topic_partition}"
        try:
            with directory.guarded():
                directory.checkpoint_recovery_points()
                directory.checkpoint_log_starts()
                directory.checkpoint_cleaned()
                directory.checkpoint_high_watermarks({topic_partition: high_watermark})
                directory.fs.rename(future.path, target)
        except StorageError:
            del directory.logs[topic_partition]
            raise
        del directory.future_logs[topic_partition]
        future.relocate(target)
        return future

    def sync_adopted(self, adopted: Log) -> None:
        """Make the new name of an adopted log and its newest producer snapshot durable.

        To be called in an executor, after a flush of the log. Raises StorageError, which the caller has to pass to
        `LogDir.fail`.
        """
        fs = self._directory.fs
        for path in adopted.snapshot_paths[-1:]:
            with contextlib.suppress(FileMissingError):
                file = fs.open(path, Access.READ)
                try:
                    file.sync()
                finally:
                    file.close()
        fs.sync_dir(adopted.path)
        fs.sync_dir(self._directory.path)

    def leave(self, topic_partition: TopicPartition) -> Log:
        """Close the copy and keep its files: the next start, or an operator, decides about them."""
        future = self._directory.future_logs.pop(topic_partition)
        future.close(clean=False)
        future.retire(f"the copy of {topic_partition} in {self._directory.path} was given up")
        return future

    def delete(self, topic_partition: TopicPartition, *, unique: UUID) -> None:
        """Close the copy and delete its files. Raises StorageError if its directory cannot be renamed for deletion."""
        future = self.leave(topic_partition)
        self._delete_directory(topic_partition, future.path, unique)

    def delete_found(self, found: FoundLog, *, unique: UUID) -> None:
        """Delete a copy that was not complete when the previous process ended. Raises StorageError."""
        self._delete_directory(found.topic_partition, f"{self._directory.path}/{found.name}", unique)
        self._directory.unopened.discard(found.name)

    def _delete_directory(self, topic_partition: TopicPartition, path: str, unique: UUID) -> None:
        """Rename a copy for deletion without a delay, since it has no readers. The rename need not be durable."""
        directory = self._directory
        directory.check_usable()
        target = f"{directory.path}/{names.marked_dir(topic_partition, unique, names.DIR_DELETE)}"
        with directory.guarded():
            directory.fs.rename(path, target)
        directory.pending_deletes.append((0, target))
