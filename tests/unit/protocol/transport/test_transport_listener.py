"""A listener binds its port before it serves, and refuses connections until then."""

from __future__ import annotations

import asyncio
import socket

import pytest

from barnabas.core.telemetry import Metrics
from barnabas.protocol.transport.accepted_connection import AcceptedConnection
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.protocol.transport.listener import Listener
from barnabas.protocol.transport.ports import Answer
from barnabas.protocol.wire.server_conn import ReceivedRequest
from tests.configs import transport_config
from tests.unit.protocol.transport.test_transport_node_client import Scripted


def test_bound_listener_refuses_connections_until_it_serves() -> None:
    async def main() -> None:
        listener = Listener(ListenerEndpoint("PLAINTEXT", "127.0.0.1", 0), Scripted(), transport_config(), Metrics())
        endpoint = await listener.bind()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(endpoint.host, endpoint.port)
        with socket.socket() as other, pytest.raises(OSError, match="already in use"):
            other.bind((endpoint.host, endpoint.port))
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(listener.serve())
            await asyncio.sleep(0)
            _, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
            writer.close()
            second = Listener(endpoint, Scripted(), transport_config(), Metrics())
            with pytest.raises(OSError, match="already in use"):
                await second.bind()
            listener.stop()
            await serving

    asyncio.run(main())


class Waiting(Scripted):
    """Answers no request before `go_on`, and lets the connection start one request at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()
        self.started = 0

    async def _handle(self, request: ReceivedRequest) -> Answer:
        self.started += 1
        await self.go_on.wait()
        return None


def test_a_connection_is_not_read_while_a_megabyte_waits_behind_a_request() -> None:
    async def main() -> None:
        handler = Waiting()
        listener = Listener(ListenerEndpoint("PLAINTEXT", "127.0.0.1", 0), handler, transport_config(), Metrics())
        endpoint = await listener.bind()
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(listener.serve())
            await asyncio.sleep(0)
            _, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
            body = bytes.fromhex("0012000000000001ffff") + bytes(600_000)
            frame = len(body).to_bytes(4, "big") + body
            for _ in range(40):
                writer.write(frame)
            connection = await only_connection(listener)
            while connection._reading:
                await asyncio.sleep(0)
            assert handler.started == 1
            assert len(connection._waiting) == 2
            handler.go_on.set()
            await writer.drain()
            while handler.started < 40:
                await asyncio.sleep(0)
            writer.close()
            listener.stop()
            await serving

    asyncio.run(main())


async def only_connection(listener: Listener) -> AcceptedConnection:
    while not listener._connections:
        await asyncio.sleep(0)
    (connection,) = listener._connections
    return connection


class Receiving(Scripted):
    """Keeps a copy of each request's bytes, and answers none."""

    def __init__(self) -> None:
        super().__init__()
        self.received: list[bytes] = []

    async def _handle(self, request: ReceivedRequest) -> Answer:
        self.received.append(bytes(request.frame))
        return None


def test_a_connection_that_ends_in_the_middle_of_a_frame_leaves_its_memory_to_the_next() -> None:
    async def main() -> None:
        handler = Receiving()
        listener = Listener(ListenerEndpoint("PLAINTEXT", "127.0.0.1", 0), handler, transport_config(), Metrics())
        endpoint = await listener.bind()
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(listener.serve())
            await asyncio.sleep(0)
            bodies = [bytes.fromhex("0012000000000001ffff") + bytes([n]) * 600_000 for n in range(3)]
            frames = [len(body).to_bytes(4, "big") + body for body in bodies]
            _, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
            writer.write(frames[0])
            while len(handler.received) < 1:
                await asyncio.sleep(0)
            writer.write(frames[1][:300_000])
            connection = await only_connection(listener)
            while not connection._frames.in_frame or connection._frames._filled < 299_996:
                await asyncio.sleep(0)
            writer.close()
            while listener._connections:
                await asyncio.sleep(0)
            _, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
            writer.write(frames[2])
            while len(handler.received) < 2:
                await asyncio.sleep(0)
            assert handler.received == [bodies[0], bodies[2]]
            assert len(listener.memory._reused) == 1
            writer.close()
            listener.stop()
            await serving

    asyncio.run(main())
