"""Port: what a connection needs from whoever answers its requests."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from enum import Enum, auto
from typing import Any, Protocol

from msgspec import Struct

from barnabas.core.buffers import Buffer
from barnabas.core.errors import BarnabasError
from barnabas.protocol.security.principals import ANONYMOUS, Principal
from barnabas.protocol.wire.server_conn import ReceivedRequest

Answer = Sequence[Buffer] | None
"""The response frame in pieces, sent without joining them; None when the request wants no answer (acks=0)."""


class CloseConnectionError(BarnabasError):
    """Raised by a handler when the only answer is to hang up; the message goes to the log."""


class RequestScheduling(Enum):
    """When a connection may start the request that follows this one."""

    SEQUENTIAL = auto()
    """After this request's response: what Kafka does for every request of a connection."""

    PIPELINED = auto()
    """As soon as this request waits: its handler fixes the order before its first await (Produce)."""

    CANCELLABLE = auto()
    """As SEQUENTIAL, and the request is cancelled when the client disconnects: the request only reads (Fetch)."""


class Peer(Struct):
    """The other end of one connection, as handlers see it."""

    connection_id: int
    listener: str
    security_protocol: str
    host: str
    port: int
    local_port: int
    principal: Principal = ANONYMOUS
    software_name: str = ""
    software_version: str = ""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class RequestHandler(Protocol):
    """Answers requests. `handle` runs synchronously up to its first await, before the next request is looked at."""

    def scheduling(self, request: ReceivedRequest) -> RequestScheduling: ...

    def handle(self, request: ReceivedRequest, peer: Peer) -> Coroutine[Any, Any, Answer]: ...

    def on_closed(self, peer: Peer) -> None:
        """The connection has ended; what was remembered for it can be forgotten."""
        ...
