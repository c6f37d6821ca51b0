"""Codec: frames, the unit of the protocol on TCP, received directly into the memory that they stay in.

    frame:        [ length: int32 | `length` bytes ]
    block:        [ rest of a frame | frame | frame | ... | start of a frame ]    one system call, many small frames
    large frame:  [ start | free ................. to its end ]                   the socket writes the rest here

With `frames_max`, only so many frames of the block are read at once, so that thousands of tiny ones do not hold up the
event loop; the rest of the block is copied, and read later.

A frame that arrives in one piece is copied once, out of the block, and becomes `bytes`. If a quarter of the block or
more of an incomplete frame has arrived, its rest is received into a buffer of its own, and the frame is a memoryview of
that buffer. The buffer is reused once no view of it, and no slice of a view, exists any more: the kernel zeroes new
memory page by page, which takes longer than receiving into used memory.

The connections of one event loop may share a `ReceiveMemory`. An idle connection then has no memory of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from sys import getrefcount, maxsize
from typing import Final

from barnabas.core.buffers import Buffer
from barnabas.protocol.wire.errors import WireError

LENGTH_BYTES: Final = 4
BLOCK_BYTES: Final = 64 * 1024
PREALLOCATED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Memory for a longer frame is allocated in steps, as its bytes arrive: the announced length may be wrong."""
REUSED_BYTES_MAX: Final = 32 * 1024 * 1024
"""The maximum total size of the buffers that are kept for reuse, by default."""
REUSED_MAX: Final = 8
"""The maximum number of buffers that are kept for reuse."""
_UNUSED: Final = 2
"""The reference count of an unused buffer: the list has one reference, and the argument of `getrefcount` is another."""
_LENGTH: Final = struct.Struct(">i")
_TLS_HANDSHAKE: Final = b"\x16\x03"
_TLS_ALERT: Final = b"\x15\x03"
_OTHER_PROTOCOL_MIN: Final = 0x15030000
"""The smallest length whose four bytes may be the beginning of another protocol, namely of a TLS alert."""


class ReceiveMemory:
    """The memory that one or more connections of an event loop receive into. Not thread-safe."""

    __slots__ = ("_preallocated_bytes_max", "_reused", "_reused_bytes", "_reused_bytes_max", "block", "held_max")

    def __init__(
        self,
        *,
        block_bytes: int = BLOCK_BYTES,
        reused_bytes_max: int = REUSED_BYTES_MAX,
        preallocated_bytes_max: int = PREALLOCATED_BYTES_MAX,
    ) -> None:
        self.block = memoryview(bytearray(block_bytes))
        """Small frames arrive here. Only one connection may be between `FrameBuffer.target` and `received`."""
        self.held_max = block_bytes // 4
        """An incomplete frame that is larger does not stay in the block."""
        self._preallocated_bytes_max = preallocated_bytes_max
        self._reused_bytes_max = reused_bytes_max
        self._reused: list[bytearray] = []
        self._reused_bytes = 0

    def take(self, length: int, received: int) -> memoryview:
        """A buffer for a frame of `length` bytes, of which `received` have arrived.

        If no unused buffer is large enough, the new one has at most twice the size of the received bytes, or
        `preallocated_bytes_max` bytes, and may be shorter than the frame.
        """
        too_small = -1
        for index in range(len(self._reused)):
            if getrefcount(self._reused[index]) == _UNUSED:
                if len(self._reused[index]) >= length:
                    return memoryview(self._reused[index])[:length]
                too_small = index
        allowed = max(self._preallocated_bytes_max, 2 * received)
        if length > allowed:
            return memoryview(bytearray(allowed))
        size = max(len(self.block), 1 << (length - 1).bit_length())
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


class FrameBuffer:
    """The frames of one connection: receive into `target()`, then call `received(count)` for the complete ones."""

    __slots__ = ("_big", "_filled", "_frames_max", "_held", "_length", "_memory", "has_more", "max_bytes")

    def __init__(self, max_bytes: int, memory: ReceiveMemory, frames_max: int = maxsize) -> None:
        self.max_bytes = max_bytes
        self._memory = memory
        self._frames_max = frames_max
        self._held = b""  # the start of an incomplete small frame; with `has_more`, all that was not read
        self.has_more = False
        """Whether more than `frames_max` frames have arrived: call `resume` before more is received."""
        self._big: memoryview | None = None  # the memory of an incomplete large frame
        self._filled = 0  # bytes of the large frame that were received
        self._length = 0  # bytes of the large frame in total

    @property
    def in_frame(self) -> bool:
        """True if part of a frame has arrived."""
        return self._big is not None or bool(self._held)

    @property
    def reserved_bytes(self) -> int:
        """The length of the incomplete large frame, although not all its memory may be allocated yet; or 0."""
        return 0 if self._big is None else self._length

    @property
    def held_bytes(self) -> int:
        """The size of the part of an incomplete frame that has arrived."""
        return len(self._held) if self._big is None else self._filled

    def target(self) -> memoryview:
        """The memory for the next bytes; never empty."""
        if self._big is not None:
            return self._big[self._filled :]
        block, held = self._memory.block, self._held
        if not held:
            return block
        size = len(held)
        block[:size] = held
        return block[size:]

    def received(self, count: int) -> list[Buffer]:
        """The frames that are complete after `count` bytes were written to `target()`. Raises WireError if a length is
        not positive or above the limit."""
        if self._big is not None:
            self._filled += count
            return [] if self._filled < len(self._big) else self._grow_or_finish(self._big)
        block, max_bytes, frames_max = self._memory.block, self.max_bytes, self._frames_max
        end = len(self._held) + count
        frames: list[Buffer] = []
        pos = 0
        while end - pos >= LENGTH_BYTES:
            start = pos + LENGTH_BYTES
            (length,) = _LENGTH.unpack_from(block, pos)
            if not 0 < length <= max_bytes or (length >= _OTHER_PROTOCOL_MIN and _is_other_protocol(block[pos:start])):
                raise _bad_length(length, bytes(block[pos:start]), max_bytes)
            stop = start + length
            if stop > end:
                if end - pos > self._memory.held_max:
                    self._begin_big(length, block[start:end])
                    pos = end
                break
            frames.append(bytes(block[start:stop]))
            pos = stop
            if pos == end:
                break
            if len(frames) == frames_max:
                self.has_more = True
                break
        self._held = bytes(block[pos:end]) if pos < end else b""
        return frames

    def resume(self) -> None:
        """Call `received(0)` afterwards for further frames of the bytes that were received, while `has_more`."""
        self.has_more = False
        self.target()

    def drop(self) -> None:
        """Drop the incomplete frame, so that its memory can be reused: the connection has ended."""
        self._big = None
        self._held = b""
        self.has_more = False

    def _begin_big(self, length: int, start: memoryview) -> None:
        filled = len(start)
        self._length, self._filled = length, filled
        self._big = self._memory.take(length, filled)
        self._big[:filled] = start

    def _grow_or_finish(self, big: memoryview) -> list[Buffer]:
        if self._filled == self._length:
            self._big = None
            return [big]
        self._big = self._memory.take(self._length, self._filled)
        self._big[: self._filled] = big
        return []


def write_pieces(data: Buffer, target: Callable[[], memoryview]) -> Iterator[int]:
    """Write `data` into the memory that `target` returns, again and again until it ends, as a socket would. Yields the
    size of each piece. For callers that have bytes and no socket."""
    rest = memoryview(data)
    while len(rest):
        memory = target()
        count = min(len(memory), len(rest))
        memory[:count] = rest[:count]
        rest = rest[count:]
        yield count


def _is_other_protocol(raw: memoryview) -> bool:
    """True if `raw`, the four bytes of a length, is the beginning of an HTTP response, a TLS alert or a TLS
    handshake."""
    return bytes(raw).startswith((b"HTTP", _TLS_ALERT, _TLS_HANDSHAKE))


def _bad_length(length: int, raw: bytes, max_bytes: int) -> WireError:
    """The error for four bytes that are no valid frame length; recognizes TLS and HTTP."""
    if raw.startswith(_TLS_HANDSHAKE):
        return WireError("these bytes begin a TLS handshake, but this side is not configured for TLS")
    if raw.startswith(_TLS_ALERT):
        return WireError(
            "these bytes begin a TLS alert: the other side expects TLS, but this side is not configured for TLS"
        )
    if (raw.isascii() and raw.isalpha()) or raw == b"GET ":
        return WireError(f"these bytes begin with {raw.decode()!r}, so this is not the Kafka protocol (perhaps HTTP)")
    if length <= 0:
        return WireError(f"a frame of {length} bytes: a length must be positive")
    return WireError(f"a frame of {length} bytes is over the limit of {max_bytes}")
