"""Table: attacks on the edges of a broker, before a client has authenticated: its listeners with TLS and with SASL.

The bystander uses the PLAINTEXT listener. The other listeners have the next ports (`Edge`), so that an attack, which
knows the address of the first, finds them.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import ssl
import struct
import tempfile
import time
from collections.abc import Awaitable, Callable
from enum import IntEnum

from tests.system.client.tls_proxy import Authority

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.client_conn import ClientConnection
from barnabas.protocol.wire.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.wire.messages.metadata import MetadataRequest
from barnabas.protocol.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.wire.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.wire.schema import Request
from bench.attacks.registry import Attack, Run, Steps, register

MANY = 10_000
AT_ONCE = 500
"""Connections that an attack opens at the same time."""
FLOODING = 64
FLOODING_S = 6.0
DRIPPING_S = 15.0
REAUTHENTICATING_S = 10.0
RECEIVE_SIZE = 524_288
"""The default of sasl.server.max.receive.size."""
WRONG = b"\0alice\0wrong"
RIGHT = b"\0alice\0alice-secret"
_USERS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' username="node" password="node-secret" user_node="node-secret" user_alice="alice-secret";'
)


class Edge(IntEnum):
    """The listeners of the attacked broker. The value is added to the port of the first."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3
    MUTUAL = 4
    """TLS with client certificates."""


def edge_settings(first_port: int) -> tuple[str, ...]:
    """The settings of a broker with all these listeners, as `name=value`."""
    authority = Authority("bench")
    identity = authority.sign("localhost")
    protocols = {edge.name: edge.name for edge in Edge} | {"MUTUAL": "SSL"}
    return (
        "listeners=" + ",".join(f"{edge.name}://127.0.0.1:{first_port + edge}" for edge in Edge),
        "listener.security.protocol.map=" + ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "inter.broker.listener.name=PLAINTEXT",
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "connections.max.reauth.ms=60000",
        f"listener.name.sasl_plaintext.plain.sasl.jaas.config={_USERS}",
        f"listener.name.sasl_ssl.plain.sasl.jaas.config={_USERS}",
        "listener.name.mutual.ssl.client.auth=required",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.certificate.chain={identity.certificate}",
        f"ssl.keystore.key={identity.key}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.certificates={authority.pem}",
    )


def consecutive_ports() -> int:
    """The first of as many free ports in a row as there are listeners."""
    while True:
        with contextlib.ExitStack() as sockets:
            first = sockets.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            try:
                for edge in list(Edge)[1:]:
                    sockets.enter_context(socket.create_server(("127.0.0.1", first + edge)))
            except (OSError, OverflowError):
                continue
            return int(first)


def edge_attack(name: str, what: str) -> Callable[[Run], Run]:
    """Register an attack on the listeners of `edge_settings`."""

    def add(run: Run) -> Run:
        register(Attack(name, what, run, listeners=True))
        return run

    return add


# ---- one hostile client


class Hostile:
    """A connection that may send anything."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._wire = ClientConnection("hostile")

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def ask(self, message: Request, version: int) -> object:
        _, parts = self._wire.send(message, version, expect_response=True)
        await self.send(b"".join(bytes(part) for part in parts))
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return self._wire.read(await self.reader.readexactly(size))[1]

    async def handshake(self, mechanism: str) -> None:
        response = await self.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
        assert response.error_code == ErrorCode.NONE, response  # type: ignore[attr-defined]

    @property
    def is_open(self) -> bool:
        # The end of the stream counts although bytes before it have not been read.
        return not self.reader._eof and self.reader.exception() is None  # type: ignore[attr-defined]

    async def until_closed(self) -> None:
        with contextlib.suppress(OSError):
            while await self.reader.read(1 << 16):
                pass


async def _connect(address: str, edge: Edge) -> Hostile:
    host, _, port = address.rpartition(":")
    return Hostile(*await asyncio.open_connection(host, int(port) + edge))


async def _many(address: str, edge: Edge, count: int, act: Callable[[Hostile], Awaitable[object]]) -> str:
    """Let so many clients act, some at the same time. Returns how many of them the broker has disconnected."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    turns = asyncio.Semaphore(AT_ONCE)
    clients: list[Hostile] = []
    refused = 0

    async def one() -> None:
        nonlocal refused
        async with turns:
            try:
                client = await _connect(address, edge)
                clients.append(client)
                await act(client)
            except (OSError, EOFError):
                refused += 1

    await asyncio.gather(*(one() for _ in range(count)))
    open_ones = sum(client.is_open for client in clients)
    for client in clients:
        client.writer.transport.abort()
    return f"{count} connections, {refused} disconnected at once, {open_ones} open at the end"


def _each(address: str, edge: Edge, count: int, act: Callable[[Hostile], Awaitable[object]]) -> Steps:
    yield
    return asyncio.run(_many(address, edge, count, act))


def _client_hello(protocols: list[str] | None = None) -> bytes:
    context = ssl.create_default_context()
    if protocols:
        context.set_alpn_protocols(protocols)
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(received, sent, server_hostname="localhost").do_handshake()
    return sent.read()


# ---- TLS


@edge_attack("tls-garbage", f"{MANY // 5:,} connections with garbage before and inside the TLS handshake")
def tls_garbage(address: str) -> Steps:
    hello = _client_hello()

    async def act(client: Hostile) -> None:
        await client.send(b"\xff" * 4096)
        await client.until_closed()
        second = await _connect(address, Edge.SSL)
        await second.send(hello + b"\x16\x03\x03\x40\x00" + b"\xff" * 0x4000)
        await second.until_closed()

    return (yield from _each(address, Edge.SSL, MANY // 10, act))


@edge_attack("tls-half", f"{MANY:,} TLS handshakes that are begun and not completed")
def tls_half(address: str) -> Steps:
    hello = _client_hello()

    async def act(client: Hostile) -> None:
        await client.send(hello)
        await client.reader.read(1)

    return (yield from _each(address, Edge.SSL, MANY, act))


@edge_attack("tls-silent", f"{MANY:,} connections to a TLS listener that send nothing")
def tls_silent(address: str) -> Steps:
    return (yield from _each(address, Edge.SSL, MANY, lambda client: asyncio.sleep(0)))


@edge_attack("tls-drip", f"{AT_ONCE} TLS handshakes of one byte per second")
def tls_drip(address: str) -> Steps:
    return (yield from _each(address, Edge.SSL, AT_ONCE, _drip(_client_hello())))


@edge_attack("tls-plaintext", f"{MANY // 5:,} plaintext requests to a TLS listener")
def tls_plaintext(address: str) -> Steps:
    async def act(client: Hostile) -> None:
        await client.send(struct.pack(">ihhih", 10, 18, 0, 1, -1))
        await client.until_closed()

    return (yield from _each(address, Edge.SSL, MANY // 5, act))


@edge_attack("plaintext-tls", f"{MANY // 5:,} TLS handshakes with the PLAINTEXT listener")
def plaintext_tls(address: str) -> Steps:
    hello = _client_hello()

    async def act(client: Hostile) -> None:
        await client.send(hello)
        await client.until_closed()

    return (yield from _each(address, Edge.PLAINTEXT, MANY // 5, act))


@edge_attack("tls-alpn", f"{AT_ONCE} TLS handshakes with 15 KB of ALPN protocols")
def tls_alpn(address: str) -> Steps:
    hello = _client_hello([f"{index:0255d}" for index in range(60)])

    async def act(client: Hostile) -> None:
        await client.send(hello)
        await client.reader.read(1)

    return (yield from _each(address, Edge.SSL, AT_ONCE, act))


@edge_attack("tls-chains", f"{AT_ONCE} TLS handshakes with 90 KB of client certificates")
def tls_chains(address: str) -> Steps:
    stranger = Authority("stranger")
    identity = stranger.sign(*[f"{index:050d}.example" for index in range(1_300)])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(identity.key + identity.certificate)
        file.flush()
        context.load_cert_chain(file.name)
    host, _, port = address.rpartition(":")

    async def act(client: Hostile) -> None:
        client.writer.close()
        reader, writer = await asyncio.open_connection(host, int(port) + Edge.MUTUAL, ssl=context)
        await reader.read(1)
        writer.close()

    return (yield from _each(address, Edge.MUTUAL, AT_ONCE, act))


# ---- SASL


def _drip(data: bytes) -> Callable[[Hostile], Awaitable[None]]:
    async def act(client: Hostile) -> None:
        end = time.monotonic() + DRIPPING_S
        for index in range(len(data)):
            if time.monotonic() > end or not client.is_open:
                break
            await client.send(data[index : index + 1])
            await asyncio.sleep(1.0)

    return act


@edge_attack("sasl-silent", f"{MANY:,} connections that begin a SASL conversation and do not continue it")
def sasl_silent(address: str) -> Steps:
    return (yield from _each(address, Edge.SASL_PLAINTEXT, MANY, lambda client: client.handshake("SCRAM-SHA-256")))


@edge_attack("sasl-drip", f"{AT_ONCE} SASL messages of one byte per second")
def sasl_drip(address: str) -> Steps:
    frame = struct.pack(">i", RECEIVE_SIZE) + bytes(1_000)
    return (yield from _each(address, Edge.SASL_PLAINTEXT, AT_ONCE, _drip(frame)))


@edge_attack("sasl-large", "1,000 SASL messages of 512 KB, all but the last bytes")
def sasl_large(address: str) -> Steps:
    frame = struct.pack(">i", RECEIVE_SIZE) + bytes(RECEIVE_SIZE - 100)
    return (yield from _each(address, Edge.SASL_PLAINTEXT, 1_000, lambda client: client.send(frame)))


@edge_attack("sasl-long-names", "1,000 SCRAM users with names of 500 KB")
def sasl_long_names(address: str) -> Steps:
    first = b"n,,n=" + b"a" * 500_000 + b",r=abc"

    async def act(client: Hostile) -> None:
        await client.handshake("SCRAM-SHA-256")
        await client.ask(SaslAuthenticateRequest(auth_bytes=first), 1)

    return (yield from _each(address, Edge.SASL_PLAINTEXT, 1_000, act))


@edge_attack("sasl-passwords", f"{MANY:,} wrong passwords of PLAIN")
def sasl_passwords(address: str) -> Steps:
    return (yield from _each(address, Edge.SASL_PLAINTEXT, MANY, _guess("PLAIN", WRONG)))


@edge_attack("scram-passwords", f"{MANY:,} wrong passwords of SCRAM-SHA-512")
def scram_passwords(address: str) -> Steps:
    return (yield from _each(address, Edge.SASL_PLAINTEXT, MANY, _guess("SCRAM-SHA-512", b"n,,n=alice,r=abc")))


def _guess(mechanism: str, first: bytes) -> Callable[[Hostile], Awaitable[None]]:
    async def act(client: Hostile) -> None:
        await client.handshake(mechanism)
        response = await client.ask(SaslAuthenticateRequest(auth_bytes=first), 1)
        if response.error_code == ErrorCode.NONE:  # type: ignore[attr-defined]
            nonce = bytes(response.auth_bytes).split(b",")[0]  # type: ignore[attr-defined]
            final = b"c=biws," + nonce + b",p=" + b"A" * 86 + b"=="
            response = await client.ask(SaslAuthenticateRequest(auth_bytes=final), 1)
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED, response  # type: ignore[attr-defined]
        await client.until_closed()

    return act


@edge_attack("sasl-early", f"{MANY // 5:,} requests before authentication, and repeated handshakes")
def sasl_early(address: str) -> Steps:
    async def act(client: Hostile) -> None:
        await client.handshake("PLAIN")
        await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        await client.until_closed()
        other = await _connect(address, Edge.SASL_PLAINTEXT)
        with contextlib.suppress(EOFError):
            await other.ask(MetadataRequest(), 9)

    return (yield from _each(address, Edge.SASL_PLAINTEXT, MANY // 10, act))


@edge_attack("sasl-again", f"100 clients that authenticate anew for {REAUTHENTICATING_S:g} s without a pause")
def sasl_again(address: str) -> Steps:
    async def act(client: Hostile) -> None:
        end = time.monotonic() + REAUTHENTICATING_S
        while time.monotonic() < end:
            response = await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            if response.error_code == ErrorCode.NONE:  # type: ignore[attr-defined]
                await client.ask(SaslAuthenticateRequest(auth_bytes=RIGHT), 2)

    return (yield from _each(address, Edge.SASL_PLAINTEXT, 100, act))


def _flood(
    address: str, edge: Edge, act: Callable[[Hostile], Awaitable[object]], context: ssl.SSLContext | None = None
) -> str:
    """FLOODING clients connect, act and disconnect, again and again."""

    async def one(end: float) -> int:
        host, _, port = address.rpartition(":")
        count = 0
        while time.monotonic() < end:
            with contextlib.suppress(OSError, EOFError):
                client = Hostile(*await asyncio.open_connection(host, int(port) + edge, ssl=context))
                await act(client)
                client.writer.transport.abort()
                count += 1
        return count

    async def all_of_them() -> int:
        end = time.monotonic() + FLOODING_S
        return sum(await asyncio.gather(*(one(end) for _ in range(FLOODING))))

    return f"{asyncio.run(all_of_them())} connections"


@edge_attack("connect-flood", f"{FLOODING} clients that connect, ask for the versions and disconnect, again and again")
def connect_flood(address: str) -> Steps:
    yield
    return _flood(address, Edge.PLAINTEXT, lambda client: client.ask(ApiVersionsRequest(), 0))


@edge_attack("sasl-flood", f"{FLOODING} clients that connect, authenticate and disconnect, again and again")
def sasl_flood(address: str) -> Steps:
    async def act(client: Hostile) -> None:
        await client.handshake("PLAIN")
        await client.ask(SaslAuthenticateRequest(auth_bytes=RIGHT), 1)

    yield
    return _flood(address, Edge.SASL_PLAINTEXT, act)


@edge_attack("tls-flood", f"{FLOODING} clients that complete a TLS handshake and disconnect, again and again")
def tls_flood(address: str) -> Steps:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    yield
    return _flood(address, Edge.SSL, lambda client: client.ask(ApiVersionsRequest(), 0), context)


@edge_attack("sasl-ssl-silent", f"{MANY // 5:,} clients that complete the TLS handshake and do not authenticate")
def sasl_ssl_silent(address: str) -> Steps:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    host, _, port = address.rpartition(":")
    kept: list[asyncio.StreamWriter] = []

    async def act(client: Hostile) -> None:
        client.writer.close()
        _, writer = await asyncio.open_connection(host, int(port) + Edge.SASL_SSL, ssl=context)
        kept.append(writer)

    return (yield from _each(address, Edge.SASL_SSL, MANY // 5, act))
