"""Shell: reads a URL or a file of OAUTHBEARER.

Redirects are not followed: the list of allowed URLs would not be checked for the new address.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct, field

from barnabas.core.errors import BarnabasError
from barnabas.protocol.security.config import TlsConfig
from barnabas.protocol.security.oauth.token_requests import describe_error, is_retriable
from barnabas.protocol.transport.blocking_calls import run_beside
from barnabas.protocol.transport.tls import build_tls_context

RESPONSE_BYTES_MAX: Final = 1024 * 1024
"""A longer response, or file, is refused."""


class OAuthFetchError(BarnabasError):
    """A token or a document of keys could not be fetched. `retriable` is False if trying again does not help."""

    def __init__(self, message: str, retriable: bool) -> None:
        super().__init__(message)
        self.retriable = retriable


class OAuthRequest(Struct, frozen=True):
    """A GET request, or a POST request if there is a body. The headers and the body may contain secrets."""

    setting: str
    """The setting that has the URL, for messages."""
    url: str
    tls: TlsConfig
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    connect_timeout_ms: int = 10_000
    read_timeout_ms: int = 10_000

    def __repr__(self) -> str:
        return f"OAuthRequest({self.url!r}, ...)"


async def fetch_url(request: OAuthRequest) -> bytes:
    """The body of the response. The connection may take `connect_timeout_ms`, all the rest `read_timeout_ms`, however
    slowly the server sends. Raises OAuthFetchError, or ConfigError if the TLS settings cannot be used."""
    loop = asyncio.get_running_loop()
    parts = urlsplit(request.url)
    assert parts.hostname is not None, "checked when the settings were read"
    connect_s, read_s = request.connect_timeout_ms / 1000, request.read_timeout_ms / 1000
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=connect_s)
    waiting = True

    def check_waiting() -> None:
        if not waiting:
            raise ConnectionAbortedError("the call was cancelled")

    def on_connected() -> None:
        if waiting and not limit.expired():
            limit.reschedule(loop.time() + read_s)

    def connect() -> None:
        http.client.HTTPConnection.connect(connection)
        check_waiting()
        if parts.scheme == "https":
            context = build_tls_context(request.tls)
            tls = context.wrap_socket(connection.sock, server_hostname=parts.hostname, do_handshake_on_connect=False)
            connection.sock = tls  # before the handshake, so that a handshake that takes too long is ended, too
            check_waiting()
            tls.do_handshake()
        connection.sock.settimeout(read_s)
        loop.call_soon_threadsafe(on_connected)

    def exchange() -> bytes:
        try:
            return _exchange(request, connection, connect)
        finally:
            connection.close()

    try:
        async with asyncio.timeout(connect_s) as limit:
            return await run_beside(exchange)
    except TimeoutError as error:
        raise OAuthFetchError(
            f"{request.setting}={request.url} has not answered completely within the {connect_s:g} s for the connection"
            f" and {read_s:g} s for the response.",
            retriable=True,
        ) from error
    finally:
        waiting = False
        if connection.sock is not None:
            with contextlib.suppress(OSError):  # it is closed already
                socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)  # ends the thread, if it still reads


def _exchange(request: OAuthRequest, connection: http.client.HTTPConnection, connect: Callable[[], None]) -> bytes:
    """`fetch_url`, in a thread."""
    where = f"{request.setting}={request.url}"
    parts = urlsplit(request.url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connect()
        connection.request("GET" if request.body is None else "POST", target, request.body, dict(request.headers))
        response = connection.getresponse()
        body = response.read(RESPONSE_BYTES_MAX + 1)
    except ssl.SSLCertVerificationError as error:
        raise OAuthFetchError(
            f"{where}: the certificate is not trusted: {error.verify_message}. Set the option ssl.truststore.location"
            " of sasl.jaas.config to the authority that signed it.",
            retriable=False,
        ) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise OAuthFetchError(f"{where} cannot be reached: {error or type(error).__name__}.", retriable=True) from error
    if len(body) > RESPONSE_BYTES_MAX:
        raise OAuthFetchError(f"{where}: the response has more than {RESPONSE_BYTES_MAX} bytes.", retriable=False)
    if response.status != 200:
        reason = describe_error(body)
        raise OAuthFetchError(
            f"{where} answered with HTTP status {response.status}{f' ({reason})' if reason else ''}.",
            retriable=is_retriable(response.status),
        )
    return body


def read_file(setting: str, path: str) -> bytes:
    """The content of a file. Blocks. Raises OAuthFetchError."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(RESPONSE_BYTES_MAX + 1)
    except OSError as error:
        raise OAuthFetchError(f"{setting}: {path} cannot be read: {error.strerror}.", retriable=True) from error
    if len(content) > RESPONSE_BYTES_MAX:
        raise OAuthFetchError(f"{setting}: {path} has more than {RESPONSE_BYTES_MAX} bytes.", retriable=False)
    return content
