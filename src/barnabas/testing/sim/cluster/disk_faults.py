"""Shell: faults of disks and power: slow, cold, full and failing disks; power cuts of one node or of all nodes."""

from __future__ import annotations

import asyncio

from barnabas.testing.sim.cluster.cluster import DISK_CAPACITY
from barnabas.testing.sim.cluster.fault_context import LOSSY, ClusterFault, ClusterFaultMenu, FaultContext
from barnabas.testing.sim.disk import never


async def slow_disk(context: FaultContext) -> None:
    node = context.victim()
    node.job_s = (0.001, context.some(0.05, 2.0))
    await asyncio.sleep(context.some(0.5, 6.0))
    node.job_s = node.usual_job_s


async def cold_cache(context: FaultContext) -> None:
    disk = context.any_broker().disk
    disk.cold = True
    await asyncio.sleep(context.some(0.5, 4.0))
    disk.cold = False


async def power_cut(context: FaultContext) -> None:
    node = context.victim()
    async with context.unclean(node) as may:
        if may:
            node.lose_power()
            await asyncio.sleep(context.some(0.01, 6.0))
            await context.cluster.up(node)


async def blackout(context: FaultContext) -> None:
    """All nodes lose power at once, and start again in random order."""
    nodes = list(context.cluster.hosts.values())
    for node in nodes:
        node.lose_power()
    await asyncio.sleep(context.some(0.01, 3.0))
    context.rng.shuffle(nodes)
    for node in nodes:
        await context.cluster.up(node)
        await asyncio.sleep(context.some(0.0, 1.0))


async def full_disk(context: FaultContext) -> None:
    """The disk is full for a while. Afterwards the node is restarted if it has ended."""
    node = context.victim()
    async with context.unclean(node) as may:
        if not may:
            return
        node.excused = True
        node.disk.capacity = node.disk.used + context.rng.randrange(3_000)
        await asyncio.sleep(context.some(0.5, 4.0))
        node.disk.capacity = DISK_CAPACITY
        node.kill()
        await asyncio.sleep(context.some(0.01, 1.0))
        await context.cluster.up(node)


async def failing_fsync(context: FaultContext) -> None:
    """One fsync fails, the log directory goes offline, and an operator restarts the node."""
    node = context.victim()
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
        if context.rng.random() < 0.5:
            node.kill()
        else:
            node.lose_power()
        await asyncio.sleep(context.some(0.01, 1.0))
        await context.cluster.up(node)


DISK_FAULTS = (
    ClusterFault("slow disk", 3, slow_disk),
    ClusterFault("cold cache", 1, cold_cache),
    ClusterFault("power cut", 16, power_cut, LOSSY | {ClusterFaultMenu.BLACKOUT}),
    ClusterFault("blackout", 5, blackout, frozenset({ClusterFaultMenu.BLACKOUT})),
    ClusterFault("full disk", 5, full_disk, frozenset({ClusterFaultMenu.DISK})),
    ClusterFault("failing fsync", 5, failing_fsync, frozenset({ClusterFaultMenu.DISK})),
)
