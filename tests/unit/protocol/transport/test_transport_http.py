"""HttpServer: requests, keep-alive, limits, malformed input and failing handlers."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from barnabas.protocol.security.login_attempts import FREE
from barnabas.protocol.transport.http.doors import HttpDoors
from barnabas.protocol.transport.http.gate import BodyLimits, HttpGate, application
from barnabas.protocol.transport.http.messages import HttpRequest, HttpResponse
from barnabas.protocol.transport.http.security import HttpSecurity
from barnabas.protocol.transport.http.server import HttpLimits, HttpServer
from barnabas.protocol.transport.http.settings import HttpLoginConfig, HttpSecurityConfig

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
GET: Final = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
BODIES: Final = BodyLimits(of_request=1_000_000, of_address=150_000, total=2_000_000)
ALICE: Final = b"Authorization: Basic " + base64.b64encode(b"alice:secret") + b"\r\n"
BOB: Final = b"Authorization: Basic " + base64.b64encode(b"bob:secret") + b"\r\n"


async def echo(request: HttpRequest) -> HttpResponse:
    if request.target == "/fail":
        raise RuntimeError("as asked")
    if request.target == "/large":
        return HttpResponse(200, bytes(20_000_000))
    body = f"{request.method} {request.target} {request.headers.get('x', '-')} {request.body.decode()}"
    return HttpResponse(200, body.encode(), "text/plain", {"X-Extra": "1"})


class Alice:
    """Lets Alice in."""

    def __init__(self) -> None:
        self.checked = 0

    def secret(self, name: str) -> str | None:
        return "secret" if name == "alice" else None

    async def is_right(self, name: str, password: str) -> bool:
        self.checked += 1
        return password == self.secret(name)


def talk(
    conversation: Talk,
    login: Alice | None = None,
    limits: HttpLimits | None = None,
    app: Any = None,
) -> None:
    async def main() -> None:
        config = HttpSecurityConfig(login=HttpLoginConfig("x", frozenset(), None))
        security = None if login is None else HttpSecurity(config, asyncio.get_running_loop().time, login)
        gate = HttpGate(app or application(echo), HttpDoors(()), security=security, limits=BODIES)
        server = HttpServer("127.0.0.1", 0, gate, limits=limits)
        await server.bind()
        serving = asyncio.create_task(server.serve())
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        async with asyncio.timeout(20):
            await conversation(reader, writer)
        writer.close()
        server.stop()
        await serving

    asyncio.run(main())


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> tuple[int, bytes]:
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
    return int(head.split(b" ")[1]), await reader.readexactly(length)


async def ended(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError):
        while await reader.read(65_536):
            pass


def test_requests_of_one_connection_are_answered_in_order() -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        get = b"GET /a?b=c%2Fd HTTP/1.1\r\nHost: localhost\r\nX: 7\r\n\r\n"
        assert await ask(reader, writer, get) == (200, b"GET /a?b=c%2Fd 7 ")
        post = b"POST /p%2Fq HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody"
        assert await ask(reader, writer, post + get) == (200, b"POST /p%2Fq - body")
        assert await ask(reader, writer, b"") == (200, b"GET /a?b=c%2Fd 7 ")
        chunked = (
            b"POST /c HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
        )
        assert await ask(reader, writer, chunked) == (200, b"POST /c - abc")

    talk(conversation)


def test_a_failing_handler_is_answered_500_and_the_connection_stays_open() -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert (await ask(reader, writer, b"GET /fail HTTP/1.1\r\nHost: localhost\r\n\r\n"))[0] == 500
        assert (await ask(reader, writer, GET))[0] == 200

    talk(conversation)


def test_head_has_no_body_and_continue_is_answered() -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"Content-Length: 9" in await reader.readuntil(b"\r\n\r\n")
        writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        assert await ask(reader, writer, b"x") == (200, b"POST / - x")

    talk(conversation)


def test_an_error_in_the_body_of_a_head_ends_that_connection_only() -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("peername")[1]
        head = b"HEAD / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n"
        bad_reader, bad_writer = await asyncio.open_connection("127.0.0.1", port)
        bad_writer.write(head)  # the answer of 400 has a body, which the answer to a HEAD may not have
        await ended(bad_reader)
        bad_writer.close()
        assert (await ask(reader, writer, GET))[0] == 200

    talk(conversation)


def test_a_client_that_sends_nothing_more_gets_its_answer() -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(GET)
        writer.write_eof()
        assert (await reader.read()).startswith(b"HTTP/1.1 200")

    talk(conversation)


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x00\x00\x10not http\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000,
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nnot a chunk\r\n",
    ],
)
def test_malformed_http_is_refused_and_the_connection_closed(sent: bytes) -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        status, _ = await ask(reader, writer, sent)
        assert status in (400, 501)
        await ended(reader)

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
        assert (await ask(reader, writer, b"body" + head + ALICE + b"\r\nmore"))[1] == b"POST / - more"

    talk(conversation, Alice())


def test_guesses_are_slowed_down_and_known_users_are_not() -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def status(user: bytes) -> int:
            get = b"GET / HTTP/1.1\r\nHost: localhost\r\n" + user + b"\r\n"
            return (await ask(reader, writer, get))[0]

        assert await status(ALICE) == 200
        assert [await status(BOB) for _ in range(FREE + 2)] == [401] * FREE + [429] * 2
        assert login.checked == 1 + FREE
        assert await status(ALICE) == 200
        assert await status(b"") == 401  # the browser asks for a password

    login = Alice()
    talk(conversation, login)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTT",
        GET + b"GET / HTT",
        GET,
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbo",
        b"POST / HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 4\r\n\r\nbo",
        b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_what_a_client_owes_has_a_deadline(sent: bytes) -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("peername")[1]
        writer.write(sent)
        while True:  # until the client's connection has made room
            other_reader, other = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                assert (await ask(other_reader, other, GET))[0] == 200
                other.close()
                break
        await ended(reader)

    talk(conversation, limits=HttpLimits(head_s=0.1, body_s=0.1, receipt_s=0.1, idle_s=0.1))


def test_half_sent_requests_of_an_address_make_room_for_each_other() -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("peername")[1]
        writer.write(b"GET / HT")
        others = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for other in others:
            assert (await ask(*other, GET))[0] == 200
        await ended(reader)
        for _, other_writer in others:
            other_writer.close()

    talk(conversation, limits=HttpLimits(of_address=3))


def test_the_bodies_of_an_address_have_a_total() -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("peername")[1]
        head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"
        second = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head + bytes(90_000))
        second[1].write(head + bytes(90_000))
        rest = bytes(10_000)
        found = await asyncio.gather(ask(reader, writer, rest), ask(*second, rest))
        assert sorted(status for status, _ in found) == [200, 503]
        assert (await ask(*second, head + bytes(100_000)))[0] == 200
        assert (await ask(reader, writer, head + bytes(100_000)))[0] == 200
        second[1].close()

    talk(conversation)


def test_the_responses_of_an_address_have_a_total() -> None:
    """Small ones are sent while a client does not receive a large one."""

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("peername")[1]
        large = GET.replace(b"/ ", b"/large ")
        writer.write(large)
        await reader.readuntil(b"\r\n\r\n")
        second = await asyncio.open_connection("127.0.0.1", port)
        assert (await ask(*second, large))[0] == 503
        assert (await ask(*second, GET))[0] == 200
        await reader.readexactly(20_000_000)
        assert (await ask(*second, large))[0] == 200
        second[1].close()

    talk(conversation)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_above_the_limit_is_rejected(chunked: bool) -> None:
    """The client gets the answer, although it sends all of the body first."""

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = bytes(BODIES.of_request + 1)
        framing = b"Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(body)}".encode()
        writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + framing + b"\r\n\r\n")
        writer.write(f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n" if chunked else body)
        await writer.drain()
        assert (await ask(reader, writer, b""))[0] in (413, 503)
        await ended(reader)

    talk(conversation)


def test_a_stream_ends_with_its_client_and_with_the_server() -> None:
    gone: list[str] = []

    async def stream(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        gone.append((await receive())["type"])

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("peername")[1]
        writer.write(GET)
        await reader.readuntil(b"one")
        other_reader, other = await asyncio.open_connection("127.0.0.1", port)
        other.write(GET)
        await other_reader.readuntil(b"one")
        other.transport.abort()
        while not gone:
            await asyncio.sleep(0.01)  # the server notices the end in its own time

    talk(conversation, app=stream)
    assert gone == ["http.disconnect"] * 2


def test_a_request_is_answered_while_the_tiny_chunks_of_another_are_parsed() -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("peername")[1]
        writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(b"1\r\nx\r\n" * 20_000 + b"0\r\n\r\n")
        other = await asyncio.open_connection("127.0.0.1", port)
        long, short = asyncio.ensure_future(ask(reader, writer, b"")), asyncio.ensure_future(ask(*other, GET))
        await asyncio.wait((long, short), return_when=asyncio.FIRST_COMPLETED)
        assert (short.done(), long.done()) == (True, False)
        assert (await long)[0] == 200
        other[1].close()

    talk(conversation)
