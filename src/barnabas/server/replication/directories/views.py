"""Value: the log directories of a broker with their replicas, as DescribeLogDirs returns them."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from barnabas.core.ids import TopicPartition
from barnabas.server.storage.directory.log_dir import LogDir
from barnabas.server.storage.errors import StorageError


class DirectoryReplica(NamedTuple):
    """A replica in a log directory: its size in bytes and its lag in offsets.

    `future` marks the unfinished copy of a replica that is being moved to the directory. Its lag is relative to the
    original log; the lag of other replicas is relative to the high watermark.
    """

    name: TopicPartition
    size: int
    lag: int
    future: bool = False


class DirectoryView(Struct, frozen=True):
    """One log directory, as DescribeLogDirs returns it. Sizes are in bytes; -1 means unknown."""

    path: str
    online: bool
    total_bytes: int = -1
    usable_bytes: int = -1
    replicas: tuple[DirectoryReplica, ...] = ()
    """The replicas in the directory, sorted by partition."""


def view_of(directory: LogDir, replicas: list[DirectoryReplica]) -> DirectoryView:
    """The view of one directory. The sizes of a disk that cannot be read are unknown."""
    if directory.failure is not None:
        return DirectoryView(directory.path, online=False)
    try:
        usage = directory.disk_usage()
        total, free = usage.total, usage.free
    except StorageError:
        total = free = -1
    return DirectoryView(directory.path, True, total, free, tuple(sorted(replicas)))
