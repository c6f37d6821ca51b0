"""Value: buffers for big reads, used again as soon as nobody looks at what was read into them.

A fetch reads about a megabyte, which lives until the socket has taken it. A new block of that size each time is memory
that the allocator gets from the kernel and gives back, page by page and zeroed: half of what a fetch would cost. Who
reads gets a view; while that or any slice of it is alive it counts as a reference to the buffer, and the buffer is left
alone. For one thread, the event loop's.
"""

from __future__ import annotations

from sys import getrefcount
from typing import Final

SMALLEST: Final = 64 * 1024
"""Bytes: smaller reads are cheap to allocate."""
_KEPT_BYTES_MAX: Final = 8 * 1024 * 1024
_KEPT_MAX: Final = 16
_UNUSED: Final = 3
"""References to a buffer that only the list, the loop's variable and `getrefcount` itself know."""


class ReadBuffers:
    """A few buffers, of sizes that are powers of two."""

    __slots__ = ("_kept", "_kept_bytes")

    def __init__(self) -> None:
        self._kept: list[bytearray] = []
        self._kept_bytes = 0

    def take(self, length: int) -> bytearray:
        """A buffer of at least `length` bytes, full of whatever was read before."""
        for buffer in self._kept:
            if len(buffer) >= length and getrefcount(buffer) == _UNUSED:
                return buffer
        size = max(SMALLEST, 1 << (length - 1).bit_length())
        if self._kept_bytes + size > _KEPT_BYTES_MAX or len(self._kept) >= _KEPT_MAX:
            return bytearray(length)
        buffer = bytearray(size)
        self._kept.append(buffer)
        self._kept_bytes += size
        return buffer
