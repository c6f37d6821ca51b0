"""The connections of the console: half-sent requests have deadlines, and make room."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn

from barnabas.console.web.guarded_protocol import guarded_protocol
from barnabas.protocol.transport.http_slots import HttpSlots

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def application(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def serving(conversation: Callable[[int], Awaitable[None]], slots: HttpSlots, deadline_s: float = 30.0) -> None:
    async def main() -> None:
        protocol = guarded_protocol(slots, head_s=deadline_s, body_s=deadline_s)
        config = uvicorn.Config(application, http=protocol, ws="none", lifespan="off", log_config=None, port=0)
        server = uvicorn.Server(config)
        config.load()
        server.lifespan = config.lifespan_class(config)
        await server.startup()
        try:
            async with asyncio.timeout(20):
                await conversation(server.servers[0].sockets[0].getsockname()[1])
        finally:
            await server.shutdown()
        assert len(slots) == 0

    asyncio.run(main())


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HT", b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbo"]
)
def test_what_a_client_owes_has_a_deadline(sent: bytes) -> None:
    async def conversation(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET)
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        half_reader, half_writer = await asyncio.open_connection("127.0.0.1", port)
        half_writer.write(sent)
        with contextlib.suppress(ConnectionError):
            assert await half_reader.read() == b""
        for each in (writer, half_writer):
            each.close()

    serving(conversation, HttpSlots(10, 10), deadline_s=0.1)


def test_half_sent_requests_make_room_for_whole_ones() -> None:
    async def conversation(port: int) -> None:
        half = [await asyncio.open_connection("127.0.0.1", port) for _ in range(10)]
        for _, writer in half:
            writer.write(b"GET / HT")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET)
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        for _, each in [*half, (reader, writer)]:
            each.close()

    serving(conversation, HttpSlots(20, 3))
