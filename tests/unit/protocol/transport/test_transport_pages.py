"""PageServer: pages over HTTP/1.1, and the responses to malformed requests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from barnabas.protocol.transport.http.pages import (
    CONNECTIONS_MAX,
    CONNECTIONS_OF_ADDRESS_MAX,
    HEAD_BYTES_MAX,
    PAGES_OF_ADDRESS_MAX,
    Page,
    PageServer,
)


def broken() -> Page:
    raise RuntimeError("as planned")


PAGES = {"/metrics": lambda: Page("a 1\n", content_type="text/x"), "/ill": lambda: Page("no\n", 503), "/broken": broken}


def talk(sent: bytes) -> tuple[str, dict[str, str], str]:
    """The status line, the headers and the body of the response, after which the server closes the connection."""

    async def main() -> bytes:
        server = PageServer("127.0.0.1", 0, PAGES)
        server.bind()
        serving = asyncio.create_task(server.serve())
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(sent)
        answer = await reader.read()
        writer.close()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        return answer

    head, _, body = asyncio.run(main()).decode().partition("\r\n\r\n")
    status, *lines = head.split("\r\n")
    return status, dict(line.split(": ", 1) for line in lines), body


def test_a_page() -> None:
    status, headers, body = talk(b"GET /metrics?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (status, body) == ("HTTP/1.1 200 OK", "a 1\n")
    assert headers == {"Content-Type": "text/x", "Content-Length": "4", "Connection": "close"}
    status, headers, body = talk(b"HEAD /metrics HTTP/1.1\r\n\r\n")
    assert (status, headers["Content-Length"], body) == ("HTTP/1.1 200 OK", "4", "")


@pytest.mark.parametrize(
    ("sent", "status", "says"),
    [
        (b"GET /ill HTTP/1.0\r\n\r\n", "503 Service Unavailable", "no"),
        (b"GET /broken HTTP/1.1\r\n\r\n", "500 Internal Server Error", "the reason is in the log"),
        (b"GET / HTTP/1.1\r\n\r\n", "404 Not Found", "The pages are /broken, /ill, /metrics."),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed", "Only GET"),
        (b"\x00\x00\x00\x12kafka\r\n\r\n", "400 Bad Request", "not an HTTP/1 request"),
        (b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403 Forbidden", "'evil.example'"),
        (b"GET /metrics HTTP/1.1\r\nOrigin: http://evil.example\r\n\r\n", "403 Forbidden", "other web sites"),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 2 * HEAD_BYTES_MAX, "400 Bad Request", "too long"),
    ],
)
def test_unsupported_requests_get_an_error_page(sent: bytes, status: str, says: str) -> None:
    line, _, body = talk(sent)
    assert (line, says in body) == (f"HTTP/1.1 {status}", True)


@contextlib.asynccontextmanager
async def running(server: PageServer) -> AsyncIterator[int]:
    server.bind()
    serving = asyncio.create_task(server.serve())
    try:
        yield server.port
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def get(port: int, path: str) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split(" ")[1]), body


def test_a_probe_is_answered_while_another_client_holds_half_sent_requests() -> None:
    async def main() -> None:
        async with running(PageServer("127.0.0.1", 0, PAGES, probes={"/livez": lambda: Page("ok\n")})) as port:
            half = []
            for _ in range(2 * CONNECTIONS_MAX):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET / HT")
                half.append(writer)
            assert await get(port, "/livez") == (200, "ok\n")
            for writer in half:
                writer.close()

    asyncio.run(main())


def test_slow_pages_are_built_once_and_leave_probes_their_slots() -> None:
    async def main() -> None:
        is_built, builds = asyncio.Event(), list[int]()

        async def metrics() -> Page:
            builds.append(1)
            await is_built.wait()
            return Page("m\n")

        server = PageServer("127.0.0.1", 0, {"/metrics": metrics}, probes={"/livez": lambda: Page("ok\n")})
        async with running(server) as port:
            scrapes = [asyncio.create_task(get(port, "/metrics")) for _ in range(CONNECTIONS_OF_ADDRESS_MAX)]
            await asyncio.wait(scrapes, return_when=asyncio.FIRST_COMPLETED)
            assert await get(port, "/livez") == (200, "ok\n")
            is_built.set()
            found = await asyncio.gather(*scrapes)
            assert [status for status, _ in found].count(200) == PAGES_OF_ADDRESS_MAX
            assert {status for status, _ in found} == {200, 503}
            assert len(builds) == 1
            assert await get(port, "/metrics") == (200, "m\n")

    asyncio.run(main())
