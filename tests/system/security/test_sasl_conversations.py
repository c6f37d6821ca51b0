"""Raw SASL conversations over sockets: messages without headers, early and oversized requests, delays, and floods."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.client_conn import ClientConnection
from barnabas.protocol.wire.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.wire.messages.metadata import MetadataRequest
from barnabas.protocol.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.wire.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.wire.schema import Request
from tests.system.security.test_secure_listeners import PLAIN_USERS, broker

DELAY_MS = 300
SETTINGS = {
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
    "connection.failed.authentication.delay.ms": str(DELAY_MS),
    "sasl.server.max.receive.size": "2000",
}
RIGHT, WRONG = b"\0alice\0alice-secret", b"\0alice\0wrong"


class _Raw:
    """A connection on which a test sends any bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.wire = ClientConnection("raw")

    async def send(self, message: Request, version: int) -> object:
        """The response to a request."""
        _, parts = self.wire.send(message, version, expect_response=True)
        self.writer.write(b"".join(parts))
        return self.wire.read(await self.frame())[1]

    async def frame(self) -> bytes:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def raw(self, message: bytes) -> bytes:
        self.writer.write(struct.pack(">i", len(message)) + message)
        return await self.frame()

    async def is_closed(self) -> bool:
        """Whether the broker closes the connection without sending another byte."""
        return await self.reader.read(1) == b""


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[_Raw]:
    host, _, port = address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield _Raw(reader, writer)
    finally:
        writer.close()


async def test_messages_without_headers_follow_version_0_of_the_handshake() -> None:
    async with broker("SASL_PLAINTEXT", SETTINGS) as addresses, connected(addresses["SASL_PLAINTEXT"]) as client:
        await client.send(ApiVersionsRequest(), 0)
        assert (await client.send(SaslHandshakeRequest(mechanism="PLAIN"), 0)).mechanisms == ["PLAIN"]  # type: ignore[attr-defined]
        assert await client.raw(RIGHT) == b""
        assert (await client.send(MetadataRequest(), 9)).brokers  # type: ignore[attr-defined]
        # Outside of authentication the two APIs are refused, and the connection stays open.
        refused = await client.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert refused.error_code == ErrorCode.ILLEGAL_SASL_STATE  # type: ignore[attr-defined]
        refused = await client.send(SaslAuthenticateRequest(auth_bytes=RIGHT), 2)
        assert refused.error_code == ErrorCode.ILLEGAL_SASL_STATE  # type: ignore[attr-defined]
        # The limit for messages of SASL does not apply to requests after authentication.
        assert (await client.send(MetadataRequest(topics=[]), 9)).brokers  # type: ignore[attr-defined]


async def test_a_failed_authentication_is_answered_and_closed_after_the_delay() -> None:
    async with broker("SASL_PLAINTEXT", SETTINGS) as addresses, connected(addresses["SASL_PLAINTEXT"]) as client:
        await client.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        began = asyncio.get_running_loop().time()
        refused = await client.send(SaslAuthenticateRequest(auth_bytes=WRONG), 2)
        assert asyncio.get_running_loop().time() - began >= DELAY_MS / 1000
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED  # type: ignore[attr-defined]
        assert await client.is_closed()


async def test_requests_before_authentication_are_not_answered() -> None:
    async with broker("SASL_PLAINTEXT", SETTINGS) as addresses:
        for data in (
            struct.pack(">ihhih", 10, 3, 9, 1, -1) + b"\0\0\0",  # Metadata
            struct.pack(">ihhih", 100_000_000, 3, 9, 1, -1),  # a large request is refused by its length
            struct.pack(">ihhih", 2001, 36, 2, 1, -1),
            struct.pack(">i", -1),
            struct.pack(">i", 0),
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # the beginning of a TLS handshake
            b"GET / HTTP/1.1\r\n\r\n",
        ):
            async with connected(addresses["SASL_PLAINTEXT"]) as client:
                client.writer.write(data)
                assert await client.is_closed(), data


async def test_requests_that_are_sent_ahead_of_authentication_are_not_served() -> None:
    """A client that does not wait for the answers gets none for what follows the wrong password."""
    async with broker("SASL_PLAINTEXT", SETTINGS) as addresses, connected(addresses["SASL_PLAINTEXT"]) as client:
        burst = b""
        for message, version in (
            (SaslHandshakeRequest(mechanism="PLAIN"), 1),
            (SaslAuthenticateRequest(auth_bytes=WRONG), 2),
            (MetadataRequest(), 9),
        ):
            _, parts = client.wire.send(message, version, expect_response=True)
            burst += b"".join(parts)
        client.writer.write(burst)
        assert client.wire.read(await client.frame())[1].error_code == 0
        assert client.wire.read(await client.frame())[1].error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await client.is_closed()
