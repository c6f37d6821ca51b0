"""Machine: the rules for the memory that clients can make a node keep: it is counted, and within its bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from barnabas.core.inflation_total import INFLATING
from barnabas.protocol.transport.limits import UNSENT_COUNTED_BYTES
from barnabas.testing.sim.cluster.rule import Rule
from barnabas.testing.sim.cluster.view import KeptMemory, is_over, kept_memory_of

if TYPE_CHECKING:
    from barnabas.testing.sim.cluster.cluster import SimCluster
    from barnabas.testing.sim.cluster.observation import ClusterObservation
    from barnabas.testing.sim.node import SimNode

_ONE_READ_BYTES: Final = 256 * 1024
"""A connection may receive so many bytes at once, before it stops to read."""
_ONE_SLICE_BYTES: Final = 512 * 1024
"""A connection may write the responses of one slice, although its client is slow."""


class MemoryRule(Rule):
    """A rule about the connections that the brokers have accepted."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster)
        self.accepted: dict[str, list[Any]] = {node.name: [] for node in cluster.brokers}
        """The connections that were accepted by each broker, without those that keep nothing any more."""

    def on_accepted(self, host: str, connection: Any) -> None:
        """A node has accepted a connection."""
        if host in self.accepted:
            self.accepted[host].append(connection)

    def observe(self, seen: ClusterObservation) -> None:
        for node in self.cluster.brokers:
            self._observe(node)

    def at_rest(self) -> None:
        for node in self.cluster.brokers:
            kept = self._observe(node)
            if kept is not None and kept.counted.unsent_bytes:
                self.broken(f"{node.name} counts {kept.counted.unsent_bytes} unsent bytes, and all clients are idle")

    def _observe(self, node: SimNode) -> KeptMemory | None:
        connections = self.accepted[node.name] = [one for one in self.accepted[node.name] if not is_over(one)]
        kept = kept_memory_of(node, connections)
        if kept is not None:
            self.check(node.name, kept)
        return kept

    def check(self, where: str, kept: KeptMemory) -> None:
        """Check what a broker keeps."""


class KeptBytesAreCounted(MemoryRule):
    """The requests that wait, their bytes, and the responses that wait for slow clients are counted in the totals of
    the node, and a connection that ends takes its part out of them."""

    def check(self, where: str, kept: KeptMemory) -> None:
        counted, found = kept.counted, kept.found
        unsent = found.unsent_bytes - kept.connections * UNSENT_COUNTED_BYTES
        if counted[:2] != found[:2] or counted.unsent_bytes < unsent:
            self.broken(f"{where} counts {counted}, and keeps {found} for {kept.connections} connections")


class KeptBytesAreBounded(MemoryRule):
    """No connection keeps more bytes of requests or responses than its bound, and what comes in one piece."""

    def check(self, where: str, kept: KeptMemory) -> None:
        if kept.most_unsent_bytes > kept.unsent_bytes_max + _ONE_SLICE_BYTES:
            self.broken(f"{where} keeps {kept.most_unsent_bytes} bytes of responses for one connection")
        if kept.most_request_bytes > kept.request_bytes_max + _ONE_READ_BYTES:
            self.broken(f"{where} keeps {kept.most_request_bytes} bytes of requests of one connection")


class InflationIsReleased(Rule):
    """What was reserved to inflate a payload is released when the payload is inflated or refused."""

    def observe(self, seen: ClusterObservation) -> None:
        if INFLATING.reserved:
            self.broken(f"{INFLATING.reserved} bytes are reserved, although nothing is being inflated")


MEMORY_RULES: tuple[type[Rule], ...] = (KeptBytesAreCounted, KeptBytesAreBounded, InflationIsReleased)
