"""Value: the words of share partitions: states, acknowledgements, limits, what is acquired and what is written."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from msgspec import Struct


class RecordState(IntEnum):
    """The numbers are those of the log of the share coordinator."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


TERMINAL: Final = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})


class AckType(IntEnum):
    """What a member says of a record."""

    GAP = 0
    """The batch has no such offset."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    """Not done yet: hold it for me for another while (KIP-1222)."""


class SharePartitionConfig(Struct, frozen=True):
    """The configs of one share group that limit how its share partitions deliver records."""

    share_delivery_count_limit: int
    share_partition_max_record_locks: int
    share_record_lock_duration_ms: int
    share_renew_acknowledge_enable: bool


class StateBatch(NamedTuple):
    """A run of offsets, as it is written."""

    first: int
    last: int
    state: int
    deliveries: int


class LogRange(Struct, frozen=True):
    """A batch of the partition's log; what is between two of them does not exist."""

    first: int
    last: int
    skip: bool = False
    """No records for members: a control batch, or one of an aborted transaction."""


class Acquired(NamedTuple):
    """Records given to a member, all for the `deliveries`th time."""

    first: int
    last: int
    deliveries: int


class Ack(NamedTuple):
    """What a member says of a run of offsets: one type for all, or one each."""

    first: int
    last: int
    types: Sequence[int]


class Wish(Struct, frozen=True):
    """What a member wants when it acquires."""

    member: str
    max_records: int
    batch_size: int = 500
    strict: bool = False
    """Not one more than `max_records` (record-limit mode); otherwise the batch that reaches it is given whole."""


class Write(Struct, frozen=True):
    """What is to be remembered, for the turns up to `turn`."""

    turn: int
    start_offset: int
    complete_count: int
    batches: list[StateBatch]
