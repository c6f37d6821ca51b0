"""A listener binds its port before it serves, and refuses connections until then."""

from __future__ import annotations

import asyncio
import socket

import pytest

from barnabas.core.telemetry import Metrics
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.protocol.transport.listener import Listener
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
