"""Shell: a few pages of text over HTTP/1.1, for scrapers and health checks: GET and HEAD, one request per connection.

    server = PageServer("127.0.0.1", 9404, {"/metrics": page}, probes={"/livez": alive})
    server.bind()
    await server.serve()          # until cancelled

With `security` the pages have TLS and users; `probes` then show their status, and no more, to everybody, because
supervisors of processes have no password. This server has no dependency, but also no request bodies and no keep-alive;
`server.py` has them. It reads only the head of a request: at most 8 KiB, within ten seconds. Pages of other web sites
are refused (`doors.py`).

A probe that fails restarts a healthy process, so that it must be answered whatever others do:

| Slots | For |
|---|---|
| CONNECTIONS_MAX, few of which belong to one address | connections whose head is not complete, and probes |
| PAGES_MAX, few of which belong to one address | the other pages, from the end of the head to the receipt: else 503 |

Probes are answered at once. Other pages may take a while: requests that arrive while one is built get the same one.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final, cast

from msgspec import Struct
from msgspec.structs import replace

from barnabas.core.telemetry import get_logger
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.protocol.transport.http.connection import AcceptedHttpConnection, HttpAcceptor
from barnabas.protocol.transport.http.doors import HttpDoors, HttpRefusal
from barnabas.protocol.transport.http.slots import HttpSlots
from barnabas.protocol.transport.listener import listening_socket

if TYPE_CHECKING:
    from barnabas.protocol.transport.http.security import HttpSecurity

log = get_logger("barnabas.protocol.transport")

HEAD_BYTES_MAX: Final = 8_192
CONNECTIONS_MAX: Final = 256
CONNECTIONS_OF_ADDRESS_MAX: Final = 64
PAGES_MAX: Final = 16
PAGES_OF_ADDRESS_MAX: Final = 4
_RECEIPT_S: Final = 10.0
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    429: "Too Many Requests",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class Page(Struct, frozen=True):
    """The content of a path at the time of the request."""

    text: str | bytes
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"


class PageServer:
    """One listening socket, and a function for each path that returns the page, at once or later. Those of `probes`
    return it at once."""

    def __init__(
        self,
        host: str,
        port: int,
        pages: Mapping[str, Callable[[], Page | Awaitable[Page]]],
        *,
        probes: Mapping[str, Callable[[], Page]] | None = None,
        security: HttpSecurity | None = None,
        names: Collection[str] = (),
    ) -> None:
        """`names` are the names, besides `host`, to which a server without a login answers."""
        self.host = host
        self.port = port
        """The requested port; after `bind`, the port that is bound."""
        self._pages = pages
        self._probes = probes or {}
        self._security = security
        self._sock: socket.socket | None = None
        has_login = security is not None and security.has_login
        self._doors = HttpDoors(None if has_login else [host, *names])
        self._heads = HttpSlots(CONNECTIONS_MAX, CONNECTIONS_OF_ADDRESS_MAX)
        self._slots = HttpSlots(PAGES_MAX, PAGES_OF_ADDRESS_MAX)
        self._building: dict[str, asyncio.Future[Page]] = {}

    def bind(self) -> None:
        """Bind the port. Raises OSError if the port is in use."""
        self._sock = listening_socket(ListenerEndpoint("HTTP", self.host, self.port))
        self.port = int(self._sock.getsockname()[1])

    async def serve(self) -> None:
        """Answer requests until cancelled."""
        assert self._sock is not None, "bind first"
        acceptor = HttpAcceptor(
            self._sock, self._heads, lambda: AcceptedHttpConnection(self._heads, self._security, self._reader)
        )
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            acceptor.close()
            for building in self._building.values():
                building.cancel()

    def close(self) -> None:
        """Close the socket, for a server whose `serve` was never called."""
        if self._sock is not None:
            self._sock.close()

    def _reader(self, connection: AcceptedHttpConnection) -> asyncio.Protocol:
        return _RequestReader(self, connection)

    async def answer(self, head: bytes, connection: AcceptedHttpConnection) -> bytes:
        """The response to a request with this head."""
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _response(Page("This is not an HTTP/1 request.\n", 400))
        method, target, _ = words
        if method not in ("GET", "HEAD"):
            return _response(Page("Only GET and HEAD are supported.\n", 405), headers={"Allow": "GET, HEAD"})
        headers = _headers(head)
        refusal = self._doors.refusal(method, headers)
        if refusal is not None:
            return _refused(refusal)
        path = target.partition("?")[0]
        if path not in self._probes and not connection.move(self._slots):
            return _refused(HttpRefusal(503, "Too many pages at the same time: try again in a moment."))
        if self._security is not None:
            refusal = await self._security.refusal(headers.get("authorization", ""), connection.host)
        if refusal is not None and path not in self._probes:
            return _refused(
                replace(refusal, message="This page needs a user and a password.") if refusal.status == 401 else refusal
            )
        try:
            shown = await self._shown(path)
        except Exception:  # a page is another module's code: a bug in it must not end the server
            log.exception("a page failed", path=target)
            shown = Page("The page could not be built; the reason is in the log.\n", 500)
        if refusal is not None:
            shown = Page("ok\n" if shown.status == 200 else "not ok\n", shown.status)
        return _response(shown, with_body=method == "GET")

    async def _shown(self, path: str) -> Page:
        if path in self._probes:
            return self._probes[path]()
        if path not in self._pages:
            known = ", ".join(sorted([*self._pages, *self._probes]))
            return Page(f"There is no such page. The pages are {known}.\n", 404)
        building = self._building.get(path)
        if building is None:
            shown = self._pages[path]()
            if isinstance(shown, Page):
                return shown
            building = self._building[path] = asyncio.ensure_future(shown)
            building.add_done_callback(lambda _: self._building.pop(path))
        return await asyncio.shield(building)


class _RequestReader(asyncio.Protocol):
    """Reads the head of the request of a connection, and sends the response."""

    def __init__(self, server: PageServer, connection: AcceptedHttpConnection) -> None:
        self._server = server
        self._connection = connection
        self._head = bytearray()
        self._answering: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._answering is not None:
            return
        searched = max(0, len(self._head) - 3)
        self._head += data
        end = self._head.find(b"\r\n\r\n", searched)
        if max(end, 0 if end >= 0 else len(self._head)) > HEAD_BYTES_MAX:
            self._transport.write(_response(Page("The request is too long.\n", 400)))
            self._transport.close()
        elif end >= 0:
            self._connection.handle()
            self._answering = asyncio.ensure_future(self._answer(bytes(self._head[:end])))

    async def _answer(self, head: bytes) -> None:
        try:
            self._transport.write(await self._server.answer(head, self._connection))
        finally:
            self._connection.wait("receipt", _RECEIPT_S)
            self._transport.close()

    def eof_received(self) -> bool:
        return self._answering is not None  # the client may still receive

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answering is not None:
            self._answering.cancel()


def _headers(head: bytes) -> dict[str, str]:
    """The headers of a request by their names in lower case."""
    lines = (line.decode("latin-1").partition(":") for line in head.split(b"\r\n")[1:])
    return {name.strip().lower(): value.strip() for name, _, value in lines if name}


def _refused(refusal: HttpRefusal) -> bytes:
    return _response(Page(f"{refusal.message}\n", refusal.status), headers=refusal.headers)


def _response(page: Page, *, with_body: bool = True, headers: Mapping[str, str] | None = None) -> bytes:
    body = page.text if isinstance(page.text, bytes) else page.text.encode()
    more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    head = (
        f"HTTP/1.1 {page.status} {_REASONS[page.status]}\r\nContent-Type: {page.content_type}\r\n"
        f"Content-Length: {len(body)}\r\n{more}Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (body if with_body else b"")
