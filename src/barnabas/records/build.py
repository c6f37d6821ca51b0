"""Codec: building record batches of format v2, byte for byte as Kafka's MemoryRecordsBuilder does.

Layouts are drawn in `batch.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from barnabas.core.buffers import Buffer
from barnabas.records.batch import NO_TIMESTAMP, BatchHeader, Record, TimestampType
from barnabas.records.compression import Codec

Headers = Sequence[tuple[str, bytes | None]]


class SimpleRecord(NamedTuple):
    """A record that has no offset yet."""

    key: Buffer | None
    value: Buffer | None
    timestamp: int = NO_TIMESTAMP
    headers: Headers = ()


def build_batch(
    records: Iterable[SimpleRecord],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    log_append_time_ms: int = NO_TIMESTAMP,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = -1,
) -> bytes:
    """One batch with consecutive offsets from `base_offset`. Raises ValueError for no records."""
    raise NotImplementedError


def rebuild_batch(
    header: BatchHeader,
    records: Iterable[Record],
    *,
    codec: Codec | None = None,
    level: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """The batch of `header` with these records instead: offsets, producer fields and offset range stay.

    This is what compaction and broker-side recompression write. Without records the header alone stays, which keeps
    the producer's last sequence alive (MemoryRecords.filterTo with RETAIN_EMPTY).
    """
    raise NotImplementedError


class BatchBuilder:
    """Gathers a producer's records for one partition until the batch is full.

    `batch_bytes_max` bounds the size the batch will probably have: the records' bytes times `compression_ratio`,
    the ratio that earlier batches of the topic reached. The first record always fits.
    """

    def __init__(
        self,
        batch_bytes_max: int,
        *,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        compression_ratio: float = 1.0,
    ) -> None:
        raise NotImplementedError

    def try_append(self, key: Buffer | None, value: Buffer | None, timestamp: int, headers: Headers = ()) -> int | None:
        """Adds a record and returns its offset delta, or returns None when the batch is full."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        """Estimated bytes of the batch as it would be sent now, header included."""
        raise NotImplementedError

    @property
    def record_count(self) -> int:
        raise NotImplementedError

    def build(
        self,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
    ) -> bytes:
        """The batch. May be called again with another sequence (after a reset of the producer id)."""
        raise NotImplementedError
