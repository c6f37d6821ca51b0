"""Fetching from a provider: HTTPS, redirects, sizes and statuses; keys that are loaded again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any

import pytest

from barnabas.core.config import ConfigError
from barnabas.protocol.security.config import TlsConfig
from barnabas.protocol.security.oauth.validator_settings import KeySource
from barnabas.protocol.transport.oauth import provider_keys
from barnabas.protocol.transport.oauth.fetching import RESPONSE_BYTES_MAX, OAuthFetchError, OAuthRequest, fetch_url
from barnabas.protocol.transport.oauth.provider_keys import ProviderKeys
from tests.progress import until
from tests.system.client.tls_proxy import Authority, Identity
from tests.unit.protocol.security.oauth.test_oauth_signed import key_for, key_set

AUTHORITY = Authority("Barnabas tests")


@contextmanager
def server(respond: Callable[[str], tuple[int, bytes]], identity: Identity | None, folder: Path) -> Iterator[int]:
    """The port of an HTTP server on localhost."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = respond(self.path)
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "/other")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            pass  # clients that do not trust the certificate close the connection

    running = Server(("127.0.0.1", 0), Handler)
    if identity is not None:
        store = folder / "server.pem"
        store.write_text(identity.key + identity.certificate)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(store)
        running.socket = context.wrap_socket(running.socket, server_side=True)
    thread = Thread(target=running.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield running.server_port
    finally:
        running.shutdown()
        thread.join()
        running.server_close()


def get(url: str, tls: TlsConfig | None = None) -> bytes:
    return asyncio.run(fetch_url(OAuthRequest("the.setting", url, tls or TlsConfig())))


def test_https_needs_a_trusted_certificate_of_the_host(tmp_path: Path) -> None:
    trust = tmp_path / "ca.pem"
    trust.write_text(AUTHORITY.pem)
    trusting = TlsConfig(ssl_truststore_location=str(trust))
    with server(lambda path: (200, path.encode()), AUTHORITY.sign("localhost"), tmp_path) as port:
        assert get(f"https://localhost:{port}/a/b?c=d", trusting) == b"/a/b?c=d"
        with pytest.raises(OAuthFetchError, match=r"not trusted: .*ssl\.truststore\.location") as caught:
            get(f"https://localhost:{port}/")
        assert not caught.value.retriable
        with pytest.raises(OAuthFetchError, match=r"not trusted: .*IP address mismatch"):
            get(f"https://127.0.0.1:{port}/", trusting)
        with pytest.raises(OAuthFetchError, match="cannot be reached"):
            get(f"http://localhost:{port}/")
        with pytest.raises(ConfigError, match=r"ssl\.truststore\.location"):
            get(f"https://localhost:{port}/", TlsConfig(ssl_truststore_location="/nowhere"))


@pytest.mark.parametrize(
    ("status", "body", "retriable", "said"),
    [
        (302, b"", False, "HTTP status 302"),
        (404, b"<html>", False, r"HTTP status 404\."),
        (401, b'{"error": "invalid_client"}', False, r"HTTP status 401 \(invalid_client\)"),
        (503, b"", True, "HTTP status 503"),
        (200, b"x" * (RESPONSE_BYTES_MAX + 1), False, "more than"),
    ],
)
def test_responses_that_are_refused(status: int, body: bytes, retriable: bool, said: str, tmp_path: Path) -> None:
    asked: list[str] = []

    def respond(path: str) -> tuple[int, bytes]:
        asked.append(path)
        return status, body

    with server(respond, None, tmp_path) as port, pytest.raises(OAuthFetchError, match=said) as caught:
        get(f"http://127.0.0.1:{port}/token")
    assert caught.value.retriable is retriable
    assert asked == ["/token"], "redirects are not followed"


# ---- servers that never finish


@contextmanager
def dripping(answer: bytes, drip: bytes) -> Iterator[tuple[int, Event, Event]]:
    """The port of a server that sends `answer`, then `drip` again and again; and the events that a client has come, and
    that it has left."""
    come, left = Event(), Event()
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):  # `listening` is closed at the end of the test
            while True:
                connection, _ = listening.accept()
                come.set()
                with connection, contextlib.suppress(OSError):
                    connection.sendall(answer)
                    connection.settimeout(0.01)
                    while True:
                        with contextlib.suppress(TimeoutError):
                            if not connection.recv(65_536):
                                break
                        connection.sendall(drip)
                left.set()

    thread = Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listening.getsockname()[1], come, left
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


DRIPS = {
    "body": ("http", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"x"),
    "headers": ("http", b"HTTP/1.1 200 OK\r\n", b"a: b\r\n"),
    "handshake": ("https", b"\x16\x03\x03\x40\x00\x02", b"\x00"),
}


@pytest.mark.parametrize("where", DRIPS)
async def test_a_response_has_a_deadline_however_slowly_it_arrives(where: str) -> None:
    scheme, answer, drip = DRIPS[where]
    with dripping(answer, drip) as (port, _, left):
        request = OAuthRequest(
            "the.setting", f"{scheme}://127.0.0.1:{port}/", TlsConfig(), connect_timeout_ms=100, read_timeout_ms=100
        )
        with pytest.raises(OAuthFetchError, match=r"the\.setting=.* has not answered completely within") as caught:
            await fetch_url(request)
        assert caught.value.retriable
        assert await asyncio.to_thread(left.wait, 60), "the connection is closed, so that its thread ends"


async def test_neither_the_listeners_nor_the_end_of_a_node_wait_for_keys_that_drip(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(provider_keys, "_START_S", 0.02)
    with dripping(*DRIPS["body"][1:]) as (port, come, left):
        keys = keys_at(f"http://127.0.0.1:{port}/keys")
        await keys.start()
        assert keys.keys() == ()
        assert await asyncio.to_thread(left.wait, 60)
        come.clear()
        left.clear()
        running = asyncio.create_task(keys.run())
        assert await asyncio.to_thread(come.wait, 60)
        assert all(thread.daemon for thread in threading.enumerate() if "exchange" in thread.name)
        running.cancel()
        await asyncio.wait([running])
        assert await asyncio.to_thread(left.wait, 60)


# ---- keys of a provider


def keys_at(url: str, path: Path | None = None, refresh_ms: int = 3_600_000) -> ProviderKeys:
    return ProviderKeys(KeySource(url, None if path is None else str(path), refresh_ms, 1, 10, TlsConfig()), Random(1))


def ids(provider: ProviderKeys) -> list[str | None]:
    return [key.id for key in tuple(provider.keys())]


async def test_keys_are_fetched_again_after_failures_and_stay_while_they_cannot_be_fetched(tmp_path: Path) -> None:
    answers: list[tuple[int, bytes]] = [(503, b""), (200, b"no keys"), (200, key_set(key_for("RS256")))]
    asked: list[str] = []

    def respond(path: str) -> tuple[int, bytes]:
        asked.append(path)
        return answers[min(len(asked), len(answers)) - 1]

    with server(respond, None, tmp_path) as port:
        keys = keys_at(f"http://127.0.0.1:{port}/keys", refresh_ms=20)
        await keys.start()
        assert keys.keys() == ()
        running = asyncio.create_task(keys.run())
        await until(lambda: len(keys.keys()) == 1, "the first keys are fetched")
        answers.append((500, b""))
        count = len(asked)
        await until(lambda: len(asked) > count + 2, "the keys are asked for again")
        assert ids(keys) == ["RS256"]
        answers.append((200, key_set(key_for("ES256"))))
        await until(lambda: ids(keys) == ["ES256"], "the new keys are fetched")
        running.cancel()
        await asyncio.wait([running])


async def test_a_file_of_keys_must_be_there_at_the_start_and_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_keys, "_FILE_CHECK_S", 0.01)
    file = tmp_path / "keys.json"
    keys = keys_at(file.as_uri(), file)
    with pytest.raises(ConfigError, match=r"jwks\.endpoint\.url: .*cannot be read"):
        await keys.start()
    file.write_text(json.dumps({"keys": []}))
    with pytest.raises(ConfigError, match="no key for signatures"):
        await keys.start()
    file.write_bytes(key_set(key_for("RS256")))
    await keys.start()
    running = asyncio.create_task(keys.run())
    file.write_bytes(key_set(key_for("ES256"), key_for("RS256")))
    await until(lambda: len(keys.keys()) == 2, "both keys are fetched")
    running.cancel()
    await asyncio.wait([running])
