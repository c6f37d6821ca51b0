"""A listener with SASL or TLS, in virtual time without sockets, or on a port of this machine."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from barnabas.core.clock import SystemClock
from barnabas.core.telemetry import Metrics
from barnabas.protocol.security import scram
from barnabas.protocol.security.config import TlsConfig
from barnabas.protocol.security.credentials import ScramCredential
from barnabas.protocol.security.sasl_conversation import SaslServerConfig
from barnabas.protocol.security.sasl_server import SaslCredentials
from barnabas.protocol.transport.connection_quotas import ConnectionQuotas, DescriptorLimits
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.protocol.transport.listener import Listener
from barnabas.protocol.transport.listener_security import ListenerSecurity
from barnabas.protocol.transport.ports import Answer, Finished, Peer, RequestScheduling
from barnabas.protocol.transport.secure_connection import SecureConnection
from barnabas.protocol.transport.tls_server import TlsAcceptor, TlsServerConfig
from barnabas.protocol.wire.client_conn import ClientConnection
from barnabas.protocol.wire.messages.api_versions import ApiVersionsResponse
from barnabas.protocol.wire.messages.metadata import MetadataRequest
from barnabas.protocol.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.wire.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.wire.schema import Request
from barnabas.protocol.wire.server_conn import ReceivedRequest
from tests.configs import connection_limits, transport_config
from tests.system.client.tls_proxy import Authority
from tests.unit.protocol.transport.test_transport_muting import ReadTransport
from tests.unit.protocol.transport.test_transport_turns import endless_turns

RIGHT, WRONG = b"\0alice\0alice-secret", b"\0alice\0wrong"
DELAY_MS = 100
AUTHORITY = Authority("transport tests")
_ALICE = scram.credential("sha256", "alice-secret", b"salt", 4096)


class Served:
    """Keeps the API and the user of every request that a listener passes on, and answers ApiVersions."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, str]] = []

    def scheduling(self, request: ReceivedRequest) -> RequestScheduling:
        return RequestScheduling.SEQUENTIAL

    def begin(self, request: ReceivedRequest, peer: Peer) -> Finished[Answer]:
        self.requests.append((request.header.api_key, peer.principal.name))
        if request.header.api_key == 18:
            return Finished(request.answer(ApiVersionsResponse()))
        return Finished(None)

    def on_closed(self, peer: Peer) -> None: ...


class RecordedTransport(ReadTransport):
    """A socket that records what is written, and whether it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


def sasl_config(reauth_ms: int = 0, receive_size: int = 524_288) -> SaslServerConfig:
    def stored(mechanism: int, user: str) -> ScramCredential | None:
        return _ALICE if user == "alice" and mechanism == 1 else None

    mechanisms = ("PLAIN", "SCRAM-SHA-256")
    credentials = SaslCredentials({"alice": "alice-secret"}, stored, b"decoy")
    return SaslServerConfig(mechanisms, credentials, dict.fromkeys(mechanisms, reauth_ms), receive_size, DELAY_MS)


def tls_acceptor() -> TlsAcceptor:
    identity = AUTHORITY.sign("localhost")
    tls = TlsConfig(ssl_keystore_certificate_chain=identity.certificate, ssl_keystore_key=identity.key)
    return TlsAcceptor(TlsServerConfig(tls), lambda: 0.0)


def secure_listener(
    handler: Served,
    *,
    sasl: SaslServerConfig | None = None,
    tls: TlsAcceptor | None = None,
    descriptors: int = 1_000_000,
) -> Listener:
    """A listener that is not bound yet."""
    limits = transport_config()
    quotas = ConnectionQuotas(connection_limits(), descriptors=DescriptorLimits(descriptors, descriptors))
    security = ListenerSecurity(SystemClock(), random.Random(1), tls, sasl)
    endpoint = ListenerEndpoint("CLIENTS", "127.0.0.1", 0)
    listener = Listener(endpoint, handler, limits, Metrics(), quotas=quotas, turns=endless_turns(), security=security)
    listener._loop = asyncio.get_running_loop()
    listener.now = listener._loop.time
    return listener


@asynccontextmanager
async def serving(listener: Listener) -> AsyncIterator[int]:
    """Serve on a port of this machine."""
    endpoint = await listener.bind()
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        tasks.create_task(listener.serve())
        await asyncio.sleep(0)
        yield endpoint.port
        listener.stop()


class Client:
    """A client on a connection without a socket."""

    def __init__(self, listener: Listener, host: str = "127.0.0.1") -> None:
        self.transport = RecordedTransport()
        self.transport.host = host
        self.connection = cast("SecureConnection", listener.new_connection())
        self.connection.connection_made(cast("Any", self.transport))
        self._wire = ClientConnection("test")

    def frame(self, message: Request, version: int) -> bytes:
        _, parts = self._wire.send(message, version, expect_response=True)
        return b"".join(bytes(part) for part in parts)

    def send(self, data: bytes) -> None:
        """Send, unless the listener does not read."""
        if self.transport.is_read and not self.transport.closed:
            self.connection.data_received(data)

    def ask(self, message: Request, version: int) -> Any:
        """The response, or None if there is none now."""
        self.transport.written.clear()
        self.send(self.frame(message, version))
        return self.answer()

    def answer(self) -> Any:
        """What the listener has written since the last request."""
        frame = b"".join(self.transport.written)
        return self._wire.read(frame[4:])[1] if frame else None

    def handshake(self, mechanism: str = "PLAIN") -> Any:
        return self.ask(SaslHandshakeRequest(mechanism=mechanism), 1)

    def authenticate(self, token: bytes = RIGHT) -> Any:
        return self.ask(SaslAuthenticateRequest(auth_bytes=token), 2)

    def log_in(self) -> Any:
        self.handshake()
        return self.authenticate()

    def metadata(self) -> None:
        self.send(self.frame(MetadataRequest(), 9))
