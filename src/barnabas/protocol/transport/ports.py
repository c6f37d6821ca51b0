"""Port: the request handler that a listener passes requests to, and the meter that counts what clients use.

The transport and the handlers of Produce and Fetch add to the numbers of a `Usage` directly, without a call: they do so
for every request.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Sequence
from enum import Enum, auto
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct, field

from barnabas.core.buffers import Buffer
from barnabas.core.errors import BarnabasError
from barnabas.core.ids import TopicPartition
from barnabas.core.telemetry import Counter
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


class Named(Protocol):
    """A partition of a broker."""

    @property
    def name(self) -> TopicPartition: ...


class PartitionUsage:
    """What one connection has written to one partition, and read from the partition."""

    __slots__ = ("bytes_in", "bytes_out", "producer_id", "records_in")

    def __init__(self, producer_id: int = -1) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.records_in = 0
        self.producer_id = producer_id
        """The producer id of a recent batch; -1 if the producer is not idempotent, or nothing was written."""


def _nothing(peer: Peer) -> None:
    """Does nothing."""


class Usage:
    """What the requests of one connection have used since the listener's `ClientMeter` last counted it."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "client_id",
        "due",
        "on_partition",
        "partitions",
        "received",
        "requests",
        "seconds",
        "sent",
    )

    def __init__(
        self,
        on_partition: Callable[[Peer], None] = _nothing,
        received: Counter | None = None,
        sent: Counter | None = None,
    ) -> None:
        """`on_partition` is called with the connection's peer before a partition is added to `partitions`; it may count
        and clear all of them.
        `received` and `sent` count the bytes of a whole listener, and get those of this connection when these are
        counted."""
        self.client_id: str | None = None
        """The client id of the newest request."""
        self.bytes_in = 0
        self.bytes_out = 0
        self.requests = 0
        self.seconds = 0.0
        """For how long the requests have held the event loop: what `turns.py` charges for them, and their later
        steps."""
        self.partitions: dict[Named, PartitionUsage] = {}
        self.due = math.inf
        """From this time of the event loop's clock on, `ClientMeter.on_due` must be called before numbers are added."""
        self.on_partition = on_partition
        self.received = received or Counter()
        self.sent = sent or Counter()

    def start(self, peer: Peer, partition: Named, producer_id: int = -1) -> PartitionUsage:
        """Begin to count what the peer writes to a partition or reads from it. `peer.usage` is this object."""
        self.on_partition(peer)
        found = self.partitions[partition] = PartitionUsage(producer_id)
        return found


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
    usage: Usage = field(default_factory=Usage)
    """What the requests of this connection have used."""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class ClientMeter(Protocol):
    """Counts what the clients of a node use. Times are those of the event loop's clock."""

    def new_usage(self, received: Counter, sent: Counter) -> Usage:
        """The numbers of a new connection of the listener whose bytes these counters count."""
        ...

    def on_due(self, peer: Peer, now: float) -> None:
        """The connection uses something, and its `usage.due` is over."""
        ...

    def on_client_id(self, peer: Peer, client_id: str | None, now: float) -> None:
        """The requests of the connection have another client id from now on."""
        ...

    def on_closed(self, peer: Peer, now: float) -> None:
        """The connection has ended."""
        ...


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
