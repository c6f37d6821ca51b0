"""Shell: a few pages of text over HTTP/1.1, for scrapers and health checks: GET and HEAD, one answer a connection.

    server = PageServer("127.0.0.1", 9404, {"/metrics": page})
    server.bind()
    await server.serve()          # until cancelled

Without a dependency, and so without bodies, keep-alive or anything else that `http.py` does for APIs. A request's head
is all that is read: at most 8 KiB, in ten seconds at most, of 32 clients at a time.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from msgspec import Struct

from barnabas.core.telemetry import get_logger
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.protocol.transport.listener import listening_socket

log = get_logger("barnabas.protocol.transport")

HEAD_BYTES_MAX: Final = 8_192
CONNECTIONS_MAX: Final = 32
_PATIENCE_S: Final = 10.0
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class Page(Struct, frozen=True):
    """What a path shows at the moment it is asked for."""

    text: str
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"


class PageServer:
    """One listening socket; the pages by their paths."""

    def __init__(self, host: str, port: int, pages: Mapping[str, Callable[[], Page]]) -> None:
        self.host = host
        self.port = port
        """The port asked for, and after `bind` the one that was found."""
        self._pages = pages
        self._sock: socket.socket | None = None
        self._open = 0

    def bind(self) -> None:
        """Take the port. Raises OSError when it is in use."""
        self._sock = listening_socket(ListenerEndpoint("HTTP", self.host, self.port))
        self.port = int(self._sock.getsockname()[1])

    async def serve(self) -> None:
        """Answer until cancelled."""
        assert self._sock is not None, "bind first"
        server = await asyncio.start_server(self._connection, sock=self._sock, limit=HEAD_BYTES_MAX)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            server.close()

    def close(self) -> None:
        """Give the port back, if `serve` never got it."""
        if self._sock is not None:
            self._sock.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= CONNECTIONS_MAX:
                async with asyncio.timeout(_PATIENCE_S):
                    writer.write(self._answer(await reader.readuntil(b"\r\n\r\n")))
                    await writer.drain()
        except asyncio.LimitOverrunError:
            writer.write(_response(Page("The request is too long.\n", 400), with_body=True))
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the client is gone, or silent; there is nobody to tell
        finally:
            self._open -= 1
            with suppress(OSError):
                writer.close()

    def _answer(self, head: bytes) -> bytes:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _response(Page("This is not a request of HTTP/1.\n", 400), with_body=True)
        method, target, _ = words
        if method not in ("GET", "HEAD"):
            return _response(Page("Only GET is answered here.\n", 405), with_body=True)
        page = self._pages.get(target.partition("?")[0])
        if page is None:
            known = Page(f"There is nothing here; there is {', '.join(sorted(self._pages))}.\n", 404)
            return _response(known, with_body=method == "GET")
        try:
            shown = page()
        except Exception:
            log.exception("a page failed", path=target)
            shown = Page("The page could not be made; the log says why.\n", 500)
        return _response(shown, with_body=method == "GET")


def _response(page: Page, *, with_body: bool) -> bytes:
    body = page.text.encode()
    allow = "Allow: GET, HEAD\r\n" if page.status == 405 else ""
    head = (
        f"HTTP/1.1 {page.status} {_REASONS[page.status]}\r\nContent-Type: {page.content_type}\r\n"
        f"Content-Length: {len(body)}\r\n{allow}Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (body if with_body else b"")
