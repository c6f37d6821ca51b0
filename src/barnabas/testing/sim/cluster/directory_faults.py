"""Shell: faults of brokers with two log directories, each on a disk of its own. A directory fails for a while or is
replaced, and replicas move between the directories. The metadata log is in the first directory, which is not replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.values import TopicPartitionReplica
from barnabas.testing.sim.cluster.fault_context import EVERY, LOSSY, ClusterFault, FaultContext
from barnabas.testing.sim.cluster.layout import DIRECTORIES
from barnabas.testing.sim.cluster.operator_actions import admin_of
from barnabas.testing.sim.disk import never

if TYPE_CHECKING:
    from barnabas.testing.sim.node import SimNode

_SECOND = DIRECTORIES[1]


def _on_second(path: str) -> bool:
    return path.startswith(_SECOND)


async def _end(context: FaultContext, node: SimNode) -> None:
    """Ends a node, cleanly or not. After a clean shutdown, each directory that works has a marker that no data was
    lost."""
    if context.rng.random() < 0.5:
        await context.cluster.stop(node)
    node.kill()


async def lose_directory(context: FaultContext) -> None:
    """A directory fails while the broker runs, or is missing at the broker's start. Later the directory works again,
    and the broker is restarted, since a failed directory stays offline until a restart."""
    node = context.any_broker()
    async with context.unclean(node) as may:
        if not may:
            return
        if context.rng.random() < 0.5:
            node.disk.fail_writes = _on_second
            await context.sleep(0.3, 4.0)
        if context.rng.random() < 0.7:
            await _end(context, node)
            node.disk.fail_reads = _on_second
            await context.cluster.up(node)
            await context.sleep(0.3, 6.0)
        node.kill()
        node.disk.fail_reads = node.disk.fail_writes = never
        await context.cluster.up(node)


async def lose_the_last_directory(context: FaultContext) -> None:
    """All brokers stop one after another, so the last one has all records. At the next start of that broker, one of its
    directories cannot be read."""
    cluster = context.cluster
    last = cluster.leader(context.any_partition()) or context.any_broker()
    others = [node for node in cluster.brokers if node is not last]
    for node in others:
        await _end(context, node)
    await context.sleep(0.1, 5.0)
    await cluster.stop(last)
    last.kill()
    last.disk.fail_reads = _on_second
    await cluster.up(last)
    await context.sleep(0.1, 3.0)
    for node in others:
        await cluster.up(node)
    await context.sleep(0.1, 4.0)
    last.kill()
    last.disk.fail_reads = never
    await cluster.up(last)


async def replace_directory(context: FaultContext) -> None:
    """Replaces a directory by an empty disk."""
    node = context.any_broker()
    async with context.unclean(node) as may:
        if not may:
            return
        await _end(context, node)
        node.disk.wipe(_SECOND)
        await context.sleep(0.0, 2.0)
        await context.cluster.up(node)


async def move_between_directories(context: FaultContext) -> None:
    """Moves a replica to a directory. If the replica is already in that directory, the request cancels a move."""
    tp = context.any_partition()
    image = context.cluster.partition(tp)
    if image is None:
        return
    replica = TopicPartitionReplica(tp.topic, tp.partition, context.choice(image.replicas))
    path = context.choice(DIRECTORIES)
    context.world.trace.event("operator", f"moves {tp} of broker {replica.broker_id} to {path}")
    async with admin_of(context) as admin:
        await admin.alter_replica_log_dirs({replica: path})


DIRECTORY_FAULTS = (
    ClusterFault("lose a directory", 10, lose_directory),
    ClusterFault("lose the last directory", 6, lose_the_last_directory, EVERY - LOSSY),
    ClusterFault("replace a directory", 8, replace_directory, LOSSY),
    ClusterFault("move between directories", 20, move_between_directories),
)
