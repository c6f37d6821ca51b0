"""A connection whose client is delayed by a quota: its response is sent, and its next request waits.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any, cast

from barnabas.core.telemetry import Metrics
from barnabas.protocol.transport.accepted_connection import AcceptedConnection
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.protocol.transport.listener import Listener
from barnabas.protocol.transport.ports import Answer, Finished, Peer
from barnabas.protocol.wire.server_conn import ReceivedRequest
from barnabas.testing.sim.loop import SimLoop
from tests.configs import transport_config
from tests.unit.protocol.transport.test_transport_turns import FRAME, FakeTransport, Started, endless_turns


class SlowedDown(Started):
    """Delays the client after each of the first requests by the next of `delays`, in seconds."""

    def __init__(self, *delays: float) -> None:
        super().__init__()
        self.delays = list(delays)
        self.started_at: list[float] = []

    def begin(self, request: ReceivedRequest, peer: Peer) -> Finished[Answer]:
        now = asyncio.get_running_loop().time()
        self.started_at.append(now)
        if self.delays:
            peer.muted_until = now + self.delays.pop(0)
        return Finished([b"answer"])


class ReadTransport(FakeTransport):
    """Records what is written, and whether the socket is read."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_read = True

    def writelines(self, buffers: list[bytes]) -> None:
        self.written += [bytes(part) for part in buffers]

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


def connected_to(handler: SlowedDown) -> AcceptedConnection:
    listener = Listener(
        ListenerEndpoint("PLAINTEXT", "127.0.0.1", 0), handler, transport_config(), Metrics(), turns=endless_turns()
    )
    listener.now = asyncio.get_running_loop().time
    connection = AcceptedConnection(listener)
    connection.connection_made(cast("Any", ReadTransport()))
    return connection


def in_virtual_time(main: Coroutine[Any, Any, None]) -> None:
    loop = SimLoop(random.Random(1))
    try:
        loop.run_until_complete(main)
    finally:
        loop.close()


def test_requests_wait_until_the_delay_is_over() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        handler = SlowedDown(2.0, 0.0, 3.0)
        connection = connected_to(handler)
        transport = cast("Any", connection._transport)
        began = loop.time()
        connection.data_received(FRAME * 4)
        assert transport.written, "the response of the first request is not delayed"
        assert not transport.is_read
        assert not connection.idle, "a client that is delayed is not closed as an idle one"
        await asyncio.sleep(2.5)
        assert [at - began for at in handler.started_at] == [0.0, 2.0, 2.0]
        assert not transport.is_read
        await asyncio.sleep(10.0)
        assert [at - began for at in handler.started_at] == [0.0, 2.0, 2.0, 5.0]
        assert transport.is_read

    in_virtual_time(main())


def test_a_delayed_connection_can_be_closed() -> None:
    async def main() -> None:
        handler = SlowedDown(2.0)
        connection = connected_to(handler)
        connection.data_received(FRAME * 2)
        connection.connection_lost(None)
        await asyncio.sleep(5.0)
        assert len(handler.started_at) == 1

    in_virtual_time(main())
