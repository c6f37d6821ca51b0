"""PageServer: pages over HTTP/1.1, and the responses to malformed requests."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.protocol.transport.http.pages import CONNECTIONS_MAX, HEAD_BYTES_MAX, Page, PageServer


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


def test_a_probe_is_answered_while_another_client_holds_half_sent_requests() -> None:
    async def main() -> None:
        server = PageServer("127.0.0.1", 0, PAGES)
        server.bind()
        serving = asyncio.create_task(server.serve())
        half = []
        for _ in range(3 * CONNECTIONS_MAX):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"GET / HT")
            half.append(writer)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 OK")
        for writer in half:
            writer.close()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)

    asyncio.run(main())
