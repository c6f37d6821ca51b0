"""Value: the context in which a handler serves a request: its header, its client and the time of its arrival; and what
the handler, the authorization and the quotas report to the dispatcher besides the response."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from barnabas.protocol.security.principals import KafkaPrincipal
from barnabas.protocol.transport.ports import Peer


class RequestContext(Struct):
    """The header of one request, its connection and the time of its arrival."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    client: Peer
    """The client and its connection: the same object for all requests of a connection."""
    now_ms: int
    received: float
    """When the request arrived, by the running loop's clock; deadlines are computed from this time."""
    runs_alone: bool = False
    """Set by a handler before its first await: the connection starts no other request until this one is answered,
    whatever the scheduling of the API is."""
    may_read: Callable[[str], bool] | None = None
    """Whether the client may read a topic, by its name; None if it may read every topic. Set by the authorization of
    requests whose topics are in a session."""
    may_describe: Callable[[str], bool] | None = None
    """As `may_read`, for the topics that match the regular expression of a subscription."""
    is_exempt: bool = False
    """Set by a handler: the request comes from another node, and no quota holds for it."""
    held_s: float = 0.0
    """For how long the handler has held the event loop in steps that are over; measured if there are quotas."""
    first_step_s: float = 0.0
    """For how long the first step of a handler that has suspended held the event loop."""
    throttle_ms: int = 0
    """For how long the client is delayed because of a quota."""
    errors: list[int] | None = None
    """The errors of the partitions of a Produce or Fetch request, for the metrics; None if there are none."""
    on_replaced: Callable[[], None] | None = None
    """Set by the handler of Fetch: called if the response is replaced by an empty one because of a quota."""
    is_forwarded: bool = False
    """Whether a broker has forwarded the request to this controller for its client."""
    has_many_entries: bool = False
    """Set by a handler that has suspended: encoding the response takes long, and is done in a thread."""
    entries: int = 0
    """Set by a handler that has counted the entries of its response, and may have many in few fields."""

    @property
    def client_host(self) -> str:
        return "/" + self.client.host

    @property
    def connection_id(self) -> int:
        """The number of the connection, unique on this node."""
        return self.client.connection_id

    @property
    def principal(self) -> KafkaPrincipal:
        """The identity of the client."""
        return self.client.principal

    def deadline(self, timeout_ms: int) -> float:
        """The time of the loop's clock that is `timeout_ms` after the request arrived."""
        return self.received + max(timeout_ms, 0) / 1000
