"""Value: results of operations on a log."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from barnabas.core.buffers import Buffer
from barnabas.core.ids import NO_LEADER_EPOCH
from barnabas.protocol.records.log_files import AbortedTxn

__all__ = [
    "EMPTY_READ",
    "NOTHING_REPAIRED",
    "UNKNOWN_EPOCH_END",
    "AbortedTxn",
    "AppendInfo",
    "EpochEndOffset",
    "ReadResult",
    "RecoveryReport",
    "TimestampOffset",
]


class AppendInfo(Struct, frozen=True):
    """The result of an append. If the batch repeats an earlier batch, `duplicate` is set and the offsets are those of
    the earlier batch."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    """The timestamp given to the records (LogAppendTime), or -1 if the records keep their own (CreateTime)."""
    log_start_offset: int
    size: int = 0
    duplicate: bool = False
    last_leader_epoch: int = NO_LEADER_EPOCH
    rolled: bool = False

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1


class ReadResult(Struct, frozen=True):
    """Batches from the one that contains the requested offset on. The last batch may be incomplete, as Fetch
    permits."""

    data: Buffer
    first_offset: int
    """The base offset of the first batch, which may be below the requested offset; -1 if `data` is empty."""

    @property
    def size(self) -> int:
        return len(self.data)


EMPTY_READ = ReadResult(b"", -1)


class TimestampOffset(Struct, frozen=True):
    """The timestamp and offset of a record, and the leader epoch of its batch if known."""

    timestamp: int
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH


class EpochEndOffset(Struct, frozen=True):
    """The result of OffsetForLeaderEpoch: the largest epoch that is not above the requested one, and the end offset of
    that epoch; (-1, -1) if unknown."""

    leader_epoch: int
    end_offset: int


UNKNOWN_EPOCH_END = EpochEndOffset(NO_LEADER_EPOCH, -1)


class RecoveryReport(Struct, frozen=True):
    """The repairs made when a log was opened. After a clean shutdown all counts are zero, unless a file was damaged."""

    clean: bool
    segments_checked: int = 0
    bytes_checked: int = 0
    bytes_truncated: int = 0
    segments_dropped: int = 0
    indexes_rebuilt: int = 0


NOTHING_REPAIRED: Final = RecoveryReport(clean=True)
"""Shared by all logs that were closed cleanly: a node may have 20,000 of them."""
