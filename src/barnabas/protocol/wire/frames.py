"""Codec: frames, the unit of the protocol on TCP.

+----------------+------------------+
| length: int32  | `length` bytes   |
+----------------+------------------+
"""

from __future__ import annotations

import struct

from barnabas.core.buffers import Buffer
from barnabas.protocol.wire.errors import WireError

LENGTH_BYTES = 4
_LENGTH = struct.Struct(">i")
_KEPT_AS_IS = 4096
_TLS_HANDSHAKE = b"\x16\x03"
_TLS_ALERT = b"\x15\x03"


class FrameReader:
    """Splits a stream into frames. Every frame is a new `bytes` object.

    Memory for a frame is allocated as its pieces arrive, not for its announced length. The pieces are joined once.
    """

    __slots__ = ("_chunks", "_held", "_missing", "max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._held = b""  # the first bytes of a length
        self._chunks: list[Buffer] = []  # the received pieces of an incomplete frame
        self._missing = 0  # bytes that the incomplete frame still lacks

    @property
    def in_frame(self) -> bool:
        """True if part of a frame has arrived."""
        return bool(self._missing or self._held)

    def feed(self, data: Buffer) -> list[bytes]:
        """The frames that `data` completes. Raises WireError if a length is not positive or above the limit."""
        if type(data) is not bytes:
            data = bytes(data)  # the caller may reuse a mutable buffer
        if not self._missing and not self._held and len(data) > LENGTH_BYTES:  # most often, exactly one frame
            length = _LENGTH.unpack_from(data)[0]
            if length == len(data) - LENGTH_BYTES and length <= self.max_bytes:
                return [data[LENGTH_BYTES:]]
        frames: list[bytes] = []
        pos = 0
        if self._missing:
            if len(data) < self._missing:
                self._keep(data)
                return frames
            pos = self._missing
            self._chunks.append(memoryview(data)[:pos])
            frames.append(b"".join(self._chunks))
            self._chunks = []
            self._missing = 0
        elif self._held:
            data = self._held + data
            self._held = b""
        size = len(data)
        while size - pos >= LENGTH_BYTES:
            start = pos + LENGTH_BYTES
            length = _LENGTH.unpack_from(data, pos)[0]
            if not 0 < length <= self.max_bytes:
                raise bad_length(length, data[pos:start], self.max_bytes)
            if length > size - start:
                self._missing = length
                self._keep(memoryview(data)[start:])
                return frames
            pos = start + length
            frames.append(data[start:pos])
        self._held = data[pos:]
        return frames

    def _keep(self, chunk: Buffer) -> None:
        """Store a piece of a frame. Small pieces are appended to one buffer, because one object for each small piece
        would need too much memory.
        """
        self._missing -= len(chunk)
        if len(chunk) >= _KEPT_AS_IS:
            self._chunks.append(chunk)
        elif self._chunks and isinstance(self._chunks[-1], bytearray):
            self._chunks[-1] += chunk
        else:
            self._chunks.append(bytearray(chunk))


def bad_length(length: int, raw: bytes, max_bytes: int) -> WireError:
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
