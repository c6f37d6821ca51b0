"""The TLS layer of an accepted connection decrypts all received records in one call."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import cast

import pytest

from barnabas.protocol.transport.tls_transport import TlsTransport
from tests.unit.protocol.transport.secure_listeners import AUTHORITY, RecordedTransport, tls_acceptor


class Ends:
    """A client and the TLS layer of its connection, after the handshake."""

    def __init__(self) -> None:
        context = ssl.create_default_context(cadata=AUTHORITY.pem)
        self.socket = RecordedTransport()
        self.server = TlsTransport(cast("asyncio.Transport", self.socket), tls_acceptor().context)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        for _ in range(2):
            with suppress(ssl.SSLWantReadError):
                self.client.do_handshake()
            self.server.receive(self._outgoing.read())
            if self.server.shake_hands():
                break
            self._incoming.write(b"".join(self.socket.written))

    def sent(self, *pieces: bytes) -> bytes:
        """The client's bytes on the wire, with one TLS record for each piece."""
        for piece in pieces:
            self.client.write(piece)
        return self._outgoing.read()

    def end(self) -> bytes:
        """The client's notification that it ends the TLS connection."""
        with suppress(ssl.SSLWantReadError):
            self.client.unwrap()
        return self._outgoing.read()

    def read(self, size: int) -> bytes:
        target = memoryview(bytearray(size))
        return bytes(target[: self.server.read_into(target)])


def test_one_call_decrypts_every_received_record() -> None:
    ends = Ends()
    ends.server.receive(ends.sent(b"ab", b"c", b"def"))
    assert ends.read(100) == b"abcdef"
    assert ends.read(100) == b""
    assert not ends.server.ended


def test_what_does_not_fit_is_returned_by_the_next_call() -> None:
    ends = Ends()
    ends.server.receive(ends.sent(b"abcd", b"efgh"))
    assert [ends.read(3), ends.read(3), ends.read(3), ends.read(3)] == [b"abc", b"def", b"gh", b""]


@pytest.mark.parametrize("cut", [1, 4, 5, 6, 20])
def test_an_incomplete_record_waits_for_its_rest(cut: int) -> None:
    ends = Ends()
    whole, torn = ends.sent(b"whole"), ends.sent(b"torn")
    ends.server.receive(whole + torn[:cut])
    assert ends.read(100) == b"whole"
    ends.server.receive(torn[cut:])
    assert ends.read(100) == b"torn"


def test_what_was_sent_before_the_end_is_returned_and_nothing_after_it() -> None:
    ends = Ends()
    ends.server.receive(ends.sent(b"last words") + ends.end() + b"garbage")
    assert ends.read(100) == b"last words"
    assert ends.server.ended
    assert ends.read(100) == b""


def test_a_damaged_record_is_an_error() -> None:
    ends = Ends()
    damaged = bytearray(ends.sent(b"value"))
    damaged[-1] ^= 1
    ends.server.receive(damaged)
    with pytest.raises(ssl.SSLError):
        ends.read(100)
