"""Value: what a handler may know of a request besides its message."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from barnabas.core.errors import BarnabasError
from barnabas.protocol.security.principals import Principal


class HangUpError(BarnabasError):
    """The only answer is to close the connection, as Kafka does; the message goes to the log."""


class Client(Protocol):
    """The connection a request came over; the same object for all its requests, so handlers may remember things in
    it.
    """

    connection_id: int
    listener: str
    security_protocol: str
    host: str
    local_port: int
    principal: Principal
    software_name: str
    software_version: str


class RequestContext(Struct):
    """One request. Satisfies the coordinators' `RequestContext` port."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    client: Client
    now_ms: int
    received: float
    """Clock of the running loop; deadlines are computed from here."""

    @property
    def client_host(self) -> str:
        return "/" + self.client.host

    @property
    def connection_id(self) -> int:
        """Connections are numbered as they are opened."""
        return self.client.connection_id

    def deadline(self, timeout_ms: int) -> float:
        """A time of the loop's clock, `timeout_ms` after the request came in."""
        return self.received + max(timeout_ms, 0) / 1000
