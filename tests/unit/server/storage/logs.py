"""Helpers of the storage tests: batches, and a log on a disk in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.batch import BatchHeader, iter_batches
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.records.control import EndTxn, build_end_txn_marker
from barnabas.protocol.records.validate import Origin
from barnabas.server.storage import names
from barnabas.server.storage.config import LogConfig
from barnabas.server.storage.errors import StorageError
from barnabas.server.storage.fs import FileSystem
from barnabas.server.storage.listener import LogListener
from barnabas.server.storage.log import Log
from barnabas.server.storage.rolling import create_segment
from barnabas.server.storage.segments.segment import Segment
from barnabas.server.storage.values import AppendInfo
from tests.configs import log_config
from tests.unit.server.storage.memory_disk import MemoryDisk

TP = TopicPartition("topic", 0)
PATH = "/data/topic-0"


def batch(count: int = 1, *, timestamp: int = 1_000, value: bytes = b"value", **fields: Any) -> bytes:
    """A batch as a producer sends it; `timestamp` grows by one per record."""
    records = [SimpleRecord(b"key", value, timestamp + i) for i in range(count)]
    return build_batch(records, **fields)


@dataclass
class LogEvents(LogListener):
    """Records the events of a log."""

    failures: list[StorageError] = field(default_factory=list)

    def on_failed(self, error: StorageError) -> None:
        self.failures.append(error)


@dataclass
class LogHarness:
    """A log that can be closed, killed and opened again."""

    disk: FileSystem = field(default_factory=MemoryDisk)
    config: LogConfig = field(default_factory=log_config)
    path: str = PATH
    now_ms: int = 10_000

    def __post_init__(self) -> None:
        self.disk.mkdir(self.path)
        self.events = LogEvents()
        self.log = self.open(clean=True)

    def open(
        self,
        *,
        clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        cleaned_offset: int = 0,
        verify_bytes: int = 0,
    ) -> Log:
        self.log = Log.open(
            self.disk,
            self.path,
            self.config,
            topic_partition=TP,
            now_ms=self.now_ms,
            clean_shutdown=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            cleaned_offset=cleaned_offset,
            verify_bytes=verify_bytes,
            listeners=(self.events,),
        )
        return self.log

    @property
    def failures(self) -> list[StorageError]:
        return self.events.failures

    def new_segment(self, base_offset: int) -> Segment:
        """An empty segment under the suffix `.cleaned`, to replace others."""
        return create_segment(self.log._state, base_offset, 0, names.CLEANED)

    def replace_segments(self, new: Segment, old: Sequence[Segment]) -> None:
        """Put `new` in the place of `old` with the steps of a compaction."""
        new.rename(names.SWAP)
        self.disk.sync_dir(self.path)
        self.log.replace_segments([new], old, now_ms=0)
        self.disk.sync_dir(self.path)

    def kill(self, *, recovery_point: int = 0, log_start_offset: int = 0, cleaned_offset: int = 0) -> Log:
        """Simulate kill -9, and open the log again."""
        assert isinstance(self.disk, MemoryDisk)
        self.disk.crash()
        return self.open(
            recovery_point=recovery_point, log_start_offset=log_start_offset, cleaned_offset=cleaned_offset
        )

    def restart(self) -> Log:
        """Close the log cleanly, and open it again."""
        start = self.log.log_start_offset
        self.log.close()
        return self.open(clean=True, recovery_point=self.log.recovery_point, log_start_offset=start)

    def append(self, data: bytes, *, epoch: int = 0, origin: Origin = Origin.CLIENT) -> AppendInfo:
        return self.log.append_as_leader(data, leader_epoch=epoch, now_ms=self.now_ms, origin=origin)

    def fill(self, batches: int, *, start_timestamp: int = 1_000, **fields: Any) -> None:
        for i in range(batches):
            self.append(batch(timestamp=start_timestamp + i, **fields))

    def marker(self, producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int = 0) -> AppendInfo:
        data = build_end_txn_marker(
            EndTxn(commit, coordinator_epoch),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp=self.now_ms,
        )
        return self.append(data, origin=Origin.COORDINATOR)

    def headers(self) -> list[BatchHeader]:
        """All batches from the log's start, read with small fetches."""
        found: list[BatchHeader] = []
        offset = self.log.log_start_offset
        while offset < self.log.log_end_offset:
            result = self.log.read(offset, 500)
            batches = [h for _, h in iter_batches(result.data) if h.last_offset >= offset]
            if not batches:
                break
            found += batches
            offset = batches[-1].next_offset
        return found
