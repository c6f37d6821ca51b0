"""Value: buffers for large reads, which are reused once no view of them is left.

A fetch reads about a megabyte, which is needed until the socket has sent it. If each fetch allocated a new block of
that size, the kernel would have to provide and zero its pages each time, which is half of the cost of a fetch. A reader
gets a view of a buffer. While this view or a slice of it exists, it counts as a reference to the buffer, and the buffer
is not reused. The class must be used on one thread, the event loop.
"""

from __future__ import annotations

from sys import getrefcount
from typing import Final

SMALLEST: Final = 64 * 1024
"""The smallest buffer in bytes. Memory for smaller reads is cheap to allocate."""
_KEPT_BYTES_MAX: Final = 8 * 1024 * 1024
_KEPT_MAX: Final = 16
_UNUSED: Final = 3
"""The reference count of an unused buffer: the list, the loop variable, and the argument of `getrefcount`."""


class ReadBuffers:
    """A bounded set of buffers, whose sizes are powers of two."""

    __slots__ = ("_kept", "_kept_bytes")

    def __init__(self) -> None:
        self._kept: list[bytearray] = []
        self._kept_bytes = 0

    def take(self, length: int) -> bytearray:
        """A buffer of at least `length` bytes. It may contain data of earlier reads."""
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
