"""Codec: frames received directly into the memory that they stay in, for connections with large responses.

    block:        [ frame | frame | start of a frame | free ...]       one system call receives many small frames
    large frame:  [ start | free ................. to its end]         the socket writes the rest into its place

`FrameReader` joins the pieces that a socket returns, which is one more copy and new memory for every frame. Here, a
frame that fits into the block becomes `bytes`. A larger frame is a memoryview of a buffer. The buffer is reused once no
view of it, and no slice of a view, exists any more: the kernel zeroes new memory page by page, which takes longer than
receiving into used memory. Not thread-safe.
"""

from __future__ import annotations

import struct
from sys import getrefcount
from typing import Final

from barnabas.core.buffers import Buffer
from barnabas.protocol.wire.frames import LENGTH_BYTES, bad_length

BLOCK_BYTES: Final = 64 * 1024
PREALLOCATED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Memory for a longer frame is allocated in steps, as its bytes arrive: the announced length may be wrong."""
REUSED_BYTES_MAX: Final = 32 * 1024 * 1024
"""The maximum total size of the buffers that one connection keeps for reuse, by default."""
REUSED_MAX: Final = 8
"""The maximum number of buffers that one connection keeps for reuse."""
_UNUSED: Final = 2
"""The reference count of an unused buffer: the list has one reference, and the argument of `getrefcount` is another."""
_LENGTH: Final = struct.Struct(">i")
_OTHER_PROTOCOL_MIN: Final = 0x15030000
"""The smallest length whose four bytes may be the beginning of another protocol, namely of a TLS alert."""


class FrameBuffer:
    """Receive into `target()`, then call `received(count)` for the frames that are complete."""

    __slots__ = (
        "_big",
        "_block",
        "_block_view",
        "_end",
        "_filled",
        "_length",
        "_reused",
        "_reused_bytes",
        "_reused_bytes_max",
        "max_bytes",
    )

    def __init__(
        self, max_bytes: int, *, block_bytes: int = BLOCK_BYTES, reused_bytes_max: int = REUSED_BYTES_MAX
    ) -> None:
        self.max_bytes = max_bytes
        self._reused_bytes_max = reused_bytes_max
        self._block = bytearray(block_bytes)
        self._block_view = memoryview(self._block)
        self._end = 0  # bytes of an incomplete frame in the block
        self._big: memoryview | None = None  # the memory of an incomplete large frame
        self._filled = 0  # bytes of the large frame that were received
        self._length = 0  # bytes of the large frame in total
        self._reused: list[bytearray] = []
        self._reused_bytes = 0

    @property
    def in_frame(self) -> bool:
        """True if part of a frame has arrived."""
        return self._big is not None or self._end > 0

    def target(self) -> memoryview:
        """The memory for the next bytes; never empty."""
        if self._big is not None:
            return self._big[self._filled :]
        return self._block_view[self._end :]

    def received(self, count: int) -> list[Buffer]:
        """The frames that are complete after `count` bytes were written to `target()`. Raises WireError if a length is
        not positive or above the limit."""
        if self._big is not None:
            self._filled += count
            if self._filled < len(self._big):
                return []
            return self._grow_or_finish(self._big)
        return self._split(self._end + count)

    def _split(self, end: int) -> list[Buffer]:
        """The frames in the block, which is filled up to `end`. The incomplete rest moves to the start of the block, or
        to a buffer of its own."""
        data, max_bytes = self._block, self.max_bytes
        frames: list[Buffer] = []
        pos = 0
        while end - pos >= LENGTH_BYTES:
            start = pos + LENGTH_BYTES
            (length,) = _LENGTH.unpack_from(data, pos)
            if not 0 < length <= max_bytes or (length >= _OTHER_PROTOCOL_MIN and _is_other_protocol(data[pos:start])):
                raise bad_length(length, bytes(data[pos:start]), max_bytes)
            stop = start + length
            if stop > end:
                if length + LENGTH_BYTES > len(data):
                    self._begin_big(length, start, end)
                    return frames
                break
            frames.append(bytes(self._block_view[start:stop]))
            pos = stop
        if pos and end > pos:
            data[: end - pos] = data[pos:end]
        self._end = end - pos
        return frames

    def _begin_big(self, length: int, start: int, end: int) -> None:
        self._length = length
        self._filled = end - start
        self._end = 0
        self._big = self._take(min(length, PREALLOCATED_BYTES_MAX))
        self._big[: self._filled] = self._block_view[start:end]

    def _grow_or_finish(self, big: memoryview) -> list[Buffer]:
        if self._filled == self._length:
            self._big = None
            return [big]
        self._big = self._take(min(self._length, 2 * self._filled))
        self._big[: self._filled] = big
        return []

    def _take(self, length: int) -> memoryview:
        too_small = -1
        for index in range(len(self._reused)):
            if getrefcount(self._reused[index]) == _UNUSED:
                if len(self._reused[index]) >= length:
                    return memoryview(self._reused[index])[:length]
                too_small = index
        size = 1 << (length - 1).bit_length()
        if too_small >= 0 and not self._has_room(size):
            self._reused_bytes -= len(self._reused.pop(too_small))
        if not self._has_room(size):
            return memoryview(bytearray(length))
        buffer = bytearray(size)
        self._reused.append(buffer)
        self._reused_bytes += size
        return memoryview(buffer)[:length]

    def _has_room(self, size: int) -> bool:
        return len(self._reused) < REUSED_MAX and self._reused_bytes + size <= self._reused_bytes_max


def _is_other_protocol(raw: bytearray) -> bool:
    """True if `raw`, the four bytes of a length, is the beginning of an HTTP response, a TLS alert or a TLS
    handshake."""
    return raw.startswith((b"HTTP", b"\x15\x03", b"\x16\x03"))
