"""Value: what every fault works with, and the menus from which a run may draw."""

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
"""How long an unclean end waits for the one before to be over."""


class ClusterFaultMenu(Enum):
    """What a run is about, and therefore what may be promised in it."""

    KILL = "kill"
    """Processes are killed, paused and cut off, one or all; disks are slow. What was acknowledged survives."""
    POWER = "power"
    """Brokers lose power, one at a time, and what they had not synced: replicas have it (KIP-966)."""
    BLACKOUT = "blackout"
    """All lose power at once. With log.flush.interval.messages=1 what was acknowledged survives."""
    DISK = "disk"
    """As POWER; also disks fill up, and fsync fails."""


EVERY = frozenset(ClusterFaultMenu)
LOSSY = frozenset({ClusterFaultMenu.POWER, ClusterFaultMenu.DISK})
"""Where a broker may come back with less than it had, and only one may at a time."""


class Trouble:
    """A run's cluster, clients and chance, and who may be hurt now."""

    def __init__(self, cluster: SimCluster, workload: Workload, menu: ClusterFaultMenu, topics: Sequence[str]) -> None:
        self.cluster = cluster
        self.world: World = cluster.world
        self.workload = workload
        self.menu = menu
        self.topics = tuple(topics)
        self.rng = self.world.chance("nemesis")
        self._unclean = asyncio.Lock()

    # ---- chance

    def some(self, low: float, high: float) -> float:
        """Seconds, short ones more often."""
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
        """Of the workload's, or of the coordinators' topics."""
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

    def victim(self) -> SimNode:
        """Any broker, the leader of some partition, the active controller, or any controller."""
        chance = self.rng.random()
        found: SimNode | None = None
        if chance < 0.35:
            found = self.cluster.leader(self.any_partition())
        elif chance < 0.55:
            found = self.cluster.active_controller()
        elif chance < 0.65:
            found = self.any_controller()
        return found or self.any_broker()

    # ---- who may be hurt

    @asynccontextmanager
    async def unclean(self, node: SimNode) -> AsyncIterator[bool]:
        """`node` is about to end uncleanly. False: it may not now, because another one has, and is not in sync yet.

        Eligible leader replicas keep every promise over min.insync.replicas - 1 such ends, so where data can be lost
        by them the next one waits until the one before is in sync again.
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
    """Does its harm, waits, and undoes it. `weight` is how often it is drawn, beside the others of its menu."""

    name: str
    weight: int
    strike: Callable[[Trouble], Awaitable[None]]
    menus: frozenset[ClusterFaultMenu] = EVERY
