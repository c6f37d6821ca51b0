"""Shell: faults of disks and of power: slow, cold, full and failing disks; a plug that is pulled, or all of them."""

from __future__ import annotations

import asyncio

from barnabas.testing.sim.cluster.cluster import ROOM
from barnabas.testing.sim.cluster.trouble import LOSSY, ClusterFault, ClusterFaultMenu, Trouble
from barnabas.testing.sim.disk import never


async def slow_disk(trouble: Trouble) -> None:
    node = trouble.victim()
    node.job_s = (0.001, trouble.some(0.05, 2.0))
    await asyncio.sleep(trouble.some(0.5, 6.0))
    node.job_s = node.usual_job_s


async def cold_cache(trouble: Trouble) -> None:
    disk = trouble.any_broker().disk
    disk.cold = True
    await asyncio.sleep(trouble.some(0.5, 4.0))
    disk.cold = False


async def power_cut(trouble: Trouble) -> None:
    node = trouble.victim()
    async with trouble.unclean(node) as may:
        if may:
            node.lose_power()
            await asyncio.sleep(trouble.some(0.01, 6.0))
            await trouble.cluster.up(node)


async def blackout(trouble: Trouble) -> None:
    """Everywhere at once; they come back in any order."""
    nodes = list(trouble.cluster.hosts.values())
    for node in nodes:
        node.lose_power()
    await asyncio.sleep(trouble.some(0.01, 3.0))
    trouble.rng.shuffle(nodes)
    for node in nodes:
        await trouble.cluster.up(node)
        await asyncio.sleep(trouble.some(0.0, 1.0))


async def full_disk(trouble: Trouble) -> None:
    """Nothing more fits; when there is room again, the node is started anew if it has given up."""
    node = trouble.victim()
    async with trouble.unclean(node) as may:
        if not may:
            return
        node.excused = True
        node.disk.capacity = node.disk.used + trouble.rng.randrange(3_000)
        await asyncio.sleep(trouble.some(0.5, 4.0))
        node.disk.capacity = ROOM
        node.kill()
        await asyncio.sleep(trouble.some(0.01, 1.0))
        await trouble.cluster.up(node)


async def failing_fsync(trouble: Trouble) -> None:
    """One fsync fails; its directory goes offline, and an operator restarts the node."""
    node = trouble.victim()
    left = [trouble.rng.randrange(3)]

    def fails(path: str) -> bool:
        left[0] -= 1
        return left[0] == -1

    async with trouble.unclean(node) as may:
        if not may:
            return
        node.excused = True
        node.disk.fail_syncs = fails
        await asyncio.sleep(trouble.some(0.5, 3.0))
        node.disk.fail_syncs = never
        if trouble.rng.random() < 0.5:
            node.kill()
        else:
            node.lose_power()
        await asyncio.sleep(trouble.some(0.01, 1.0))
        await trouble.cluster.up(node)


DISK_FAULTS = (
    ClusterFault("slow disk", 3, slow_disk),
    ClusterFault("cold cache", 1, cold_cache),
    ClusterFault("power cut", 16, power_cut, LOSSY | {ClusterFaultMenu.BLACKOUT}),
    ClusterFault("blackout", 5, blackout, frozenset({ClusterFaultMenu.BLACKOUT})),
    ClusterFault("full disk", 5, full_disk, frozenset({ClusterFaultMenu.DISK})),
    ClusterFault("failing fsync", 5, failing_fsync, frozenset({ClusterFaultMenu.DISK})),
)
