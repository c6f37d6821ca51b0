"""New connections of a listener wait, or are refused, while the limits of connections do not admit them.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any, cast

import pytest

from barnabas.core.telemetry import Metrics
from barnabas.protocol.transport import admission
from barnabas.protocol.transport.accepted_connection import AcceptedConnection
from barnabas.protocol.transport.connection_quotas import AddressRates, ConnectionQuotas
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.protocol.transport.listener import Listener
from barnabas.testing.sim.loop import SimLoop
from tests.configs import connection_limits, transport_config
from tests.unit.protocol.transport.test_transport_turns import FRAME, FakeTransport, Started, endless_turns


class Client(FakeTransport):
    """A client that connects from an address."""

    def __init__(self, listener: Listener, host: str = "10.0.0.1") -> None:
        self.host = host
        self.is_read = True
        self.aborted = False
        self.closed = False
        self.connection = AcceptedConnection(listener)
        self.connection.connection_made(cast("Any", self))

    def get_extra_info(self, name: str) -> Any:
        return (self.host, 1) if name == "peername" else None

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def is_closing(self) -> bool:
        return self.aborted or self.closed

    def abort(self) -> None:
        self.aborted = True
        asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)

    def close(self) -> None:
        self.closed = True
        asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)

    def get_write_buffer_size(self) -> int:
        return 0

    @property
    def state(self) -> str:
        if self.aborted or self.closed:
            return "closed"
        return "admitted" if self.connection.peer is not None else "waiting"


def listener_with(handler: Started | None = None, **limits: Any) -> tuple[Listener, Metrics]:
    metrics = Metrics()
    quotas = ConnectionQuotas(connection_limits(**limits))
    endpoint = ListenerEndpoint("PLAINTEXT", "127.0.0.1", 0)
    listener = Listener(
        endpoint, handler or Started(), transport_config(), metrics, turns=endless_turns(), quotas=quotas
    )
    listener.now = asyncio.get_running_loop().time
    return listener, metrics


def in_virtual_time(main: Coroutine[Any, Any, None]) -> None:
    loop = SimLoop(random.Random(1))
    try:
        loop.run_until_complete(main)
    finally:
        loop.close()


def counted(metrics: Metrics, name: str) -> float:
    return metrics.counter(f"barnabas_net_{name}_total", listener="PLAINTEXT").value


def test_connections_wait_for_a_slot_in_their_order() -> None:
    async def main() -> None:
        listener, metrics = listener_with(max_connections=2)
        clients = [Client(listener) for _ in range(4)]
        assert [client.state for client in clients] == ["admitted", "admitted", "waiting", "waiting"]
        assert [client.is_read for client in clients] == [True, True, False, False]
        clients[0].close()
        await asyncio.sleep(0)
        assert [client.state for client in clients] == ["closed", "admitted", "admitted", "waiting"]
        assert [client.is_read for client in clients[1:]] == [True, True, False]
        clients[2].close()
        await asyncio.sleep(0)
        assert clients[3].state == "admitted"
        assert (counted(metrics, "accepted_connections"), counted(metrics, "delayed_connections")) == (4, 2)

    in_virtual_time(main())


def test_bytes_of_a_connection_that_waits_are_handled_when_it_is_admitted() -> None:
    async def main() -> None:
        handler = Started()
        listener, _ = listener_with(handler, max_connections=1)
        first, second = Client(listener), Client(listener)
        second.connection.data_received(FRAME)  # uvloop may read once before the connection is held
        assert handler.connections == []
        first.close()
        await asyncio.sleep(0)
        assert len(handler.connections) == 1

    in_virtual_time(main())


def test_a_connection_that_waits_and_is_closed_leaves_its_place() -> None:
    async def main() -> None:
        listener, _ = listener_with(max_connections=1)
        clients = [Client(listener) for _ in range(3)]
        clients[1].close()
        clients[0].close()
        await asyncio.sleep(0)
        assert [client.state for client in clients] == ["closed", "closed", "admitted"]
        assert listener.quotas.unadmitted == 0

    in_virtual_time(main())


def test_a_higher_limit_admits_connections_that_wait() -> None:
    async def main() -> None:
        listener, _ = listener_with(max_connections=1)
        clients = [Client(listener) for _ in range(3)]
        listener.quotas.set_limits(connection_limits(max_connections=2))
        assert [client.state for client in clients] == ["admitted", "admitted", "waiting"]

    in_virtual_time(main())


def test_connections_above_the_rate_are_admitted_one_after_the_other() -> None:
    async def main() -> None:
        listener, metrics = listener_with(max_connection_creation_rate=2)
        clients = [Client(listener) for _ in range(24)]
        # The rate covers ten seconds at least, so twenty are admitted at once, and then about two in a second.
        admitted = [sum(client.state == "admitted" for client in clients)]
        for _ in range(4):
            await asyncio.sleep(1.01)
            admitted.append(sum(client.state == "admitted" for client in clients))
        assert admitted == [20, 22, 23, 24, 24]
        assert counted(metrics, "connection_delay_seconds") > 4

    in_virtual_time(main())


def test_connections_above_the_rate_of_their_address_are_closed_after_a_delay() -> None:
    async def main() -> None:
        listener, metrics = listener_with()
        listener.quotas.set_address_rates(AddressRates({"10.0.0.1": 1}))
        clients = [Client(listener) for _ in range(12)]
        other = Client(listener, "10.0.0.2")
        assert [client.state for client in clients] == ["admitted"] * 10 + ["waiting"] * 2
        assert not clients[10].is_read
        assert other.state == "admitted"
        assert listener.quotas.unadmitted == 2
        await asyncio.sleep(0.9)
        assert clients[10].state == "waiting"
        await asyncio.sleep(0.2)
        assert [client.state for client in clients[10:]] == ["closed", "closed"]
        assert listener.quotas.unadmitted == 0
        assert counted(metrics, "throttled_connections") == 2
        assert listener.quotas.open == 11

    in_virtual_time(main())


def test_the_number_of_connections_that_wait_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "WAITING_MAX", 3)

    async def main() -> None:
        listener, metrics = listener_with(max_connections=0)
        clients = [Client(listener) for _ in range(5)]
        assert [client.state for client in clients] == ["waiting"] * 3 + ["closed"] * 2
        assert counted(metrics, "refused_connections") == 2

    in_virtual_time(main())


def test_connections_that_wait_are_closed_with_the_listener() -> None:
    async def main() -> None:
        listener, _ = listener_with(max_connections=1)
        listener.quotas.set_address_rates(AddressRates({"10.0.0.2": 1}))
        clients = [Client(listener) for _ in range(3)]
        listener._close_all()
        await asyncio.sleep(0)
        assert [client.state for client in clients] == ["closed"] * 3
        assert (listener.quotas.open, listener.quotas.unadmitted) == (0, 0)

    in_virtual_time(main())


def test_an_address_of_a_socket_for_both_families_is_an_address_of_ipv4() -> None:
    async def main() -> None:
        listener, _ = listener_with(max_connections_per_ip=1)
        first, second = Client(listener, "::ffff:10.0.0.1"), Client(listener, "10.0.0.1")
        assert (first.state, second.state) == ("admitted", "closed")
        assert first.connection.peer is not None
        assert first.connection.peer.host == "10.0.0.1"

    in_virtual_time(main())
