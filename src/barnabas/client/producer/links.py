"""Machine: the requests in flight to each broker, and the brokers that accept no batches (KIP-794)."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.protocol.transport.outgoing_connection import OutgoingConnection


@dataclass(slots=True)
class BrokerLink:
    """One broker: its connection and the number of produce requests in flight."""

    connection: OutgoingConnection | None = None
    connecting: bool = False
    in_flight: int = 0
    paused_until: float = 0.0
    ready_at: float = 0.0
    """The last time at which a batch was ready for this broker (Kafka's NodeLatencyStats)."""
    drained_at: float = 0.0
    """The last time at which a batch could be sent to this broker (Kafka's NodeLatencyStats)."""


class BrokerLinks:
    """One `BrokerLink` for each broker that leads a partition. Times are seconds of the caller's clock."""

    def __init__(self, availability_timeout_s: float) -> None:
        """`availability_timeout_s` is `partitioner.availability.timeout.ms`; with 0 every broker counts as
        available."""
        self._timeout_s = availability_timeout_s
        self._links: dict[int, BrokerLink] = {}

    def to(self, leader: int, now: float) -> BrokerLink:
        """The link to a broker for which a batch is ready now."""
        link = self._links.get(leader)
        if link is None:
            link = self._links[leader] = BrokerLink(drained_at=now)
        link.ready_at = now
        return link

    @property
    def has_timeout(self) -> bool:
        """Whether brokers can become unavailable."""
        return self._timeout_s > 0

    def is_available(self, link: BrokerLink) -> bool:
        return not self.has_timeout or link.ready_at - link.drained_at <= self._timeout_s

    def unavailable(self) -> set[int]:
        """The brokers that have accepted no batch for the availability time-out, although batches were ready for
        them."""
        return {leader for leader, link in self._links.items() if not self.is_available(link)}
