"""Machine: what a broker checks in a produced batch before it assigns offsets (Kafka's LogValidator).

What is checked, at what cost, is decided in docs/adr/0002-what-the-broker-checks-in-a-batch.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from barnabas.core.buffers import Buffer
from barnabas.records.batch import BatchHeader, TimestampType
from barnabas.records.compression import DECOMPRESSED_BYTES_MAX, Codec

LONG_MAX = (1 << 63) - 1


class Origin(Enum):
    """Who appends (Kafka's AppendOrigin, plus followers): clients are trusted least."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    RAFT_LEADER = "raft leader"
    REPLICATION = "replication"


@dataclass(frozen=True, slots=True)
class ValidationRules:
    """A topic's settings that decide which records it takes, and how they are stored."""

    topic: str
    compact: bool = False
    max_message_bytes: int = 1_048_588
    compression_type: Codec | None = None
    """None is `producer`: keep the codec that the batch came with."""
    compression_level: int | None = None
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = LONG_MAX
    timestamp_after_max_ms: int = 3_600_000
    origin: Origin = Origin.CLIENT
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Validated:
    """Batches ready to be written: `parts`, in order, are the bytes; nothing was joined or copied needlessly."""

    parts: list[Buffer]
    batches: list[BatchHeader]
    """The headers as they are stored, offsets assigned."""
    first_offset: int
    last_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int
    size: int
    log_append_time_ms: int
    """`now_ms` under LogAppendTime, otherwise -1: the value for ProduceResponse."""


def validate_and_assign(
    buf: Buffer, rules: ValidationRules, *, first_offset: int, leader_epoch: int, now_ms: int
) -> Validated:
    """Checks the batches in `buf`, gives them offsets from `first_offset` on and the leader's epoch.

    Raises RecordRefusedError (the code to answer, with the records at fault) and CorruptBatchError.
    """
    raise NotImplementedError


def validate_replicated(buf: Buffer, *, expected_offset: int | None = None) -> Validated:
    """Checks batches that a leader has already accepted: structure and CRC; offsets and epochs stay as they are.

    A partial batch at the end of `buf` is left out. With `expected_offset`, the first batch must not start before it.
    """
    raise NotImplementedError
