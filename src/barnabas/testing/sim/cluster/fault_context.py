"""Value: the context that every cluster fault works with, and the menus of faults from which a run draws."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeVar

from barnabas.core.ids import TopicPartition

if TYPE_CHECKING:
    from barnabas.testing.sim.cluster.cluster import SimCluster
    from barnabas.testing.sim.node import SimNode
    from barnabas.testing.sim.workload import Workload
    from barnabas.testing.sim.world import World

T = TypeVar("T")
_PATIENCE_S: Final = 4.0
"""Seconds for which an unclean end waits until the previous one is repaired."""


class ClusterFaultMenu(Enum):
    """The kinds of faults that a run may have. The menu decides which guarantees must hold."""

    KILL = "kill"
    """Processes are killed, paused and partitioned, one or all; disks are slow. Every acknowledged record survives."""
    POWER = "power"
    """In addition brokers lose power, one at a time, and their unsynced data. Replicas have the data (KIP-966)."""
    BLACKOUT = "blackout"
    """All nodes lose power at once. With log.flush.interval.messages=1 every acknowledged record survives."""
    DISK = "disk"
    """As POWER; in addition disks fill up, and fsync fails."""


EVERY = frozenset(ClusterFaultMenu)
LOSSY = frozenset({ClusterFaultMenu.POWER, ClusterFaultMenu.DISK})
"""The menus in which a broker may lose unsynced data. Only one broker may do so at a time."""


class FaultContext:
    """The cluster, the clients and the randomness of a run, and the rule that limits unclean ends of nodes."""

    def __init__(self, cluster: SimCluster, workload: Workload, menu: ClusterFaultMenu, topics: Sequence[str]) -> None:
        self.cluster = cluster
        self.world: World = cluster.world
        self.workload = workload
        self.menu = menu
        self.topics = tuple(topics)
        self.rng = self.world.random_stream("nemesis")
        self._unclean = asyncio.Lock()

    # ---- random choices

    def some(self, low: float, high: float) -> float:
        """A random duration in seconds; short durations are more likely."""
        return low + self.rng.random() ** 2 * (high - low)

    async def sleep(self, low: float, high: float) -> None:
        await asyncio.sleep(self.some(low, high))

    def choice(self, among: Sequence[T]) -> T:
        return self.rng.choice(among)

    def any_broker(self) -> SimNode:
        return self.rng.choice(self.cluster.brokers)

    def any_controller(self) -> SimNode:
        return self.rng.choice(self.cluster.controllers)

    def any_client(self) -> str:
        return self.rng.choice(sorted(self.workload.hosts))

    def any_partition(self) -> TopicPartition:
        """A random partition of the workload's topics or of the coordinators' topics."""
        image = self.cluster.newest_image()
        found = [
            TopicPartition(topic.name, index)
            for topic in (() if image is None else image.topics)
            for index in range(len(topic.partitions))
        ]
        mine = sorted(tp for tp in found if tp.topic in self.topics)
        internal = sorted(tp for tp in found if tp.topic.startswith("__"))
        chosen = internal if internal and (not mine or self.rng.random() < 0.4) else mine
        return self.rng.choice(chosen) if chosen else TopicPartition(self.topics[0], 0)

    def partitions(self) -> list[TopicPartition]:
        """The partitions of the workload's topics."""
        return [TopicPartition(topic, index) for topic in self.topics for index in range(self.workload.partitions)]

    def victim(self) -> SimNode:
        """A random node: any broker, the leader of a partition, the active controller, or any controller."""
        chance = self.rng.random()
        found: SimNode | None = None
        if chance < 0.35:
            found = self.cluster.leader(self.any_partition())
        elif chance < 0.55:
            found = self.cluster.active_controller()
        elif chance < 0.65:
            found = self.any_controller()
        return found or self.any_broker()

    # ---- unclean ends

    @asynccontextmanager
    async def unclean(self, node: SimNode) -> AsyncIterator[bool]:
        """The block ends `node` uncleanly, if the yielded value is True. False means that another node ended uncleanly
        and is not in sync yet.

        Eligible leader replicas keep all guarantees over min.insync.replicas - 1 unclean ends. So in menus in which an
        unclean end can lose data, the next end waits until the previous node is in sync again.
        """
        if self.menu not in LOSSY or node not in self.cluster.brokers:
            yield True
            return
        async with self._unclean:
            if not await self.cluster.until(self.cluster.is_whole, _PATIENCE_S):
                yield False
                return
            yield True
            await self.cluster.until(self.cluster.is_whole, 30.0)


@dataclass(frozen=True, slots=True)
class ClusterFault:
    """A fault: a coroutine that applies the fault, waits, and undoes it. `weight` is its relative frequency among the
    faults of a menu."""

    name: str
    weight: int
    strike: Callable[[FaultContext], Awaitable[None]]
    menus: frozenset[ClusterFaultMenu] = EVERY


@dataclass(frozen=True, slots=True)
class RareFault:
    """A fault that strikes once in a share of the runs. Its own random stream draws these runs, so that a new fault of
    this kind leaves the other runs as they are."""

    fault: ClusterFault
    share: float
