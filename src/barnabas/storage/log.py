"""Machine: one partition's log: segments, indexes, epochs, producer state. It is given its disk and the time.

(Being built; the signatures are the contract.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from barnabas.core.buffers import Buffer
from barnabas.core.ids import TopicPartition
from barnabas.records.validate import Origin
from barnabas.storage.config import LogConfig
from barnabas.storage.fs import FileSystem
from barnabas.storage.values import AbortedTxn, AppendInfo, EpochEndOffset, ReadResult, RecoveryReport, TimestampOffset


class FlushJob:
    """An fsync that is due. `run()` belongs in an executor; `finish()` back on the loop, after it returned.

    If `run` raised, call `failed(error)` instead: the log marks itself failed and reports its directory.
    """

    up_to: int

    def run(self) -> None: ...

    def finish(self) -> None: ...

    def failed(self, error: BaseException) -> None: ...


class Log:
    """Synchronous; used from one thread (the event loop). Only `ReadPlan.run` and `FlushJob.run` may go to an executor."""

    topic_partition: TopicPartition
    topic_id: UUID | None
    path: str
    config: LogConfig
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    """Everything below is on the platter."""
    size_bytes: int
    recovery: RecoveryReport
    failed: bool

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        path: str,
        config: LogConfig,
        *,
        topic_partition: TopicPartition,
        now_ms: int,
        clean_shutdown: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        topic_id: UUID | None = None,
        producer_expiration_ms: int = 86_400_000,
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> Log: ...

    def append_as_leader(
        self, buf: Buffer, *, leader_epoch: int, now_ms: int, origin: Origin = Origin.CLIENT
    ) -> AppendInfo: ...
    def append_as_follower(self, buf: Buffer, *, now_ms: int, leader_epoch: int | None = None) -> AppendInfo | None: ...

    def read(
        self, offset: int, max_bytes: int, *, upper_offset: int | None = None, min_one_batch: bool = True
    ) -> ReadResult: ...
    def plan_read(
        self, offset: int, max_bytes: int, *, upper_offset: int | None = None, min_one_batch: bool = True
    ) -> Callable[[], ReadResult]: ...

    def last_stable_offset(self, high_watermark: int) -> int: ...
    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTxn]: ...
    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None: ...
    def offset_of_max_timestamp(self) -> TimestampOffset | None: ...

    @property
    def latest_epoch(self) -> int | None: ...
    def epoch_end_offset(self, epoch: int) -> EpochEndOffset: ...
    def epoch_for_offset(self, offset: int) -> int | None: ...
    def assign_epoch(self, epoch: int, start_offset: int) -> None: ...

    def truncate_to(self, offset: int) -> bool: ...
    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None: ...
    def advance_log_start(self, offset: int) -> bool: ...
    def delete_records(self, before_offset: int, high_watermark: int, *, now_ms: int) -> int: ...

    def roll(self, now_ms: int) -> None: ...
    def delete_old_segments(self, now_ms: int, high_watermark: int) -> int: ...
    def delete_pending_files(self, now_ms: int) -> int: ...
    def expire_producers(self, now_ms: int) -> int: ...

    def unflushed_messages(self) -> int: ...
    def flush_due(self, now_ms: int) -> bool: ...
    def flush_job(self) -> FlushJob | None: ...
    def flush(self, now_ms: int) -> None: ...

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool: ...
    def update_config(self, config: LogConfig) -> None: ...
    def replace_segments(self, new: Sequence[object], old: Sequence[object], *, now_ms: int) -> None: ...
    def close(self, *, clean: bool = True) -> None: ...
