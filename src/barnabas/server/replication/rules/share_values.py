"""Values of share partitions: record states, acknowledgements, configs, acquired records, writes."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from msgspec import Struct


class RecordState(IntEnum):
    """The delivery state of a record, by its number in the share coordinator's records."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


TERMINAL: Final = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})


class AckType(IntEnum):
    """The acknowledgement types of ShareAcknowledge."""

    GAP = 0
    """The batch has no such offset."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    """Extend the acquisition lock (KIP-1222)."""


class SharePartitionConfig(Struct, frozen=True):
    """The configs of one share group that limit how its share partitions deliver records."""

    share_delivery_count_limit: int
    share_partition_max_record_locks: int
    share_record_lock_duration_ms: int
    share_renew_acknowledge_enable: bool


class StateBatch(NamedTuple):
    """A run of offsets with the same state, as the share coordinator stores it."""

    first: int
    last: int
    state: int
    deliveries: int


class LogRange(Struct, frozen=True):
    """The offsets of one batch in the partition's log. Offsets between two batches do not exist."""

    first: int
    last: int
    skip: bool = False
    """True for a batch without records for members: a control batch, or a batch of an aborted transaction."""


class Acquired(NamedTuple):
    """A run of records that a member acquired. `deliveries` counts this delivery."""

    first: int
    last: int
    deliveries: int


class Ack(NamedTuple):
    """A member's acknowledgement of a run of offsets, with one type for all or one type for each."""

    first: int
    last: int
    types: Sequence[int]


class AcquireRequest(Struct, frozen=True):
    """A member's request for records."""

    member: str
    max_records: int
    batch_size: int = 500
    strict: bool = False
    """True: at most `max_records` (record-limit mode). False: the batch that reaches the limit is acquired whole."""


class ShareStateWrite(Struct, frozen=True):
    """One write to the share coordinator. It covers all transitions up to `sequence`."""

    sequence: int
    start_offset: int
    complete_count: int
    batches: list[StateBatch]
