"""Shell: a data directory and the partition logs in it.

(Being built; the signatures are the contract.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from barnabas.core.ids import TopicPartition
from barnabas.storage.config import LogConfig
from barnabas.storage.fs import DiskUsage, FileSystem
from barnabas.storage.log import Log


@dataclass(frozen=True, slots=True)
class FoundLog:
    """A partition directory met by `LogDir.scan`."""

    topic_partition: TopicPartition
    name: str
    topic_id: UUID | None
    future: bool


class LogDir:
    """`LogDir.open` locks the directory and reads meta.properties and checkpoints; logs are opened one by one."""

    path: str
    directory_id: UUID
    clean_shutdown: bool
    """Whether the last process said goodbye: if so, logs open without a scan."""
    failure: BaseException | None
    """Why the directory is offline, or None."""
    logs: Mapping[TopicPartition, Log]
    high_watermarks: dict[TopicPartition, int]
    """As read from replication-offset-checkpoint at start."""

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        path: str,
        *,
        cluster_id: str | None,
        node_id: int,
        new_directory_id: UUID,
        on_failure: Callable[[LogDir, BaseException], None] | None = None,
    ) -> LogDir: ...

    def scan(self) -> list[FoundLog]: ...
    def open_log(self, found: FoundLog, config: LogConfig, *, now_ms: int) -> Log: ...
    def create_log(
        self, topic_partition: TopicPartition, topic_id: UUID | None, config: LogConfig, *, now_ms: int
    ) -> Log: ...
    def delete_log(self, topic_partition: TopicPartition, *, unique: UUID, now_ms: int) -> None: ...
    def delete_pending(self, now_ms: int) -> int: ...
    def checkpoint_recovery_points(self) -> None: ...
    def checkpoint_log_starts(self) -> None: ...
    def checkpoint_high_watermarks(self, values: Mapping[TopicPartition, int]) -> None: ...
    def disk_usage(self) -> DiskUsage: ...
    def size_bytes(self) -> Iterable[tuple[TopicPartition, int]]: ...
    def close(self, *, clean: bool = True) -> None: ...
