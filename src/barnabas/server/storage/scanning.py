"""Shell: reads the batches of a segment with their CRCs, and finds out what lies behind damage."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from barnabas.core.buffers import Buffer
from barnabas.protocol.records.batch import LOG_OVERHEAD, BatchHeader, check_crc, iter_batches, read_header
from barnabas.protocol.records.errors import CorruptBatchError
from barnabas.server.storage import names
from barnabas.server.storage.damage import BatchesBehind, Damage, has_lost_page, region_of
from barnabas.server.storage.fs import File
from barnabas.server.storage.segments.segment import Segment

_CHUNK: Final = 4 << 20
_SEARCHED: Final = 32 << 20
"""So many bytes behind the damage are searched for whole batches: several times the largest batch."""


def scan_batches(segment: Segment) -> Iterator[tuple[int, Buffer, int, BatchHeader]]:
    """(position in the file, buffer, position in the buffer, header) of each batch, up to the first corrupt one."""
    file = segment.file()
    size = segment.size
    position = 0
    length = _CHUNK
    while position < size:
        buf = memoryview(file.read_at(position, min(length, size - position)))
        at = 0
        try:
            for at, header in iter_batches(buf):
                check_crc(buf, at, header)
                yield position + at, buf, at, header
                at += header.size
        except CorruptBatchError:
            return
        if at:
            position, length = position + at, _CHUNK
            continue
        # The buffer contains no whole batch: the batch is larger than the chunk, or incomplete.
        needed = 12 + int.from_bytes(buf[8:12], "big", signed=True) if len(buf) >= 12 else 0
        if not len(buf) < needed <= size - position:
            return
        length = needed


def examine(
    segment: Segment,
    position: int,
    offset: int,
    later: Sequence[Segment],
    *,
    reason: str = "",
    torn: bool = False,
    leader_epoch: int = -1,
) -> Damage:
    """Describe the damage at `position` of the segment, where the batch of `offset` should begin.

    `reason` is needed for a whole batch that is out of order. `torn` says that the batch has an older leader epoch than
    the leader epoch checkpoint has for its offset. `leader_epoch` is that of the batch before the damage in this
    segment, or -1. The rules are numbered in the docstring of `damage.py`.
    """
    file, size = segment.file(), segment.size
    data = memoryview(file.read_at(position, min(size - position, _SEARCHED)))
    behind = _find_behind(data, position, offset)
    region = region_of(data, position, None if behind is None else behind.position)
    begins = [header for header in map(_first_batch, later) if header is not None]
    epochs_behind = (
        [behind.leader_epoch] if behind is not None else [header.partition_leader_epoch for header in begins]
    )
    torn = (
        torn  # rule 4
        or has_lost_page(region, position, offset, ends_file=behind is None)  # rule 3
        or (behind is None and not reason and _ends_inside(data, size - position))  # rule 3
        or (bool(epochs_behind) and epochs_behind[0] > leader_epoch >= 0)  # rule 5
    )
    return Damage(
        segment.file_path(names.LOG),
        position,
        offset,
        size - position,
        reason or _reason(data, size - position),
        torn,
        behind,
        len(begins),
    )


def _find_behind(data: memoryview, position: int, offset: int) -> BatchesBehind | None:
    """The first run of whole batches behind byte 0 of `data`. Their offsets are above `offset`, by less than 2^32."""
    start = re.escape(offset.to_bytes(8, "big")[:4])
    for found in re.compile(b"(?=" + start + b".{12}\x02)", re.DOTALL).finditer(data, 1):
        first = count = 0
        epoch = -1
        last = offset
        try:
            for at, header in iter_batches(data, found.start()):
                if header.base_offset <= last or header.last_offset_delta < 0:
                    break
                check_crc(data, at, header)
                if not count:
                    first, epoch = header.base_offset, header.partition_leader_epoch
                count, last = count + 1, header.last_offset
        except CorruptBatchError:
            pass
        if count:
            return BatchesBehind(position + found.start(), first, last, count, epoch)
    return None


def _reason(data: memoryview, left: int) -> str:
    """Why the bytes are not a whole batch."""
    try:
        header = read_header(data)
        if header.size > left:
            return f"a batch of {header.size} bytes begins {left} bytes before the end of the file"
    except CorruptBatchError as error:
        return str(error).replace(" at byte 0", "")
    return "the batch does not match its CRC"


def _ends_inside(data: memoryview, left: int) -> bool:
    """Whether the file ends before the batch that begins with `data`."""
    return left < LOG_OVERHEAD or LOG_OVERHEAD + int.from_bytes(data[8:12], "big") > left


def _first_batch(segment: Segment) -> BatchHeader | None:
    """The first batch of a segment, or None if it is damaged."""
    file: File = segment.file()
    try:
        header = read_header(file.read_at(0, min(segment.size, 61)))
        segment.read_batch(file, 0, header)
    except CorruptBatchError:
        return None
    finally:
        segment.cool()
    return header if header.base_offset >= segment.base_offset else None
