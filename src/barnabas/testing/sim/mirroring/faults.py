"""Shell: faults of two clusters with links between them: of the connection, of the nodes of both sides, of the logs of
the source, and what operators do meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from barnabas.client.admin.links import MirrorAction
from barnabas.core.errors import BarnabasError
from barnabas.core.ids import TopicPartition
from barnabas.testing.sim.cluster.cluster import DISK_CAPACITY
from barnabas.testing.sim.cluster.observation import replicas_of
from barnabas.testing.sim.disk import never
from barnabas.testing.sim.mirroring.programs import PARTITIONS
from barnabas.testing.sim.workload import ATOMIC, PLAIN

if TYPE_CHECKING:
    from barnabas.testing.sim.cluster.cluster import SimCluster
    from barnabas.testing.sim.mirroring.site import Site
    from barnabas.testing.sim.mirroring.watch import LinkWatch
    from barnabas.testing.sim.node import SimNode

_PAUSE_S: Final = 0.6
"""The mean of the seconds between two faults."""
_ISR_SHRINKS_S: Final = 6.0
_PATIENCE_S: Final = 4.0
"""Seconds for which an unclean end waits until the previous one is repaired."""
_WHOLE_AGAIN_S: Final = 30.0


class LinkFaultMenu(Enum):
    """The kinds of faults that a run may have."""

    KILL = "kill"
    """Nodes of both clusters are killed and paused; the connection is slow, lossy, cut; mirrors are paused."""
    UNCLEAN = "unclean"
    """In addition unclean leader elections on the source, which lose records that the mirror has."""
    RETENTION = "retention"
    """In addition retention on the source deletes records that the mirror does not have yet."""
    POWER = "power"
    """In addition brokers of both clusters lose power and their unsynced data, one at a time in each cluster."""
    DISK = "disk"
    """As POWER; in addition disks fill up, and fsync fails."""


LOSSY: Final = frozenset({LinkFaultMenu.POWER, LinkFaultMenu.DISK})
"""The menus in which a broker may lose unsynced data. The other replicas have it (KIP-966)."""
KEEPS_ALL: Final = LOSSY | {LinkFaultMenu.KILL}
"""The menus in which no acknowledged record is lost on its own side."""


class LinkFaultContext:
    """What the faults work with. `source` and `mirror` are the two sites."""

    def __init__(self, source: Site, mirror: Site, watch: LinkWatch, menu: LinkFaultMenu) -> None:
        self.source = source
        self.mirror = mirror
        self.watch = watch
        self.menu = menu
        self.world = source.world
        self.rng = self.world.random_stream("nemesis")
        self.network = asyncio.Lock()
        """Held by the fault that has changed the network."""
        self._unclean = {site.cluster: asyncio.Lock() for site in (source, mirror)}
        self.count = 0
        self.elections = 0
        """The unclean elections."""
        self.gaps: list[tuple[TopicPartition, int]] = []
        """For each time that records were deleted on the source before the mirror had them, about how many."""

    def some(self, low: float, high: float) -> float:
        return low + self.rng.random() ** 2 * (high - low)

    def any_node(self) -> SimNode:
        """A node of either side; often the leader of a partition."""
        site = self.rng.choice([self.source, self.mirror])
        tp = TopicPartition(self.rng.choice([PLAIN, ATOMIC]), self.rng.randrange(PARTITIONS))
        leader = site.cluster.leader(tp) if self.rng.random() < 0.6 else None
        return leader or self.rng.choice(list(site.cluster.hosts.values()))

    @asynccontextmanager
    async def unclean(self, node: SimNode) -> AsyncIterator[bool]:
        """The block ends `node` uncleanly, if the yielded value is True. In menus in which this can lose data, the next
        unclean end in the same cluster waits until the node is in sync again."""
        cluster = cluster_of(self, node)
        if self.menu not in LOSSY or node not in cluster.brokers:
            yield True
            return
        async with self._unclean[cluster]:
            if not await cluster.until(cluster.is_whole, _PATIENCE_S):
                yield False
                return
            yield True
            await cluster.until(cluster.is_whole, _WHOLE_AGAIN_S)

    def kill(self, node: SimNode) -> None:
        self.watch.check()  # batches that only this node has are still known to have existed
        node.kill()

    def pairs(self) -> list[tuple[str, str]]:
        """All pairs of a host of the source and a host of the mirror."""
        return [(one, other) for one in self.source.cluster.hosts for other in self.mirror.cluster.hosts]

    # ---- a run of faults

    async def strike(self, seconds: float, *, sites: int = 2) -> None:
        """Applies faults for that many simulated seconds. Returns when every fault is over. With one site, only nodes
        of the mirror are hit, which takes writes by then."""
        loop = self.world.loop
        end = loop.time() + seconds
        catalogue = [*CATALOGUE, *POWER_FAULTS] if sites == 2 else [*_AFTER, *POWER_FAULTS_AFTER]
        chosen = [fault for fault in catalogue if self.menu in fault.menus]
        async with asyncio.TaskGroup() as group:
            while loop.time() < end:
                await asyncio.sleep(self.rng.expovariate(1 / _PAUSE_S))
                fault = self.rng.choices(chosen, [fault.weight for fault in chosen])[0]
                task = group.create_task(self._apply(fault))
                if self.rng.random() < 0.5:
                    await asyncio.wait((task,))

    async def _apply(self, fault: LinkFault) -> None:
        self.count += 1
        self.world.trace.event("fault", fault.name)
        await fault.strike(self)

    async def heal(self) -> None:
        self.world.trace.event("fault", "everything is healed")
        for site in (self.source, self.mirror):
            await site.cluster.heal()


async def cut(context: LinkFaultContext) -> None:
    """Cuts the two clusters off from each other, in both directions or in one."""
    network, both = context.world.network, context.rng.random() < 0.6
    async with context.network:
        for one, other in context.pairs():
            network.cut(one, other, both=both)
        await asyncio.sleep(context.some(0.3, 5.0))
        network.heal()


async def bad_connection(context: LinkFaultContext) -> None:
    """Makes the connection slow, narrow and lossy."""
    network, rng = context.world.network, context.rng
    delay, loss = rng.choice([0.02, 0.1, 0.5]), rng.choice([0.0, 0.05, 0.3])
    bandwidth = rng.choice([10_000.0, 1_000_000.0])
    async with context.network:
        for one, other in context.pairs():
            for link in (network.link(one, other), network.link(other, one)):
                link.delay_max, link.loss, link.bandwidth = delay, loss, bandwidth
        await asyncio.sleep(context.some(0.5, 5.0))
        network.heal()


async def reset(context: LinkFaultContext) -> None:
    one, other = context.rng.choice(context.pairs())
    context.world.network.reset_connections(one, other)


async def kill(context: LinkFaultContext) -> None:
    await _kill(context, context.any_node(), 4.0)


async def _kill(context: LinkFaultContext, node: SimNode, longest_s: float) -> None:
    async with context.unclean(node) as may:
        if may:
            context.kill(node)
            await asyncio.sleep(context.some(0.0, longest_s))
            await cluster_of(context, node).up(node)


async def pause(context: LinkFaultContext) -> None:
    node = context.any_node()
    node.pause()
    await asyncio.sleep(context.some(0.1, 6.0))
    node.resume()


async def pause_mirrors(context: LinkFaultContext) -> None:
    """An operator pauses mirrors and resumes them."""
    topic = context.rng.choice([".*", PLAIN, ATOMIC])
    for action in (MirrorAction.PAUSE, MirrorAction.RESUME):
        await _until_done(context, action, topic)
        await asyncio.sleep(context.some(0.5, 3.0))


async def _until_done(context: LinkFaultContext, action: MirrorAction, topic: str) -> None:
    site = context.mirror
    while True:
        try:
            async with site.admin() as admin:
                await admin.alter_mirrors(site.link_name, action, [topic])
        except BarnabasError as error:
            context.world.trace.event("operator", f"{action.name}: {error}")
            await asyncio.sleep(0.5)
        else:
            return


async def unclean_election(context: LinkFaultContext) -> None:
    """Cuts the leader of a partition off from its followers until it is alone in the ISR, lets clients write to it, and
    kills it: a follower without these records is elected."""
    cluster, network = context.source.cluster, context.world.network
    tp = TopicPartition(PLAIN, context.rng.randrange(PARTITIONS))
    leader = cluster.leader(tp)
    if leader is None:
        return
    followers = [broker.name for broker in cluster.brokers if broker is not leader]

    def is_alone() -> bool:
        found = cluster.partition(tp)
        return found is not None and list(found.isr) == [leader.node_id]

    async with context.network:
        for follower in followers:
            network.cut(leader.name, follower)
        if await cluster.until(is_alone, _ISR_SHRINKS_S):
            await asyncio.sleep(context.some(0.5, 2.0))
            context.kill(leader)
            context.elections += 1
        network.heal()
    await asyncio.sleep(context.some(1.0, 4.0))
    await cluster.up(leader)


async def overtake(context: LinkFaultContext) -> None:
    """Cuts the mirror off, and deletes the records on the source that it does not have."""
    network, source = context.world.network, context.source
    tps = [TopicPartition(PLAIN, index) for index in range(PARTITIONS)]
    async with context.network:
        for one, other in context.pairs():
            network.cut(one, other)
        at_most = {tp: _watermark(source, tp) for tp in tps}  # a response may still arrive after the cut
        await asyncio.sleep(context.some(1.0, 3.0))
        before = {tp: _watermark(source, tp) - context.rng.choice([0, 1, 3]) for tp in tps}
        try:
            async with source.admin() as admin:
                deleted = await admin.delete_records(
                    {tp: offset for tp, offset in before.items() if offset > 0}, timeout_ms=3_000
                )
        except BarnabasError as error:
            context.world.trace.event("operator", f"delete records: {error}")
        else:
            for tp, start in deleted.items():
                gap = start - max(_end(context.mirror, tp), at_most[tp]) if isinstance(start, int) else 0
                if gap > 0:
                    context.gaps.append((tp, gap))
        network.heal()


def _watermark(site: Site, tp: TopicPartition) -> int:
    leader = site.leader(tp)
    return 1 << 60 if leader is None else leader.partition.high_watermark


def _end(site: Site, tp: TopicPartition) -> int:
    """The largest log end offset of the replicas."""
    ends = [replica.log.log_end_offset for replica in replicas_of(site.cluster) if replica.partition.name == tp]
    return max(ends, default=1 << 60)


def cluster_of(context: LinkFaultContext, node: SimNode) -> SimCluster:
    return next(s.cluster for s in (context.source, context.mirror) if s.cluster.hosts.get(node.name) is node)


async def kill_in_the_mirror(context: LinkFaultContext) -> None:
    await _kill(context, context.rng.choice(list(context.mirror.cluster.hosts.values())), 3.0)


async def power_cut(context: LinkFaultContext) -> None:
    await _cut_power(context, context.any_node())


async def power_cut_in_the_mirror(context: LinkFaultContext) -> None:
    await _cut_power(context, context.rng.choice(context.mirror.cluster.brokers))


async def _cut_power(context: LinkFaultContext, node: SimNode) -> None:
    async with context.unclean(node) as may:
        if may:
            context.watch.check()
            node.lose_power()
            await asyncio.sleep(context.some(0.01, 4.0))
            await cluster_of(context, node).up(node)


async def full_disk(context: LinkFaultContext) -> None:
    """The disk of a node is full for a while; then an operator restarts the node."""
    node = context.any_node()
    async with context.unclean(node) as may:
        if not may:
            return
        node.excused = True
        node.disk.capacity = node.disk.used + context.rng.randrange(3_000)
        await asyncio.sleep(context.some(0.5, 4.0))
        node.disk.capacity = DISK_CAPACITY
        await _restart(context, node)


async def failing_fsync(context: LinkFaultContext) -> None:
    """One fsync fails, the log directory goes offline, and an operator restarts the node."""
    node = context.any_node()
    left = [context.rng.randrange(3)]

    def fails(path: str) -> bool:
        left[0] -= 1
        return left[0] == -1

    async with context.unclean(node) as may:
        if not may:
            return
        node.excused = True
        node.disk.fail_syncs = fails
        await asyncio.sleep(context.some(0.5, 3.0))
        node.disk.fail_syncs = never
        await _restart(context, node)


async def _restart(context: LinkFaultContext, node: SimNode) -> None:
    context.kill(node)
    await asyncio.sleep(context.some(0.01, 1.0))
    await cluster_of(context, node).up(node)


@dataclass(frozen=True, slots=True)
class LinkFault:
    """A fault: a coroutine that applies the fault, waits, and undoes it. `weight` is its relative frequency."""

    name: str
    weight: int
    strike: Callable[[LinkFaultContext], Awaitable[None]]
    menus: frozenset[LinkFaultMenu] = frozenset(LinkFaultMenu)


CATALOGUE: Final = (
    LinkFault("cut", 3, cut),
    LinkFault("bad connection", 3, bad_connection),
    LinkFault("reset", 2, reset),
    LinkFault("kill", 6, kill),
    LinkFault("pause", 3, pause),
    LinkFault("pause mirrors", 2, pause_mirrors),
    LinkFault("unclean election", 8, unclean_election, frozenset({LinkFaultMenu.UNCLEAN})),
    LinkFault("retention overtakes", 8, overtake, frozenset({LinkFaultMenu.RETENTION})),
)
POWER_FAULTS: Final = (
    LinkFault("power cut", 8, power_cut, LOSSY),
    LinkFault("full disk", 4, full_disk, frozenset({LinkFaultMenu.DISK})),
    LinkFault("failing fsync", 4, failing_fsync, frozenset({LinkFaultMenu.DISK})),
)
POWER_FAULTS_AFTER: Final = (LinkFault("power cut in the mirror", 1, power_cut_in_the_mirror, LOSSY),)
_AFTER: Final = (LinkFault("kill in the mirror", 1, kill_in_the_mirror),)
