"""The memory of requests is limited by queued.max.request.bytes, over all connections of a node."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

from barnabas.core.telemetry import Metrics
from barnabas.protocol.transport.accepted_connection import AcceptedConnection
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.protocol.transport.limits import SCANT_BYTES
from barnabas.protocol.transport.listener import Listener
from barnabas.protocol.transport.ports import Answer, Finished, Peer, RequestScheduling
from barnabas.protocol.wire.server_conn import ReceivedRequest
from tests.configs import transport_config
from tests.unit.protocol.transport.test_transport_muting import ReadTransport
from tests.unit.protocol.transport.test_transport_turns import endless_turns

LIMIT = 1_000_000


class Slow:
    """Handles requests until `go_on` is set."""

    def __init__(self, scheduling: RequestScheduling = RequestScheduling.SEQUENTIAL) -> None:
        self.go_on = asyncio.Event()
        self.started = 0
        self._scheduling = scheduling

    def scheduling(self, request: ReceivedRequest) -> RequestScheduling:
        return self._scheduling

    def begin(self, request: ReceivedRequest, peer: Peer) -> Finished[Answer] | Coroutine[Any, Any, Answer]:
        self.started += 1
        return self._wait()

    async def _wait(self) -> Answer:
        await self.go_on.wait()
        return [b"answer"]

    def on_closed(self, peer: Peer) -> None: ...


class Connected:
    """A connection of a listener with a limit of memory."""

    def __init__(self, listener: Listener) -> None:
        self.transport = ReadTransport()
        self.connection = AcceptedConnection(listener)
        self.connection.connection_made(cast("Any", self.transport))

    def send(self, data: bytes) -> int:
        """Pass bytes as far as the connection is read. Returns how many were read."""
        read = 0
        while read < len(data) and self.transport.is_read:
            target = self.connection.get_buffer(-1)
            count = min(len(target), len(data) - read)
            target[:count] = data[read : read + count]
            read += count
            self.connection.buffer_updated(count)
        return read


def frame(size: int) -> bytes:
    body = bytes.fromhex("0012000000000001ffff") + bytes(size - 10)
    return len(body).to_bytes(4, "big") + body


def serving(main: Any, handler: Slow | None = None, limit: int = LIMIT) -> None:
    async def run() -> None:
        slow = handler or Slow()
        endpoint = ListenerEndpoint("PLAINTEXT", "127.0.0.1", 0)
        listener = Listener(
            endpoint, slow, transport_config(queued_max_request_bytes=limit), Metrics(), turns=endless_turns()
        )
        listener.now = asyncio.get_running_loop().time
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            listener._tasks = tasks
            await main(listener, slow)
            slow.go_on.set()

    asyncio.run(run())


def test_requests_that_are_handled_count_until_they_are_answered() -> None:
    async def main(listener: Listener, handler: Slow) -> None:
        first, second = Connected(listener), Connected(listener)
        first.send(frame(700_000))
        assert (handler.started, listener.budget.bytes) == (1, 700_000)
        second.send(frame(500_000))
        assert (handler.started, listener.budget.bytes) == (2, 1_200_000)
        third = Connected(listener)
        assert third.send(frame(600_000)) <= SCANT_BYTES, "the memory is exhausted"
        assert not third.transport.is_read
        handler.go_on.set()
        while listener.budget.bytes:
            await asyncio.sleep(0)
        assert third.transport.is_read
        assert [len(one.transport.written) for one in (first, second)] == [1, 1]

    serving(main)


def test_a_large_request_that_has_begun_is_received_although_the_memory_is_exhausted() -> None:
    async def main(listener: Listener, handler: Slow) -> None:
        first, second = Connected(listener), Connected(listener)
        data = frame(800_000)
        assert first.send(data[:100_000]) == 100_000
        assert listener.budget.bytes == 800_000, "the whole request is counted when it begins"
        second.send(frame(900_000)[:100_000])
        assert listener.budget.is_exhausted
        assert first.send(data[100_000:]) == 700_004
        assert handler.started == 1

    serving(main)


def test_the_memory_of_many_connections_is_limited() -> None:
    async def main(listener: Listener, handler: Slow) -> None:
        connections = [Connected(listener) for _ in range(1_000)]
        data = frame(400_000)
        read = sum(one.send(data) for one in connections)
        assert handler.started == 3
        assert listener.budget.bytes == 1_200_000
        assert read <= 3 * len(data) + 1_000 * SCANT_BYTES

    serving(main)


def test_a_connection_that_ends_gives_its_memory_back() -> None:
    async def main(listener: Listener, handler: Slow) -> None:
        first, second, waiting = Connected(listener), Connected(listener), Connected(listener)
        first.send(frame(600_000)[:300_000])
        second.send(frame(600_000))
        waiting.send(frame(1_000))
        assert not waiting.transport.is_read
        first.connection.connection_lost(None)
        assert listener.budget.bytes == 600_000 + 1_000 * (handler.started - 1)
        assert waiting.transport.is_read
        await asyncio.sleep(0)  # the task of the second request starts
        second.connection.connection_lost(None)
        while listener.budget.bytes > 1_000:
            await asyncio.sleep(0)
        waiting.connection.connection_lost(None)
        while listener.budget.bytes:
            await asyncio.sleep(0)

    serving(main, Slow(RequestScheduling.CANCELLABLE))


def test_the_number_of_waiting_requests_is_limited() -> None:
    async def main() -> None:
        handler = Slow()
        endpoint = ListenerEndpoint("PLAINTEXT", "127.0.0.1", 0)
        listener = Listener(
            endpoint, handler, transport_config(queued_max_requests=10), Metrics(), turns=endless_turns()
        )
        listener.now = asyncio.get_running_loop().time
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            listener._tasks = tasks
            connections = [Connected(listener) for _ in range(20)]
            for connection in connections:
                connection.send(frame(20))
                connection.send(frame(20))
            # One request of each connection is handled. Ten more wait, and connections with a waiting one are not read.
            assert handler.started == 20
            assert [one.transport.is_read for one in connections] == [True] * 9 + [False] * 11
            handler.go_on.set()
            while not all(one.transport.is_read for one in connections):
                await asyncio.sleep(0)
            assert listener.budget.requests == 0

    asyncio.run(main())
