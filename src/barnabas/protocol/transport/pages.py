"""Shell: a few pages of text over HTTP/1.1, for scrapers and health checks: GET and HEAD, one request per connection.

    server = PageServer("127.0.0.1", 9404, {"/metrics": page})
    server.bind()
    await server.serve()          # until cancelled

With `security` the pages have TLS and users; `open_pages` then show their status, and no more, to everybody, because
supervisors of processes have no password. This server has no dependency, but also no request bodies and no keep-alive;
`http.py` has them. The server reads only the head of a request: at most 8 KiB, within ten seconds. It has slots of its
own, few of which belong to one address (`http_slots.py`), so that the probes of a supervisor are answered while others
send half requests. Pages of other web sites are refused (`http_doors.py`).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from barnabas.core.telemetry import get_logger
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.protocol.transport.http_doors import HttpDoors
from barnabas.protocol.transport.http_slots import HttpSlots
from barnabas.protocol.transport.listener import listening_socket

if TYPE_CHECKING:
    from barnabas.protocol.transport.http_security import HttpSecurity

log = get_logger("barnabas.protocol.transport")

HEAD_BYTES_MAX: Final = 8_192
CONNECTIONS_MAX: Final = 64
CONNECTIONS_OF_ADDRESS_MAX: Final = 8
_REQUEST_TIMEOUT_S: Final = 10.0
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class Page(Struct, frozen=True):
    """The content of a path at the time of the request."""

    text: str | bytes
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"


class _Reader:
    """The slot of one connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    def abort(self) -> None:
        self._writer.transport.abort()


class PageServer:
    """One listening socket, and a function for each path that returns the page, at once or later."""

    def __init__(
        self,
        host: str,
        port: int,
        pages: Mapping[str, Callable[[], Page | Awaitable[Page]]],
        *,
        security: HttpSecurity | None = None,
        open_pages: Collection[str] = (),
        names: Collection[str] = (),
    ) -> None:
        """`names` are the names, besides `host`, to which a server without a login answers."""
        self.host = host
        self.port = port
        """The requested port; after `bind`, the port that is bound."""
        self._pages = pages
        self._security = security
        self._open_pages = open_pages
        self._sock: socket.socket | None = None
        has_login = security is not None and security.has_login
        self._doors = HttpDoors(None if has_login else [host, *names])
        self._slots = HttpSlots(CONNECTIONS_MAX, CONNECTIONS_OF_ADDRESS_MAX)

    def bind(self) -> None:
        """Bind the port. Raises OSError if the port is in use."""
        self._sock = listening_socket(ListenerEndpoint("HTTP", self.host, self.port))
        self.port = int(self._sock.getsockname()[1])

    async def serve(self) -> None:
        """Answer requests until cancelled."""
        assert self._sock is not None, "bind first"
        tls = None if self._security is None else self._security.context
        timeout = None if tls is None else _REQUEST_TIMEOUT_S
        server = await asyncio.start_server(
            self._connection, sock=self._sock, limit=HEAD_BYTES_MAX, ssl=tls, ssl_handshake_timeout=timeout
        )
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            server.close()

    def close(self) -> None:
        """Close the socket, for a server whose `serve` was never called."""
        if self._sock is not None:
            self._sock.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        slot = _Reader(writer)
        peer = writer.get_extra_info("peername")
        if not self._slots.enter(slot, str(peer[0]) if peer else ""):
            writer.transport.abort()
            return
        try:
            if self._security is not None:
                self._security.refresh()
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                self._slots.handle(slot)
                writer.write(await self._answer(head))
                self._slots.wait(slot)
                await writer.drain()
        except asyncio.LimitOverrunError:
            writer.write(_response(Page("The request is too long.\n", 400), with_body=True))
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the connection is lost, or the client sent no complete request in time
        finally:
            self._slots.leave(slot)
            with suppress(OSError):
                writer.close()

    async def _answer(self, head: bytes) -> bytes:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _response(Page("This is not an HTTP/1 request.\n", 400), with_body=True)
        method, target, _ = words
        if method not in ("GET", "HEAD"):
            return _response(Page("Only GET and HEAD are supported.\n", 405), with_body=True)
        headers = _headers(head)
        foreign = self._doors.refusal(method, headers)
        if foreign is not None:
            return _response(Page(f"{foreign.message}\n", foreign.status), with_body=True)
        path = target.partition("?")[0]
        authorization = headers.get("authorization", "")
        refused = None if self._security is None else await self._security.refusal(authorization)
        if refused is not None and path not in self._open_pages:
            assert self._security is not None
            header = f"WWW-Authenticate: {self._security.challenge}\r\n" if refused == 401 else ""
            return _response(Page("This page needs a user and a password.\n", refused), with_body=True, header=header)
        page = self._pages.get(path)
        if page is None:
            known = Page(f"There is no such page. The pages are {', '.join(sorted(self._pages))}.\n", 404)
            return _response(known, with_body=method == "GET")
        try:
            shown = page()
            if not isinstance(shown, Page):
                shown = await shown
        except Exception:  # a page is another module's code: a bug in it must not end the server
            log.exception("a page failed", path=target)
            shown = Page("The page could not be built; the reason is in the log.\n", 500)
        if refused is not None:
            shown = Page("ok\n" if shown.status == 200 else "not ok\n", shown.status)
        return _response(shown, with_body=method == "GET")


def _headers(head: bytes) -> dict[str, str]:
    """The headers of a request by their names in lower case."""
    lines = (line.decode("latin-1").partition(":") for line in head.split(b"\r\n")[1:])
    return {name.strip().lower(): value.strip() for name, _, value in lines if name}


def _response(page: Page, *, with_body: bool, header: str = "") -> bytes:
    body = page.text if isinstance(page.text, bytes) else page.text.encode()
    allow = "Allow: GET, HEAD\r\n" if page.status == 405 else header
    head = (
        f"HTTP/1.1 {page.status} {_REASONS[page.status]}\r\nContent-Type: {page.content_type}\r\n"
        f"Content-Length: {len(body)}\r\n{allow}Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (body if with_body else b"")
