"""Value: where an outgoing connection leads, how it is opened and bounded, and which exceptions its user gets."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from msgspec import Struct

from barnabas.core.backoff import Backoff
from barnabas.core.errors import KafkaError
from barnabas.protocol.security.config import PLAINTEXT, SecurityConfig
from barnabas.protocol.wire.frame_buffer import ReceiveMemory

RECONNECT_BACKOFF: Final = Backoff(50, 1_000)


class Destination(NamedTuple):
    """A node to connect to. Requests with different purposes use separate connections to the node.

    Responses come in the order of the requests, so a request that the node may answer late (a long-polling Fetch)
    delays every request behind it on the same connection. Such requests get a purpose of their own.
    """

    host: str
    port: int
    purpose: str = ""
    broker_id: int = -1
    """-1 if unknown: a bootstrap server, or a node known by its address only."""

    def __str__(self) -> str:
        if self.broker_id < 0:
            return f"{self.host}:{self.port}"
        return f"broker {self.broker_id} at {self.host}:{self.port}"


class ConnectionConfig(Struct, frozen=True):
    """The settings of the outgoing connections of one client or node; Kafka's names where Kafka has the config."""

    client_id: str | None = None
    client_software_name: str = "barnabas"
    client_software_version: str = "1"
    security: SecurityConfig = PLAINTEXT
    socket_connection_setup_timeout_ms: int = 10_000
    """The time for the first attempt to open a connection; doubles with each failure in a row."""
    socket_connection_setup_timeout_max_ms: int = 30_000
    reconnect_backoff: Backoff = RECONNECT_BACKOFF
    """reconnect.backoff.ms and reconnect.backoff.max.ms"""
    request_timeout_ms: int = 30_000
    """The time for ApiVersions and SASL, once the connection is open."""
    connections_max_idle_ms: int = 0
    """A connection without requests for this long is closed; 0 keeps it."""
    connections_max: int = 4_096
    """The limit for open connections; at the limit the least recently used one is closed for a new one."""
    in_flight_requests_max: int | None = None
    """The limit for unanswered requests of one connection; more are rejected. None if the caller limits them itself."""
    send_buffer_bytes: int = -1
    """SO_SNDBUF; -1 leaves the size to the operating system."""
    receive_buffer_bytes: int = -1
    """SO_RCVBUF; -1 leaves the size to the operating system."""
    memory: ReceiveMemory | None = None
    """The memory that the connections share; None if each has memory of its own."""
    api_versions_version_max: int = 32_767
    """The version of ApiVersions to begin with, if it is below the newest."""


class ConnectionErrors(Protocol):
    """Which exceptions a user of outgoing connections gets: clients and nodes have exception trees of their own."""

    def unreachable(self, to: Destination, message: str, cause: BaseException | None) -> KafkaError:
        """There is no connection, so the request was not sent. `cause` is the operating system's error, if known."""
        ...

    def connect_timed_out(self, to: Destination, message: str) -> KafkaError:
        """The deadline of the request passed before a connection was open. The request was not sent."""
        ...

    def lost(self, message: str) -> KafkaError:
        """The connection was lost after the request was sent. The node may have handled the request."""
        ...

    def timed_out(self, message: str) -> KafkaError:
        """The deadline passed after the request was sent. The node may have handled the request."""
        ...

    def unsupported(self, message: str) -> KafkaError:
        """The error of a request that was not sent, because the node supports no version of the API that this side
        supports."""
        ...

    def untrusted(self, message: str) -> KafkaError:
        """The TLS handshake failed because of a certificate: trying again does not help."""
        ...
