"""Value: what goes into a log and what comes out of it."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from barnabas.core.buffers import Buffer
from barnabas.core.ids import NO_LEADER_EPOCH


class AppendInfo(Struct, frozen=True):
    """What an append did. For a duplicate of an earlier batch, the earlier batch's offsets and `duplicate`."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    """The time stamped on the records, or -1 where the records keep their own (CreateTime)."""
    log_start_offset: int
    size: int = 0
    duplicate: bool = False
    last_leader_epoch: int = NO_LEADER_EPOCH
    rolled: bool = False

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1


class ReadResult(Struct, frozen=True):
    """Whole batches from the one that holds the asked-for offset on; the last one may be cut off (Fetch allows it)."""

    data: Buffer
    first_offset: int
    """The base offset of the first batch, which may lie below the offset asked for; -1 when `data` is empty."""
    segment_base: int = -1
    position: int = -1

    @property
    def size(self) -> int:
        return len(self.data)


EMPTY_READ = ReadResult(b"", -1)


class TimestampOffset(Struct, frozen=True):
    """A record's timestamp and offset, with the epoch of the leader that wrote it where that is known."""

    timestamp: int
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH


class EpochEndOffset(Struct, frozen=True):
    """The answer to OffsetForLeaderEpoch: the largest epoch not above the asked one, and where it ended."""

    leader_epoch: int
    end_offset: int


UNKNOWN_EPOCH_END = EpochEndOffset(NO_LEADER_EPOCH, -1)


class AbortedTxn(NamedTuple):
    """One aborted transaction as a read_committed Fetch reports it, and as `.txnindex` stores it."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class RecoveryReport(Struct, frozen=True):
    """What opening a log had to repair; all zero after a clean shutdown."""

    clean: bool
    segments_checked: int = 0
    bytes_checked: int = 0
    bytes_truncated: int = 0
    segments_dropped: int = 0
    indexes_rebuilt: int = 0
