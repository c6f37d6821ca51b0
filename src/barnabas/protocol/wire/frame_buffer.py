"""Codec: frames received straight into the memory they stay in, for those who read big ones (a consumer's fetches).

    small block:  [ frame | frame | start of a frame | free ...]       read many small answers with one system call
    big frame:    [ start | free ................. to its end]         the socket writes the rest into its place

`FrameReader` takes what a socket gives and puts it together; that is one copy more, and new memory for every megabyte.
A frame of up to `SMALL_BYTES` comes out as `bytes`. A larger one is a view of a buffer that is used again when nobody
holds the view or a slice of it any more: new memory comes from the kernel page by page and zeroed, which takes longer
than to receive into it. For one thread, the event loop's.
"""

from __future__ import annotations

import struct
from sys import getrefcount
from typing import Final

from barnabas.core.buffers import Buffer
from barnabas.protocol.wire.frames import LENGTH_BYTES, refusal

SMALL_BYTES: Final = 64 * 1024
BELIEVED_BYTES: Final = 64 * 1024 * 1024
"""A frame that announces more gets more memory as its bytes come in, not before."""
REUSED_BYTES_MAX: Final = 32 * 1024 * 1024
KEPT_MAX: Final = 8
_UNUSED: Final = 2
"""References to a buffer that only the list and `getrefcount` itself know."""
_LENGTH: Final = struct.Struct(">i")
_SUSPICIOUS: Final = 0x15030000
"""From here on a length may also be the first bytes of another protocol: an alert of TLS is the smallest."""


class FrameBuffer:
    """`target` is where the next bytes go, `received` says how many came and gives the frames that are complete."""

    __slots__ = (
        "_big",
        "_end",
        "_filled",
        "_kept",
        "_kept_bytes",
        "_length",
        "_reused_bytes_max",
        "_small",
        "_small_view",
        "max_bytes",
    )

    def __init__(
        self, max_bytes: int, *, block_bytes: int = SMALL_BYTES, reused_bytes_max: int = REUSED_BYTES_MAX
    ) -> None:
        self.max_bytes = max_bytes
        self._reused_bytes_max = reused_bytes_max
        self._small = bytearray(block_bytes)
        self._small_view = memoryview(self._small)
        self._end = 0  # bytes in the small block that are no whole frame yet
        self._big: memoryview | None = None  # the memory of a big frame,
        self._filled = 0  # how much of it has come,
        self._length = 0  # and how long it will be
        self._kept: list[bytearray] = []
        self._kept_bytes = 0

    @property
    def in_frame(self) -> bool:
        """Part of a frame has arrived, and the rest has not."""
        return self._big is not None or self._end > 0

    def target(self) -> memoryview:
        """Memory to receive into; never empty."""
        if self._big is not None:
            return self._big[self._filled :]
        return self._small_view[self._end :]

    def received(self, count: int) -> list[Buffer]:
        """`count` bytes were written to the start of `target`. Raises WireError for a length no frame can have."""
        if self._big is not None:
            self._filled += count
            if self._filled < len(self._big):
                return []
            return self._grow_or_finish(self._big)
        return self._cut(self._end + count)

    def _cut(self, end: int) -> list[Buffer]:
        """The frames in the small block, which is full up to `end`. What is left moves to where it will be whole."""
        data, max_bytes = self._small, self.max_bytes
        frames: list[Buffer] = []
        pos = 0
        while end - pos >= LENGTH_BYTES:
            start = pos + LENGTH_BYTES
            (length,) = _LENGTH.unpack_from(data, pos)
            if not 0 < length <= max_bytes or (length >= _SUSPICIOUS and _is_foreign(data[pos:start])):
                raise refusal(length, bytes(data[pos:start]), max_bytes)
            stop = start + length
            if stop > end:
                if length + LENGTH_BYTES > len(data):
                    self._begin_big(length, start, end)
                    return frames
                break
            frames.append(bytes(self._small_view[start:stop]))
            pos = stop
        if pos and end > pos:
            data[: end - pos] = data[pos:end]
        self._end = end - pos
        return frames

    def _begin_big(self, length: int, start: int, end: int) -> None:
        self._length = length
        self._filled = end - start
        self._end = 0
        self._big = self._take(min(length, BELIEVED_BYTES))
        self._big[: self._filled] = self._small_view[start:end]

    def _grow_or_finish(self, big: memoryview) -> list[Buffer]:
        if self._filled == self._length:
            self._big = None
            return [big]
        self._big = self._take(min(self._length, 2 * self._filled))
        self._big[: self._filled] = big
        return []

    def _take(self, length: int) -> memoryview:
        too_small = -1
        for place in range(len(self._kept)):
            if getrefcount(self._kept[place]) == _UNUSED:
                if len(self._kept[place]) >= length:
                    return memoryview(self._kept[place])[:length]
                too_small = place
        size = 1 << (length - 1).bit_length()
        if too_small >= 0 and not self._has_room(size):
            self._kept_bytes -= len(self._kept.pop(too_small))
        if not self._has_room(size):
            return memoryview(bytearray(length))
        kept = bytearray(size)
        self._kept.append(kept)
        self._kept_bytes += size
        return memoryview(kept)[:length]

    def _has_room(self, size: int) -> bool:
        return len(self._kept) < KEPT_MAX and self._kept_bytes + size <= self._reused_bytes_max


def _is_foreign(raw: bytearray) -> bool:
    """Four bytes of an HTTP server, or of a TLS server that was not spoken to in TLS."""
    return raw.startswith((b"HTTP", b"\x15\x03", b"\x16\x03"))
