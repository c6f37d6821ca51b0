"""Machine: the base class of the rules that are checked while a cluster runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from barnabas.protocol.records.errors import CorruptBatchError
from barnabas.server.storage.segments.batches import walk_headers
from barnabas.testing.sim.errors import CorrectnessError

if TYPE_CHECKING:
    from barnabas.server.raft.machine.raft import RaftMachine
    from barnabas.server.storage.log import Log
    from barnabas.testing.sim.cluster.cluster import SimCluster
    from barnabas.testing.sim.cluster.observation import ClusterObservation
    from barnabas.testing.sim.node import SimNode


class Rule:
    """A rule. It keeps its observations across restarts of nodes, and raises CorrectnessError when it is violated."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster

    def step(self, node: SimNode, machine: RaftMachine) -> None:
        """Called after a step of the event loop that changed the epoch, role or high watermark of a quorum replica, or
        the epoch that its process has stored."""

    def observe(self, seen: ClusterObservation) -> None:
        """Called many times a second with an observation of the whole cluster."""

    def at_rest(self) -> None:
        """Called when no client writes and every replica is in sync."""

    def broken(self, what: str) -> NoReturn:
        self.cluster.world.trace.event("rule", f"{type(self).__name__} is broken: {what}")
        raise CorrectnessError(f"{type(self).__name__} is broken: {what}\n({(type(self).__doc__ or '').strip()})")


class Row(NamedTuple):
    """The fields of a record batch by which two batches are compared."""

    base_offset: int
    next_offset: int
    epoch: int
    crc: int


def batches_of(log: Log, start: int, end: int) -> Iterator[Row]:
    """The batches of a log from `start` on that end at or before `end`. Raises CorrectnessError for damage."""
    try:
        for segment in log.segments.starting_from(start):
            if segment.base_offset >= end:
                return
            for _, header in walk_headers(segment.file(), segment.lookup(start), segment.size):
                if header.next_offset > end:
                    return
                if header.base_offset >= start:
                    yield Row(header.base_offset, header.next_offset, header.partition_leader_epoch, header.crc)
    except CorruptBatchError as error:
        raise CorrectnessError(f"{log.path} is damaged below offset {end}: {error}") from error
