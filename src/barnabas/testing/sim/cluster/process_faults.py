"""Shell: faults of processes: kill -9, SIGSTOP and clean stops of one node, several or all; wrong clocks."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from barnabas.server.coordination.transaction.state import PREPARED
from barnabas.testing.sim.cluster.fault_context import LOSSY, ClusterFault, ClusterFaultMenu, FaultContext
from barnabas.testing.sim.cluster.view import transactions_of
from barnabas.testing.sim.node import SimNode

_ENDS_WITHIN_S: Final = 3.0
"""Seconds within which some transaction ends, if there are transactions."""
_POLL_S: Final = 0.0005


async def kill(context: FaultContext) -> None:
    node = context.victim()
    async with context.unclean(node) as may:
        if may:
            node.kill()
            await _down_for_a_while(context, node)


async def _down_for_a_while(context: FaultContext, node: SimNode) -> None:
    """Leaves a node down for a random time; sometimes the node is back before its broker session expires."""
    rng = context.rng
    await asyncio.sleep(context.some(0.0, 1.0) if rng.random() < 0.5 else context.some(1.0, 8.0))
    await context.cluster.up(node)


async def kill_leader_twice(context: FaultContext) -> None:
    """Kills the leader of a partition, and then immediately the next leader."""
    tp = context.any_partition()
    for _ in range(2):
        node = context.cluster.leader(tp)
        if node is not None:
            node.kill()
            await asyncio.sleep(context.some(0.5, 5.0))
            await context.cluster.up(node)


async def kill_as_a_transaction_ends(context: FaultContext) -> None:
    """Kills the leader of a partition to which an ending transaction has written, before the leader has the marker of
    the transaction."""
    cluster = context.cluster
    for _ in range(round(_ENDS_WITHIN_S / _POLL_S)):
        ending = [
            (broker, tp)
            for broker in cluster.brokers
            for transaction in transactions_of(broker)
            if transaction.state in PREPARED
            for tp in sorted(transaction.partitions)
        ]
        for coordinator, tp in ending:
            leader = cluster.leader(tp)
            if leader is not None and leader is not coordinator and leader.alive:
                leader.kill()
                await _down_for_a_while(context, leader)
                return
        await asyncio.sleep(_POLL_S)


async def kill_most_controllers(context: FaultContext) -> None:
    """Kills a majority of the controllers, so that there is no quorum for a while."""
    controllers = context.cluster.controllers
    count = len(controllers) // 2 + 1
    chosen = context.rng.sample(controllers, count)
    for node in chosen:
        node.kill()
    await asyncio.sleep(context.some(0.2, 6.0))
    for node in chosen:
        await context.cluster.up(node)


async def kill_all(context: FaultContext) -> None:
    nodes = list(context.cluster.hosts.values())
    for node in nodes:
        node.kill()
    await asyncio.sleep(context.some(0.0, 2.0))
    context.rng.shuffle(nodes)
    for node in nodes:
        await context.cluster.up(node)
        await asyncio.sleep(context.some(0.0, 1.0))


async def pause(context: FaultContext) -> None:
    """Pauses a node. A long pause outlasts the broker session, so the node continues in a role that it has lost."""
    node = context.victim()
    node.pause()
    await asyncio.sleep(context.some(0.1, 9.0))
    node.resume()


async def restart(context: FaultContext) -> None:
    """Shuts a node down cleanly, and starts it again."""
    node = context.victim()
    async with context.unclean(node) as may:  # a node that does not stop in time is killed
        if may:
            await context.cluster.stop(node)
            await asyncio.sleep(context.some(0.0, 1.0))
            await context.cluster.up(node)


async def rolling_restart(context: FaultContext) -> None:
    """Restarts every node in turn, each after the previous one is ready."""
    nodes = list(context.cluster.hosts.values())
    context.rng.shuffle(nodes)
    for node in nodes:
        async with context.unclean(node) as may:
            if may:
                await context.cluster.stop(node)
                await context.cluster.up(node)
                await context.cluster.until(partial(_is_ready, node), 5.0)


def _is_ready(node: SimNode) -> bool:
    return node.ready


async def wrong_clock(context: FaultContext) -> None:
    """The wall clock jumps in either direction, as when NTP corrects it, or runs too fast."""
    clock = context.victim().clock
    clock.skew_s = context.rng.uniform(-20, 20)
    clock.drift = context.rng.choice([0.0, 0.0, 0.05, -0.05])


async def kill_client(context: FaultContext) -> None:
    host = context.any_client()
    context.workload.kill(host)
    await asyncio.sleep(context.some(0.1, 3.0))
    context.workload.restart(host)


async def pause_client(context: FaultContext) -> None:
    process = context.workload.hosts[context.any_client()]
    context.world.pause(process)
    await asyncio.sleep(context.some(0.1, 9.0))
    context.world.resume(process)


_LOSSLESS = frozenset(ClusterFaultMenu) - LOSSY
LATE_MARKER = ClusterFault("kill a leader as a transaction ends", 1, kill_as_a_transaction_ends, _LOSSLESS)
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
