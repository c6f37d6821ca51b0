"""Codec: record batches of a backup as a producer sends them.

A batch keeps its bytes but for the header: no transaction, the producer of the restore, a new CRC. Only a batch that
no producer may send is encoded again: one in which compaction has left holes, one with the broker's time stamps, and
one whose first records are below the log start.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from barnabas.core.buffers import Buffer
from barnabas.protocol.records.batch import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    iter_records,
)
from barnabas.protocol.records.build import SimpleRecord, build_batch, seal

_NEEDS_ENCODING = LOG_APPEND_TIME_FLAG | DELETE_HORIZON_FLAG


class KeptBatch(Struct, frozen=True):
    """The records of a batch that are restored."""

    offsets: Sequence[int]
    """Their offsets in the source."""
    records: tuple[SimpleRecord, ...] | None
    """The records to write anew; None if the bytes of the batch are used as they are."""


def kept_records(data: Buffer, position: int, header: BatchHeader, log_start: int) -> KeptBatch:
    """The records of a data batch from `log_start` on. Raises CorruptBatchError."""
    whole = header.record_count == header.last_offset_delta + 1 and header.base_offset >= log_start
    if whole and not header.attributes & _NEEDS_ENCODING:
        return KeptBatch(range(header.base_offset, header.next_offset), None)
    kept = [record for record in iter_records(data, position, header) if record.offset >= log_start]
    return KeptBatch(
        [record.offset for record in kept],
        tuple(SimpleRecord(record.key, record.value, record.timestamp, record.headers) for record in kept),
    )


def produced_batch(
    data: Buffer, position: int, header: BatchHeader, kept: KeptBatch, producer: tuple[int, int], sequence: int
) -> bytes:
    """The batch to send, by a producer with this id and epoch."""
    producer_id, epoch = producer
    if kept.records is not None:
        return build_batch(
            kept.records,
            codec=header.codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
    plain = header._replace(
        base_offset=0,
        partition_leader_epoch=-1,
        attributes=header.attributes & ~(TRANSACTIONAL_FLAG | CONTROL_FLAG),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    return seal(plain, memoryview(data)[position + HEADER_SIZE : position + header.size])
