"""Codec: iterating over the batch headers of a segment file, with as few bytes read as possible."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from barnabas.core.buffers import Buffer
from barnabas.protocol.records.batch import HEADER_SIZE, BatchHeader, read_header

_CHUNK: Final = 8192


class ReadableFile(Protocol):
    """A file that can be read, such as `fs.File`."""

    def read_at(self, position: int, length: int) -> Buffer: ...


def walk_headers(file: ReadableFile, position: int, end: int, chunk: int = _CHUNK) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch that begins at or after `position` and ends at or before `end`.

    One read covers several small batches; the records of large batches are not read. CRCs are not checked. Raises
    CorruptBatchError.
    """
    data: Buffer = b""
    data_start = position
    while end - position >= HEADER_SIZE:
        at = position - data_start
        if at + HEADER_SIZE > len(data):
            data = file.read_at(position, min(chunk, end - position))
            data_start, at = position, 0
            if len(data) < HEADER_SIZE:
                return
        header = read_header(data, at)
        following = position + header.size
        if following > end:
            return
        yield position, header
        position = following
