"""Codec: frames, which is all that TCP carries.

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
    """Cuts a stream into frames. Every frame is one `bytes` object of its own, never written to again.

    A frame that arrives in pieces takes memory as the pieces come in, not when its length is announced, and is put
    together by a single copy.
    """

    __slots__ = ("_chunks", "_held", "_missing", "max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._held = b""  # the start of a length
        self._chunks: list[Buffer] = []  # the start of a frame,
        self._missing = 0  # and how many bytes it still lacks

    @property
    def in_frame(self) -> bool:
        """Part of a frame has arrived, and the rest has not."""
        return bool(self._missing or self._held)

    def feed(self, data: Buffer) -> list[bytes]:
        """The frames that are complete now. Raises WireError for a length that is negative, zero or over the limit."""
        if type(data) is not bytes:
            data = bytes(data)  # the caller may reuse a mutable buffer
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
                raise refusal(length, data[pos:start], self.max_bytes)
            if length > size - start:
                self._missing = length
                self._keep(memoryview(data)[start:])
                return frames
            pos = start + length
            frames.append(data[start:pos])
        self._held = data[pos:]
        return frames

    def _keep(self, chunk: Buffer) -> None:
        """Hold on to a piece. Small ones are gathered, so that a trickle of bytes costs no object each."""
        self._missing -= len(chunk)
        if len(chunk) >= _KEPT_AS_IS:
            self._chunks.append(chunk)
        elif self._chunks and isinstance(self._chunks[-1], bytearray):
            self._chunks[-1] += chunk
        else:
            self._chunks.append(bytearray(chunk))


def refusal(length: int, raw: bytes, max_bytes: int) -> WireError:
    """What these four bytes are, if not the length of a frame."""
    if raw.startswith(_TLS_HANDSHAKE):
        return WireError("these bytes begin a TLS handshake, but this side is not configured for TLS")
    if raw.startswith(_TLS_ALERT):
        return WireError(
            "these bytes begin an alert of TLS: the other side expects TLS, this side is not configured for it"
        )
    if (raw.isascii() and raw.isalpha()) or raw == b"GET ":
        return WireError(f"these bytes begin with {raw.decode()!r}: not the Kafka protocol (HTTP, perhaps?)")
    if length <= 0:
        return WireError(f"a frame of {length} bytes: a length must be positive")
    return WireError(f"a frame of {length} bytes is over the limit of {max_bytes}")
