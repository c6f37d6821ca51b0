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


def whole_batches(buffer: Buffer, position: int, end: int, piece_bytes: int) -> list[Piece]:
    """The whole batches that have an offset from `position` to before `end`, in pieces that end when they have
    `piece_bytes`.

    Raises CorruptBatchError if a batch is damaged, or has a format before Kafka 0.11.
    """
    pieces: list[Piece] = []
    begin = count = start = 0
    transactional = False
    for at, header in iter_batches(buffer):
        if header.next_offset <= position:
            continue
        if header.base_offset >= end:
            break
        check_crc(buffer, at, header)
        if not count:
            begin, start, transactional = at, header.base_offset, False
        count += 1
        transactional = transactional or bool(header.attributes & _OF_TRANSACTIONS)
        stop = at + header.size
        last = Piece(
            memoryview(buffer)[begin:stop],
            start,
            header.next_offset,
            count,
            header.partition_leader_epoch,
            transactional,
        )
        if count > 1:
            pieces[-1] = last
        else:
            pieces.append(last)
        if stop - begin >= piece_bytes:
            count = 0
    return pieces
