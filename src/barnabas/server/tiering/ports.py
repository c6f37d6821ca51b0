"""Port: what tiered storage needs from the broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from barnabas.server.storage.log import Log
from barnabas.server.tiering.remote_log import RemoteLog
from barnabas.server.tiering.values import RemoteLogEvent, RemotePartition


class RemoteLogMetadata(Protocol):
    """The events of all remote segments, in `__remote_log_metadata`."""

    async def write(self, event: RemoteLogEvent) -> bool:
        """Write an event, wait until it is committed and has been applied to the partition's `RemoteLog`, and return
        whether it fitted. Raises RemoteStorageError if the event may not have been written."""
        ...

    def remote_log(self, partition: RemotePartition) -> RemoteLog:
        """The state of a partition. Raises RemoteStorageError until all events that were committed when this broker
        began to read them have been applied."""
        ...


class LedLog(Protocol):
    """A partition that this broker leads."""

    @property
    def log(self) -> Log | None:
        """The local log; None if its directory is offline."""
        ...

    @property
    def high_watermark(self) -> int: ...


class EventBatch(Struct, frozen=True):
    """Records of one partition of `__remote_log_metadata`."""

    records: Sequence[tuple[int, bytes]]
    """The offsets and the values."""
    next_offset: int
    """Where the next read begins."""
    high_watermark: int


class EventTopic(Protocol):
    """The topic `__remote_log_metadata`, wherever its partitions are led."""

    async def partition_count(self) -> int:
        """The number of partitions. Creates the topic if it does not exist. Raises RemoteStorageError."""
        ...

    async def append(self, partition: int, value: bytes) -> int:
        """Append a record, wait until it is committed, and return its offset. Raises RemoteStorageError if the record
        may not have been appended."""
        ...

    async def read(self, partition: int, offset: int, *, wait: bool) -> EventBatch:
        """Committed records from `offset` on; with `wait`, waits some time for the first one. Raises
        RemoteStorageError."""
        ...
