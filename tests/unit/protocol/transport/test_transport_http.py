"""HttpServer: requests, keep-alive, limits, malformed input and failing handlers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from barnabas.protocol.security.login_attempts import FREE
from barnabas.protocol.transport import http
from barnabas.protocol.transport.http import HttpRequest, HttpResponse, HttpServer

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def echo(request: HttpRequest) -> HttpResponse:
    if request.target == "/fail":
        raise RuntimeError("as asked")
    body = f"{request.method} {request.target} {request.headers.get('x', '-')} {request.body.decode()}"
    return HttpResponse(200, body.encode(), "text/plain", {"X-Extra": "1"})


class Alice:
    """Lets Alice in."""

    def __init__(self) -> None:
        self.checked = 0

    def is_known(self, authorization: str) -> bool:
        return authorization == "alice, known"

    async def refusal(self, authorization: str) -> HttpResponse | None:
        self.checked += 1
        return None if authorization == "alice" else HttpResponse(401)


def talk(conversation: Talk, login: Alice | None = None) -> None:
    async def main() -> None:
        server = HttpServer("127.0.0.1", 0, echo, login=login)
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
        get = b"GET /a?b=c HTTP/1.1\r\nHost: localhost\r\nX: 7\r\n\r\n"
        assert await ask(reader, writer, get) == (200, b"GET /a?b=c 7 ")
        post = b"POST /p HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody"
        assert await ask(reader, writer, post + get) == (200, b"POST /p - body")
        assert await ask(reader, writer, b"") == (200, b"GET /a?b=c 7 ")
        chunked = (
            b"POST /c HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
        )
        assert await ask(reader, writer, chunked) == (200, b"POST /c - abc")

    talk(conversation)


def test_a_failing_handler_is_answered_500_and_the_connection_stays_open() -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert (await ask(reader, writer, b"GET /fail HTTP/1.1\r\nHost: localhost\r\n\r\n"))[0] == 500
        assert (await ask(reader, writer, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"))[0] == 200

    talk(conversation)


def test_head_has_no_body_and_continue_is_answered() -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"Content-Length: 9" in await reader.readuntil(b"\r\n\r\n")
        writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        assert await ask(reader, writer, b"x") == (200, b"POST / - x")

    talk(conversation)


def test_malformed_http_is_answered_400_and_the_connection_closed() -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert (await ask(reader, writer, b"\x00\x00\x00\x10not http\r\n\r\n"))[0] == 400
        assert await reader.read() == b""

    talk(conversation)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"Host: evil.example\r\nContent-Type: application/json\r\n", 403),
        (b"Host: localhost\r\nOrigin: http://evil.example\r\nContent-Type: application/json\r\n", 403),
        (b"Host: localhost\r\nContent-Type: text/plain\r\n", 415),
        (b"Host: localhost\r\nContent-Type: application/json\r\n", 200),
    ],
)
def test_requests_of_web_pages_are_refused_by_their_head(head: bytes, status: int) -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        post = b"POST / HTTP/1.1\r\n" + head + b"Content-Length: 4\r\n\r\n"
        found = await ask(reader, writer, post if status != 200 else post + b"body")
        assert found[0] == status

    talk(conversation)


def test_a_body_is_read_after_the_login() -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n"
        assert (await ask(reader, writer, head + b"\r\n"))[0] == 401
        # the rest of the refused body is dropped, and the connection goes on
        assert (await ask(reader, writer, b"body" + head + b"Authorization: alice\r\n\r\nmore"))[1] == b"POST / - more"

    talk(conversation, Alice())


def test_guesses_are_slowed_down_and_known_users_are_not() -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def status(user: bytes) -> int:
            get = b"GET / HTTP/1.1\r\nHost: localhost\r\n" + user + b"\r\n"
            return (await ask(reader, writer, get))[0]

        assert [await status(b"Authorization: bob\r\n") for _ in range(FREE + 2)] == [401] * FREE + [429] * 2
        assert login.checked == FREE
        assert await status(b"Authorization: alice, known\r\n") == 200
        assert await status(b"") == 401  # the browser asks for a password

    login = Alice()
    talk(conversation, login)


@pytest.mark.parametrize("sent", [b"GET / HTT", b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbo"])
def test_a_half_sent_request_has_a_deadline(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_HEAD_S", 0.05)
    monkeypatch.setattr(http, "_BODY_S", 0.05)

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""

    talk(conversation)


def test_half_sent_requests_of_an_address_make_room_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CONNECTIONS_OF_ADDRESS_MAX", 3)

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("peername")[1]
        writer.write(b"GET / HT")
        others = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for other in others:
            assert (await ask(*other, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"))[0] == 200
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        for _, other_writer in others:
            other_writer.close()

    talk(conversation)


def test_the_bodies_of_an_address_have_a_total(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "BODIES_BYTES_OF_ADDRESS_MAX", 150_000)

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("peername")[1]
        head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\nExpect: 100-continue\r\n\r\n"
        writer.write(head)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        writer.write(bytes(99_999))
        second_reader, second_writer = await asyncio.open_connection("127.0.0.1", port)
        second_writer.write(head)
        await second_reader.readuntil(b"\r\n\r\n")
        assert (await ask(second_reader, second_writer, bytes(100_000)))[0] == 503
        assert (await ask(reader, writer, b"x"))[0] == 200
        assert (
            await ask(second_reader, second_writer, head.replace(b"Expect: 100-continue\r\n", b"") + bytes(100_000))
        )[0] == 200
        second_writer.close()

    talk(conversation)


def test_a_body_above_the_limit_is_rejected() -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {http.BODY_BYTES_MAX + 1}\r\n\r\n".encode()
        writer.write(head)
        block = bytes(1 << 20)
        for _ in range(http.BODY_BYTES_MAX // len(block)):
            writer.write(block)
            await writer.drain()
        assert (await ask(reader, writer, b"x"))[0] == 413

    talk(conversation)
