"""Shell: listening sockets, and the servers that accept connections on them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from barnabas.testing.sim.process import Process

if TYPE_CHECKING:
    from barnabas.testing.sim.network.network import SimNetwork


class SimSocket:
    """The part of the socket interface that a listener uses."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    def getsockname(self) -> tuple[str, int]:
        return self.host, self.port

    def close(self) -> None:
        """Does nothing: the server holds the port until the server is closed."""


class SimServer(asyncio.AbstractServer):
    """Accepts connections for one port."""

    def __init__(
        self, network: SimNetwork, factory: Callable[[], Any], sock: SimSocket, process: Process | None
    ) -> None:
        self.factory = factory
        self.socket = sock
        self.process = process
        self.serving = False
        self._network = network

    async def start_serving(self) -> None:
        self.serving = True

    def is_serving(self) -> bool:
        return self.serving

    def close(self) -> None:
        self.serving = False
        self._network.forget(self)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop

    async def serve_forever(self) -> None:
        raise NotImplementedError

    async def wait_closed(self) -> None:
        """Returns at once: a simulated server closes immediately."""
