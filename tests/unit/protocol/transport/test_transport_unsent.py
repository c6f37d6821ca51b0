"""Responses that clients do not receive: all of their bytes are counted, and they have a total."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

from barnabas.core.telemetry import Metrics
from barnabas.protocol.transport.accepted_connection import AcceptedConnection
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.protocol.transport.limits import UNSENT_COUNTED_BYTES
from barnabas.protocol.transport.listener import Listener
from barnabas.protocol.transport.ports import Answer, Finished, Peer
from barnabas.protocol.wire.server_conn import ReceivedRequest
from tests.configs import transport_config
from tests.unit.protocol.transport.test_transport_turns import FRAME, FakeTransport, Started

ANSWER = 400_000


class Large(Started):
    """Every response is large."""

    def begin(self, request: ReceivedRequest, peer: Peer) -> Finished[Answer] | Coroutine[Any, Any, Answer]:
        super().begin(request, peer)
        return Finished([bytes(ANSWER)])


class FullTransport(FakeTransport):
    """A socket whose client receives only what `receive` says."""

    def __init__(self) -> None:
        self.protocol: Any = None
        self.unsent = 0
        self.is_aborted = False
        self._is_paused = False

    def set_write_buffer_limits(self, high: int) -> None:
        self._high = high

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def writelines(self, buffers: list[bytes]) -> None:
        self.unsent += sum(map(len, buffers))
        if self.unsent > self._high and not self._is_paused:
            self._is_paused = True
            self.protocol.pause_writing()

    async def ask(self, count: int) -> None:
        """Send requests, and let the loop start them."""
        self.protocol.data_received(FRAME * count)
        await self.turns()

    async def turns(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def receive(self, count: int) -> None:
        self.unsent -= count
        if self._is_paused and self.unsent <= self._high // 4:
            self._is_paused = False
            self.protocol.resume_writing()
        await self.turns()

    def abort(self) -> None:
        self.is_aborted = True
        self.unsent = 0
        self.protocol.connection_lost(None)


def connect(listener: Listener) -> FullTransport:
    transport = FullTransport()
    transport.protocol = AcceptedConnection(listener)
    transport.protocol.connection_made(cast("Any", transport))
    return transport


def serving(check: Any) -> None:
    async def run() -> None:
        listener = Listener(
            ListenerEndpoint("PLAINTEXT", "127.0.0.1", 0),
            Large(),
            transport_config(unsent_bytes_max=2_000_000),
            Metrics(),
        )
        await listener.bind()
        await check(listener)
        listener.stop()

    asyncio.run(run())


def test_every_unsent_byte_is_counted_until_it_is_received() -> None:
    async def check(listener: Listener) -> None:
        first, second = connect(listener), connect(listener)
        for transport in (first, second):
            await transport.ask(2)
        assert listener.budget.unsent == first.unsent + second.unsent == 4 * ANSWER
        await first.receive(first.unsent)
        assert listener.budget.unsent == second.unsent
        second.protocol.connection_lost(None)
        assert listener.budget.unsent == 0

    serving(check)


def test_a_connection_that_is_behind_starts_no_request() -> None:
    async def check(listener: Listener) -> None:
        transport = connect(listener)
        await transport.ask(5)
        started = cast("Large", listener.handler).connections
        assert len(started) == 3  # 1 MiB is exceeded by the third response
        await transport.receive(transport.unsent - UNSENT_COUNTED_BYTES)
        assert len(started) == 3
        await transport.receive(transport.unsent)
        assert len(started) == 5

    serving(check)


def test_above_the_total_the_client_that_receives_nothing_is_disconnected() -> None:
    async def check(listener: Listener) -> None:
        reading, silent, last = connect(listener), connect(listener), connect(listener)
        for transport in (reading, silent):
            await transport.ask(2)
        await reading.receive(ANSWER)  # slowly, so that nobody is notified
        await last.ask(2)
        assert [transport.is_aborted for transport in (reading, silent, last)] == [False, False, False]
        await last.ask(1)
        assert [transport.is_aborted for transport in (reading, silent, last)] == [False, True, False]
        assert listener.budget.unsent == reading.unsent + last.unsent

    serving(check)
