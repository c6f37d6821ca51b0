"""Shell: copies of logs in the making: a log moves from one data directory to another of the same node (KIP-113).

    <topic>-<partition>.<uuid>-future/      the copy, until it is whole
    <topic>-<partition>/                    adopted: for a moment there are two of this name, one in either directory

`replication/directories/mover.py` says when, and which of the two is the log after a crash.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
from uuid import UUID

from barnabas.core.ids import NO_TOPIC_ID, TopicPartition
from barnabas.server.storage import names
from barnabas.server.storage.config import LogConfig
from barnabas.server.storage.directory.identity import write_topic_id
from barnabas.server.storage.errors import FileMissingError, StorageError
from barnabas.server.storage.fs import Access

if TYPE_CHECKING:
    from barnabas.server.storage.directory.log_dir import FoundLog, LogDir
    from barnabas.server.storage.log import Log


def create_future(
    self: LogDir,
    topic_partition: TopicPartition,
    topic_id: UUID | None,
    config: LogConfig,
    *,
    begin_at: int,
    unique: UUID,
    now_ms: int,
) -> Log:
    """An empty log that begins at `begin_at`, to become a copy of the one elsewhere. It is not among `logs` before
    it is adopted. Raises StorageError, LogDirError if the topic's name is too long for it."""
    self._check_usable()
    assert topic_partition not in self._futures, "one copy at a time"
    name = names.marked_dir(topic_partition, unique, names.DIR_FUTURE)
    _forget(self, topic_partition)  # a log that lay here earlier
    try:
        self.fs.mkdir(f"{self.path}/{name}")
        if topic_id is not None and topic_id != NO_TOPIC_ID:
            write_topic_id(self.fs, f"{self.path}/{name}", topic_id)
    except StorageError as e:
        self._judge(e)
        raise
    self._log_starts[topic_partition] = begin_at
    try:
        future = self._futures[topic_partition] = self._open(topic_partition, name, topic_id, config, now_ms)
    finally:
        _forget(self, topic_partition)
    return future


def _forget(self: LogDir, topic_partition: TopicPartition) -> None:
    for offsets in (self._recovery_points, self._log_starts, self._cleaned, self.high_watermarks):
        offsets.pop(topic_partition, None)


def adopt(self: LogDir, topic_partition: TopicPartition, high_watermark: int) -> Log:
    """The copy is whole: it gets the log's plain name, and is among `logs`. Durable after the next flush of it.

    The checkpoints come first: one of a log that lay here earlier must not vouch for this one. Raises StorageError:
    nothing has then changed.
    """
    future = self._futures[topic_partition]
    self._check_usable()
    self._logs[topic_partition] = future
    target = f"{self.path}/{topic_partition}"
    try:
        self.checkpoint_recovery_points()
        self.checkpoint_log_starts()
        self.checkpoint_cleaned()
        self.checkpoint_high_watermarks({topic_partition: high_watermark})
        self.fs.rename(future.path, target)
    except StorageError as e:
        del self._logs[topic_partition]
        self._judge(e)
        raise
    del self._futures[topic_partition]
    future.relocate(target)
    return future


def settle(self: LogDir, adopted: Log) -> None:
    """Make the log's new name durable, and its snapshot. In an executor, after a flush. Raises StorageError; hand that
    to `fail`."""
    for path in adopted.snapshot_paths[-1:]:
        with contextlib.suppress(FileMissingError):
            file = self.fs.open(path, Access.READ)
            try:
                file.sync()
            finally:
                file.close()
    self.fs.sync_dir(adopted.path)
    self.fs.sync_dir(self.path)


def leave_future(self: LogDir, topic_partition: TopicPartition) -> Log:
    """The copy stays as it is for the next start to see, or a human."""
    future = self._futures.pop(topic_partition)
    future.close(clean=False)
    future.retire(f"the copy of {topic_partition} in {self.path} was given up")
    return future


def drop_future(self: LogDir, topic_partition: TopicPartition, *, unique: UUID) -> None:
    """The copy is not wanted any more. Raises StorageError when it could not be renamed for deletion."""
    future = self.leave_future(topic_partition)
    _doom(self, topic_partition, future.path, unique)


def drop_found_future(self: LogDir, found: FoundLog, *, unique: UUID) -> None:
    """A copy that was not whole when the last process ended."""
    _doom(self, found.topic_partition, f"{self.path}/{found.name}", unique)
    self._unopened.discard(found.name)


def _doom(self: LogDir, topic_partition: TopicPartition, path: str, unique: UUID) -> None:
    """Nobody reads it, so its files may go at once; that it is gone need not be durable."""
    self._check_usable()
    target = f"{self.path}/{names.marked_dir(topic_partition, unique, names.DIR_DELETE)}"
    try:
        self.fs.rename(path, target)
    except StorageError as e:
        self._judge(e)
        raise
    self._pending.append((0, target))


def set_log_aside(self: LogDir, topic_partition: TopicPartition, *, unique: UUID) -> None:
    """Close a log and keep its directory under a name that says that the cluster does not place it here."""
    closing = self._logs.pop(topic_partition)
    closing.close(clean=False)
    closing.retire(f"{topic_partition} was set aside")
    target = f"{self.path}/{names.marked_dir(topic_partition, unique, names.DIR_STRAY)}"
    self._move(topic_partition, closing.path, target)
