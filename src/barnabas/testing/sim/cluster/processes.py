"""Shell: faults of processes: kill -9, SIGSTOP, clean stops, one after the other or all at once; wrong clocks."""

from __future__ import annotations

import asyncio
from functools import partial

from barnabas.testing.sim.cluster.trouble import LOSSY, ClusterFault, ClusterFaultMenu, Trouble
from barnabas.testing.sim.node import SimNode


async def kill(trouble: Trouble) -> None:
    node = trouble.victim()
    async with trouble.unclean(node) as may:
        if may:
            node.kill()
            await _down_for_a_while(trouble, node)


async def _down_for_a_while(trouble: Trouble, node: SimNode) -> None:
    """Now and then it is back before its session has ended."""
    rng = trouble.rng
    await asyncio.sleep(trouble.some(0.0, 1.0) if rng.random() < 0.5 else trouble.some(1.0, 8.0))
    await trouble.cluster.up(node)


async def kill_leader_twice(trouble: Trouble) -> None:
    """The leader of a partition, and at once the next one."""
    tp = trouble.any_partition()
    for _ in range(2):
        node = trouble.cluster.leader(tp)
        if node is not None:
            node.kill()
            await asyncio.sleep(trouble.some(0.5, 5.0))
            await trouble.cluster.up(node)


async def kill_most_controllers(trouble: Trouble) -> None:
    """There is no quorum for a while."""
    controllers = trouble.cluster.controllers
    count = len(controllers) // 2 + 1
    chosen = trouble.rng.sample(controllers, count)
    for node in chosen:
        node.kill()
    await asyncio.sleep(trouble.some(0.2, 6.0))
    for node in chosen:
        await trouble.cluster.up(node)


async def kill_all(trouble: Trouble) -> None:
    nodes = list(trouble.cluster.hosts.values())
    for node in nodes:
        node.kill()
    await asyncio.sleep(trouble.some(0.0, 2.0))
    trouble.rng.shuffle(nodes)
    for node in nodes:
        await trouble.cluster.up(node)
        await asyncio.sleep(trouble.some(0.0, 1.0))


async def pause(trouble: Trouble) -> None:
    """Long pauses outlast sessions: the node goes on as a zombie of its former role."""
    node = trouble.victim()
    node.pause()
    await asyncio.sleep(trouble.some(0.1, 9.0))
    node.resume()


async def restart(trouble: Trouble) -> None:
    """A clean shutdown, and a start."""
    node = trouble.victim()
    async with trouble.unclean(node) as may:  # it may refuse to stop, and is killed then
        if may:
            await trouble.cluster.stop(node)
            await asyncio.sleep(trouble.some(0.0, 1.0))
            await trouble.cluster.up(node)


async def rolling_restart(trouble: Trouble) -> None:
    """Every node in turn, each when the one before is ready."""
    nodes = list(trouble.cluster.hosts.values())
    trouble.rng.shuffle(nodes)
    for node in nodes:
        async with trouble.unclean(node) as may:
            if may:
                await trouble.cluster.stop(node)
                await trouble.cluster.up(node)
                await trouble.cluster.until(partial(_is_ready, node), 5.0)


def _is_ready(node: SimNode) -> bool:
    return node.ready


async def wrong_clock(trouble: Trouble) -> None:
    """NTP has corrected it, in either direction; or it runs too fast."""
    clock = trouble.victim().clock
    clock.skew_s = trouble.rng.uniform(-20, 20)
    clock.drift = trouble.rng.choice([0.0, 0.0, 0.05, -0.05])


async def kill_client(trouble: Trouble) -> None:
    host = trouble.any_client()
    trouble.workload.kill(host)
    await asyncio.sleep(trouble.some(0.1, 3.0))
    trouble.workload.restart(host)


async def pause_client(trouble: Trouble) -> None:
    process = trouble.workload.hosts[trouble.any_client()]
    trouble.world.pause(process)
    await asyncio.sleep(trouble.some(0.1, 9.0))
    trouble.world.resume(process)


_LOSSLESS = frozenset(ClusterFaultMenu) - LOSSY
PROCESS_FAULTS = (
    ClusterFault("kill", 8, kill, _LOSSLESS),
    ClusterFault("kill", 3, kill, LOSSY),
    ClusterFault("kill a leader, and the next", 3, kill_leader_twice, _LOSSLESS),
    ClusterFault("kill most controllers", 2, kill_most_controllers, _LOSSLESS),
    ClusterFault("kill all", 1, kill_all, _LOSSLESS),
    ClusterFault("pause", 6, pause),
    ClusterFault("restart", 3, restart),
    ClusterFault("rolling restart", 1, rolling_restart),
    ClusterFault("wrong clock", 2, wrong_clock),
    ClusterFault("kill a client", 3, kill_client),
    ClusterFault("pause a client", 2, pause_client),
)
