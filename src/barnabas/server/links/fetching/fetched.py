"""Machine: what a leader does with the records that the source sent for a mirror partition.

    source's batches   [3..7] [8..9] [12..15]            log end offset 8
                        left   appended as they are       a gap is valid: compaction leaves gaps
                        out

A response may begin with batches that the log already has, because the source looks up the batch that contains the
fetch offset. An empty log whose start lies inside a batch restarts at that batch. Any other batch that begins below the
log end offset contradicts the log.
"""

from __future__ import annotations

from msgspec import Struct

from barnabas.core.buffers import Buffer
from barnabas.protocol.records.batch import iter_batches
from barnabas.protocol.records.errors import CorruptBatchError


class AppendMirrored(Struct, frozen=True):
    """Append the bytes from `begin` to `end` of the response, if these differ.

    `restart_at` is not None if the log must first restart there, with its present log start offset. `later_epoch` is
    the leader epoch of a batch after `end` which is later than the local one.
    """

    begin: int
    end: int
    restart_at: int | None = None
    later_epoch: int | None = None


class ContradictsLog(Struct, frozen=True):
    """The batches cannot be appended: `reason` is a sentence for the operator."""

    reason: str


def plan_append(records: Buffer, log_start: int, log_end: int, leader_epoch: int) -> AppendMirrored | ContradictsLog:
    """What of `records`, fetched at the log's end, is appended in the local leader epoch `leader_epoch`."""
    begin = end = 0
    restart_at: int | None = None
    expected = log_end
    try:
        for position, header in iter_batches(records):
            if header.last_offset_delta < 0:
                return ContradictsLog(f"the source sent a batch at offset {header.base_offset} that ends before it.")
            if header.last_offset < expected and end == begin:
                begin = end = position + header.size
                continue
            if header.base_offset < expected:
                if expected != log_start or log_start != log_end or end != begin:
                    return ContradictsLog(
                        f"the source sent a batch of the offsets {header.base_offset} to {header.last_offset}, but the "
                        f"log ends at {expected}: the two logs have different batches."
                    )
                restart_at = header.base_offset
            if header.partition_leader_epoch > leader_epoch:
                return AppendMirrored(begin, end, restart_at, header.partition_leader_epoch)
            expected = header.next_offset
            end = position + header.size
    except CorruptBatchError as error:
        return ContradictsLog(
            f"the source sent records that cannot be mirrored: {error}. Topics with records of a format before Kafka "
            "0.11 must be mirrored by MirrorMaker."
        )
    return AppendMirrored(begin, end, restart_at)
