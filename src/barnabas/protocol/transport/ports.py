"""Port: the request handler that a listener passes requests to."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from enum import Enum, auto
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from barnabas.core.buffers import Buffer
from barnabas.core.errors import BarnabasError
from barnabas.protocol.security.principals import ANONYMOUS, KafkaPrincipal
from barnabas.protocol.wire.server_conn import ReceivedRequest

Answer = Sequence[Buffer] | None
"""The response frame, as buffers that are sent without being joined; None if there is no response (acks=0)."""


T = TypeVar("T")


class Finished(Generic[T]):
    """A coroutine, or a request, ended without suspending; `value` is its result."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value


class CloseConnectionError(BarnabasError):
    """Raised by a handler to close the connection without a response. The message is logged."""


class RequestScheduling(Enum):
    """When a connection may start the request that follows this one."""

    SEQUENTIAL = auto()
    """After this request's response: what Kafka does for every request of a connection."""

    PIPELINED = auto()
    """As soon as this request waits: its handler fixes the order before its first await (Produce)."""

    CANCELLABLE = auto()
    """As SEQUENTIAL, and the request is cancelled when the client disconnects: the request only reads (Fetch)."""


class Peer(Struct):
    """The other end of an accepted connection, for request handlers."""

    connection_id: int
    listener: str
    security_protocol: str
    host: str
    port: int
    principal: KafkaPrincipal = ANONYMOUS
    """The authenticated identity. On a listener with authentication no request reaches a handler before this is set,
    except ApiVersions."""
    token_authenticated: bool = False
    """True if the client has authenticated with a delegation token."""
    software_name: str = ""
    software_version: str = ""
    """The client's software, as its ApiVersions request has it (KIP-511); empty if unknown."""
    muted_until: float = 0.0
    """Set by the request handler: the connection reads no request before this time of the event loop's clock, once it
    has sent the response (quotas, KIP-219)."""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class RequestHandler(Protocol):
    """Handles requests."""

    def scheduling(self, request: ReceivedRequest) -> RequestScheduling: ...

    def begin(self, request: ReceivedRequest, peer: Peer) -> Finished[Answer] | Coroutine[Any, Any, Answer]:
        """Handle the request up to the first suspension, before the connection starts its next request. Returns the
        answer, or a coroutine that runs the rest. Raises CloseConnectionError if the request cannot be answered."""
        ...

    def on_closed(self, peer: Peer) -> None:
        """The connection was closed: the handler can drop the state that it keeps for the connection."""
        ...
