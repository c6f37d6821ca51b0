"""Machine: the producer's ways to the brokers: what is on its way on each, and which broker takes nothing (KIP-794)."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.protocol.transport.outgoing_connection import OutgoingConnection


@dataclass(slots=True)
class Link:
    """One broker: its connection, and how many produce requests are on their way."""

    connection: OutgoingConnection | None = None
    connecting: bool = False
    in_flight: int = 0
    paused_until: float = 0.0
    ready_at: float = 0.0
    """When there was last something to send to it,"""
    drained_at: float = 0.0
    """and when it last could be sent (Kafka's NodeLatencyStats)."""


class Links:
    """One `Link` per broker that partitions were led by. Times are seconds of the caller's clock."""

    def __init__(self, availability_timeout_s: float) -> None:
        """The time is `partitioner.availability.timeout.ms`; 0 means that every broker counts as available."""
        self._timeout_s = availability_timeout_s
        self._links: dict[int, Link] = {}

    def to(self, leader: int, now: float) -> Link:
        """The link to a broker that there is something for now."""
        link = self._links.get(leader)
        if link is None:
            link = self._links[leader] = Link(drained_at=now)
        link.ready_at = now
        return link

    @property
    def has_timeout(self) -> bool:
        """A broker can become unavailable at all."""
        return self._timeout_s > 0

    def is_available(self, link: Link) -> bool:
        return not self.has_timeout or link.ready_at - link.drained_at <= self._timeout_s

    def unavailable(self) -> set[int]:
        """Brokers that have taken nothing for that time, though there was something for them."""
        return {leader for leader, link in self._links.items() if not self.is_available(link)}
