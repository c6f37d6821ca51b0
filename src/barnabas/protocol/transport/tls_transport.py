"""Shell: the TLS layer of an accepted connection: a transport for plain bytes over the transport of the socket.

The event loop's own TLS layer is not used on listeners, for three reasons: it creates the state of a handshake before
the connection can be counted or refused, it drops the alert that says why a handshake has failed, and it keeps a buffer
of 256 KiB for each connection. Here all connections of a listener receive into one block.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final, cast

from barnabas.core.buffers import Buffer

_RECORD_BYTES: Final = 16 * 1024
"""The largest plain text of a TLS record. Smaller buffers are joined up to this size, so that they share a record."""


class TlsTransport(asyncio.Transport):
    """Encrypts what is written. The owner passes received bytes to `receive`, and then calls `shake_hands` until it
    returns True, or `read_into` until it returns 0."""

    def __init__(self, raw: asyncio.Transport, context: ssl.SSLContext) -> None:
        super().__init__()
        self._raw = raw
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._secured = False
        self.ended = False
        """Whether the client has ended the TLS connection."""

    # ---- for the owner

    def receive(self, data: Buffer) -> None:
        """Pass bytes that were received from the socket."""
        self._incoming.write(data)

    def shake_hands(self) -> bool:
        """Continue the handshake. Returns whether it is complete. Raises ssl.SSLError after the alert is sent."""
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        else:
            self._secured = True
            return True
        finally:
            self.flush()

    def read_into(self, target: memoryview) -> int:
        """Decrypt the received TLS records into `target`, as many as fit, and return the number of bytes.

        0 means that more bytes must be received first, or that the client has ended the TLS connection (`ended`).
        Raises ssl.SSLError.
        """
        # The stubs of `ssl` know `read` with a buffer only for bytearray.
        read = cast("Any", self.tls).read
        incoming, free = self._incoming, len(target)
        filled = 0
        try:
            # A read beyond the last whole record raises an exception. It is avoided where nothing is left to decrypt.
            while filled < free and (incoming.pending or self.tls.pending()):
                count = read(free - filled, target[filled:])
                if not count:
                    self.ended = True
                    break
                filled += count
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        return filled

    def flush(self) -> None:
        """Send what the TLS layer has to send."""
        if self._outgoing.pending and not self._raw.is_closing():
            self._raw.write(self._outgoing.read())

    # ---- asyncio.Transport

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        small: list[Buffer] = []
        size = 0
        for data in list_of_data:
            if size + len(data) > _RECORD_BYTES:
                if small:
                    self._encrypt(b"".join(small))
                    small, size = [], 0
                if len(data) > _RECORD_BYTES:
                    self._encrypt(data)
                    continue
            small.append(data)
            size += len(data)
        if small:
            self._encrypt(b"".join(small))
        self.flush()

    def write(self, data: Buffer) -> None:
        self.writelines((data,))

    def _encrypt(self, data: Buffer) -> None:
        rest = memoryview(data)
        while len(rest):
            rest = rest[self.tls.write(rest) :]

    def close(self) -> None:
        """Send what is written, and a notification that the TLS connection ends; do not wait for the client's."""
        if self._secured and not self._raw.is_closing():
            with suppress(ssl.SSLError):  # the client's notification has not arrived, which is the usual case
                self.tls.unwrap()
            self.flush()
        self._raw.close()

    def abort(self) -> None:
        self._raw.abort()

    def is_closing(self) -> bool:
        return self._raw.is_closing()

    def pause_reading(self) -> None:
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._raw.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.tls if name == "ssl_object" else self._raw.get_extra_info(name, default)
