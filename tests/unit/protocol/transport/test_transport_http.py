"""HttpServer: requests, keep-alive, limits, malformed input and failing handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from barnabas.protocol.transport import http
from barnabas.protocol.transport.http import HttpRequest, HttpResponse, HttpServer

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def echo(request: HttpRequest) -> HttpResponse:
    if request.target == "/fail":
        raise RuntimeError("as asked")
    body = f"{request.method} {request.target} {request.headers.get('x', '-')} {request.body.decode()}"
    return HttpResponse(200, body.encode(), "text/plain", {"X-Extra": "1"})


def talk(conversation: Talk) -> None:
    async def main() -> None:
        server = HttpServer("127.0.0.1", 0, echo)
        await server.bind()
        serving = asyncio.create_task(server.serve())
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        async with asyncio.timeout(10):
            await conversation(reader, writer)
        writer.close()
        server.stop()
        await serving

    asyncio.run(main())


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> tuple[int, bytes]:
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
    return int(head.split(b" ")[1]), await reader.readexactly(length)


def test_requests_of_one_connection_are_answered_in_order() -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        get = b"GET /a?b=c HTTP/1.1\r\nHost: h\r\nX: 7\r\n\r\n"
        assert await ask(reader, writer, get) == (200, b"GET /a?b=c 7 ")
        post = b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody"
        assert await ask(reader, writer, post + get) == (200, b"POST /p - body")
        assert await ask(reader, writer, b"") == (200, b"GET /a?b=c 7 ")
        chunked = b"POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
        assert await ask(reader, writer, chunked) == (200, b"POST /c - abc")

    talk(conversation)


def test_a_failing_handler_is_answered_500_and_the_connection_stays_open() -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert (await ask(reader, writer, b"GET /fail HTTP/1.1\r\nHost: h\r\n\r\n"))[0] == 500
        assert (await ask(reader, writer, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"))[0] == 200

    talk(conversation)


def test_head_has_no_body_and_continue_is_answered() -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n")
        assert b"Content-Length: 9" in await reader.readuntil(b"\r\n\r\n")
        writer.write(b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        assert await ask(reader, writer, b"x") == (200, b"POST / - x")

    talk(conversation)


def test_malformed_http_is_answered_400_and_the_connection_closed() -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert (await ask(reader, writer, b"\x00\x00\x00\x10not http\r\n\r\n"))[0] == 400
        assert await reader.read() == b""

    talk(conversation)


def test_a_body_above_the_limit_is_rejected() -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = f"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {http.BODY_BYTES_MAX + 1}\r\n\r\n".encode()
        writer.write(head)
        block = bytes(1 << 20)
        for _ in range(http.BODY_BYTES_MAX // len(block)):
            writer.write(block)
            await writer.drain()
        assert (await ask(reader, writer, b"x"))[0] == 413

    talk(conversation)
