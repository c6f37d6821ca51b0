"""Codec: the whole batches of a fetch response that a run stores, as one piece of bytes."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from barnabas.core.buffers import Buffer
from barnabas.protocol.records.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, check_crc, iter_batches

_OF_TRANSACTIONS: Final = TRANSACTIONAL_FLAG | CONTROL_FLAG


class Piece(Struct, frozen=True):
    """Consecutive batches: their bytes, and the offsets from the first to after the last."""

    data: memoryview
    start: int
    end: int
    batches: int
    last_epoch: int
    transactional: bool


def whole_batches(buffer: Buffer, position: int, end: int) -> Piece | None:
    """The whole batches that have an offset from `position` to before `end`; None if there are none.

    Raises CorruptBatchError if a batch is damaged, or has a format before Kafka 0.11.
    """
    begin = stop = count = 0
    start = after = last_epoch = -1
    transactional = False
    for at, header in iter_batches(buffer):
        if header.next_offset <= position:
            continue
        if header.base_offset >= end:
            break
        check_crc(buffer, at, header)
        if not count:
            begin, start = at, header.base_offset
        stop, after, last_epoch = at + header.size, header.next_offset, header.partition_leader_epoch
        transactional = transactional or bool(header.attributes & _OF_TRANSACTIONS)
        count += 1
    if not count:
        return None
    return Piece(memoryview(buffer)[begin:stop], start, after, count, last_epoch, transactional)
