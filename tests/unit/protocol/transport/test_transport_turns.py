"""The requests of very many connections are started in several turns of the event loop; timers run in between."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

from barnabas.core.telemetry import Metrics
from barnabas.protocol.transport.accepted_connection import TURN_OF_ALL, AcceptedConnection
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.protocol.transport.listener import Listener
from barnabas.protocol.transport.ports import Answer, Finished, Peer, RequestScheduling
from barnabas.protocol.wire.server_conn import ReceivedRequest
from tests.configs import transport_config

CONNECTIONS = 5 * TURN_OF_ALL // 2
BODY = bytes.fromhex("0012000000000001ffff")
FRAME = len(BODY).to_bytes(4, "big") + BODY


class FakeTransport:
    """A socket that accepts everything."""

    def get_extra_info(self, name: str) -> object:
        return ("127.0.0.1", 1) if name == "peername" else None

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...


class Started:
    """Keeps the connections whose requests were started, in order. Every request is finished at once."""

    def __init__(self) -> None:
        self.connections: list[int] = []

    def scheduling(self, request: ReceivedRequest) -> RequestScheduling:
        return RequestScheduling.PIPELINED

    def begin(self, request: ReceivedRequest, peer: Peer) -> Finished[Answer] | Coroutine[Any, Any, Answer]:
        self.connections.append(peer.connection_id)
        return Finished(None)

    def on_closed(self, peer: Peer) -> None: ...


async def connected(handler: Started, count: int) -> tuple[Listener, list[AcceptedConnection]]:
    """A listener and connections to it."""
    listener = Listener(ListenerEndpoint("PLAINTEXT", "127.0.0.1", 0), handler, transport_config(), Metrics())
    await listener.bind()
    connections = []
    for _ in range(count):
        connection = AcceptedConnection(listener)
        connection.connection_made(cast("Any", FakeTransport()))
        connections.append(connection)
    return listener, connections


def test_a_turn_of_the_loop_starts_a_limited_number_of_requests() -> None:
    async def main() -> None:
        handler = Started()
        listener, connections = await connected(handler, CONNECTIONS)
        for connection in connections:
            connection.data_received(FRAME)
        per_turn = [len(handler.connections)]
        while len(handler.connections) < CONNECTIONS:
            before = len(handler.connections)
            await asyncio.sleep(0)
            per_turn.append(len(handler.connections) - before)
        assert per_turn == [TURN_OF_ALL, TURN_OF_ALL, TURN_OF_ALL // 2]
        peers = [connection.peer.connection_id for connection in connections if connection.peer is not None]
        assert handler.connections == peers, "the requests are started in the order of their arrival"
        listener.stop()

    asyncio.run(main())


def test_a_connection_that_waits_for_the_next_turn_keeps_the_order_of_its_requests() -> None:
    async def main() -> None:
        handler = Started()
        listener, connections = await connected(handler, TURN_OF_ALL + 1)
        for connection in connections:
            connection.data_received(FRAME)
        connections[-1].data_received(FRAME)
        connections[0].data_received(FRAME)
        assert len(handler.connections) == TURN_OF_ALL
        await asyncio.sleep(0)
        first, last = connections[0].peer, connections[-1].peer
        assert first is not None
        assert last is not None
        assert handler.connections[TURN_OF_ALL:] == [last.connection_id, last.connection_id, first.connection_id]
        listener.stop()

    asyncio.run(main())


def test_a_single_connection_waits_for_one_turn_in_a_hundred_requests() -> None:
    async def main() -> None:
        handler = Started()
        listener, (connection,) = await connected(handler, 1)
        deferred = 0
        for _ in range(5 * TURN_OF_ALL):
            before = len(handler.connections)
            connection.data_received(FRAME)
            if len(handler.connections) == before:
                deferred += 1
                await asyncio.sleep(0)
        assert len(handler.connections) == 5 * TURN_OF_ALL
        assert deferred == 4
        listener.stop()

    asyncio.run(main())
