"""A Kafka client for tests, with one socket, that can break the protocol."""

from __future__ import annotations

import socket
from typing import Any

from barnabas.core.buffers import Buffer
from barnabas.protocol.wire.client_conn import ClientConnection
from barnabas.protocol.wire.schema import Request


class WireClient:
    """`call` sends one request and waits; `send` and `receive` pipeline; `raw` sends arbitrary bytes."""

    def __init__(
        self, address: str, *, timeout_s: float = 60.0, client_id: str | None = "wire-client", host: str = ""
    ) -> None:
        """`host` is the address that the connection comes from; on Linux, every address in 127.0.0.0/8 is possible."""
        to, _, port = address.partition(":")
        self.socket = socket.create_connection((to, int(port)), timeout=timeout_s, source_address=(host, 0))
        self._wire = ClientConnection(client_id)
        self._arrived: dict[int, Any] = {}
        self.order: list[int] = []

    def __enter__(self) -> WireClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, request: Request, version: int, *, expect_response: bool = True) -> int:
        correlation_id, parts = self._wire.send(request, version, expect_response=expect_response)
        self.raw(b"".join(bytes(part) for part in parts))
        return correlation_id

    def frame(self, request: Request, version: int) -> tuple[int, bytes]:
        """The bytes of a request, so that several can be sent at once."""
        correlation_id, parts = self._wire.send(request, version)
        return correlation_id, b"".join(bytes(part) for part in parts)

    def raw(self, data: Buffer) -> None:
        self.socket.sendall(data)

    def receive(self, correlation_id: int) -> Any:
        while correlation_id not in self._arrived:
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the broker closed the connection")
            for number, response in self._wire.feed(data):
                self._arrived[number] = response
                self.order.append(number)
        return self._arrived.pop(correlation_id)

    def call(self, request: Request, version: int) -> Any:
        return self.receive(self.send(request, version))

    def closed_by_peer(self) -> bool:
        """Wait until the broker closes the connection."""
        try:
            while True:
                if not self.socket.recv(1 << 16):
                    return True
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False
