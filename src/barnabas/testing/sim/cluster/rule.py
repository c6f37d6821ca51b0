"""Machine: what every rule about a running cluster is made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from barnabas.server.storage.segments.batches import walk_headers
from barnabas.testing.sim.errors import CorrectnessError

if TYPE_CHECKING:
    from barnabas.server.raft.machine.raft import RaftMachine
    from barnabas.server.storage.log import Log
    from barnabas.testing.sim.cluster.cluster import SimCluster
    from barnabas.testing.sim.cluster.sight import Sight
    from barnabas.testing.sim.node import SimNode


class Rule:
    """Keeps what it has seen, across crashes. Raises CorrectnessError when it does not hold."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster

    def step(self, node: SimNode, machine: RaftMachine) -> None:
        """After a step of the loop in which a replica of the quorum got another epoch, role or high watermark, or the
        process another word about its leader."""

    def look(self, seen: Sight) -> None:
        """Many times a second."""

    def at_rest(self) -> None:
        """When nobody writes and everything is replicated."""

    def broken(self, what: str) -> NoReturn:
        self.cluster.world.trace.event("rule", f"{type(self).__name__} is broken: {what}")
        raise CorrectnessError(f"{type(self).__name__} is broken: {what}\n({(type(self).__doc__ or '').strip()})")


class Row(NamedTuple):
    """One batch of a log, as far as it matters whether two are the same."""

    base_offset: int
    next_offset: int
    epoch: int
    crc: int


def batches_of(log: Log, start: int, end: int) -> Iterator[Row]:
    """The batches from `start` on that end at or before `end`."""
    for segment in log.segments.starting_from(start):
        if segment.base_offset >= end:
            return
        for _, header in walk_headers(segment.file(), segment.lookup(start), segment.size):
            if header.next_offset > end:
                return
            if header.base_offset >= start:
                yield Row(header.base_offset, header.next_offset, header.partition_leader_epoch, header.crc)
