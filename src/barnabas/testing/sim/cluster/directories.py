"""Shell: faults of brokers with two log directories, each on a disk of its own: one is out for a while, or is replaced;
replicas move from one to the other meanwhile. The metadata is on the first one, which stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.values import TopicPartitionReplica
from barnabas.testing.sim.cluster.layout import DIRECTORIES
from barnabas.testing.sim.cluster.operator import admin_of
from barnabas.testing.sim.cluster.trouble import EVERY, LOSSY, ClusterFault, Trouble
from barnabas.testing.sim.disk import never

if TYPE_CHECKING:
    from barnabas.testing.sim.node import SimNode

_SECOND = DIRECTORIES[1]


def _on_second(path: str) -> bool:
    return path.startswith(_SECOND)


async def _end(trouble: Trouble, node: SimNode) -> None:
    """In order, or not. In order, its other directory remembers that nothing was lost."""
    if trouble.rng.random() < 0.5:
        await trouble.cluster.stop(node)
    node.kill()


async def lose_directory(trouble: Trouble) -> None:
    """It fails under the running broker, or is out when that starts; then it is back, and the broker is started again:
    what failed is offline until then."""
    node = trouble.any_broker()
    async with trouble.unclean(node) as may:
        if not may:
            return
        if trouble.rng.random() < 0.5:
            node.disk.fail_writes = _on_second
            await trouble.sleep(0.3, 4.0)
        if trouble.rng.random() < 0.7:
            await _end(trouble, node)
            node.disk.fail_reads = _on_second
            await trouble.cluster.up(node)
            await trouble.sleep(0.3, 6.0)
        node.kill()
        node.disk.fail_reads = node.disk.fail_writes = never
        await trouble.cluster.up(node)


async def lose_the_last_directory(trouble: Trouble) -> None:
    """One broker after the other stops, and of the last, which has everything, a directory is out when it starts."""
    cluster = trouble.cluster
    last = cluster.leader(trouble.any_partition()) or trouble.any_broker()
    others = [node for node in cluster.brokers if node is not last]
    for node in others:
        await _end(trouble, node)
    await trouble.sleep(0.1, 5.0)
    await cluster.stop(last)
    last.kill()
    last.disk.fail_reads = _on_second
    await cluster.up(last)
    await trouble.sleep(0.1, 3.0)
    for node in others:
        await cluster.up(node)
    await trouble.sleep(0.1, 4.0)
    last.kill()
    last.disk.fail_reads = never
    await cluster.up(last)


async def replace_directory(trouble: Trouble) -> None:
    """An empty disk takes the place of one."""
    node = trouble.any_broker()
    async with trouble.unclean(node) as may:
        if not may:
            return
        await _end(trouble, node)
        node.disk.wipe(_SECOND)
        await trouble.sleep(0.0, 2.0)
        await trouble.cluster.up(node)


async def move_between_directories(trouble: Trouble) -> None:
    """To the one where it already is calls a move off."""
    tp = trouble.any_partition()
    image = trouble.cluster.partition(tp)
    if image is None:
        return
    replica = TopicPartitionReplica(tp.topic, tp.partition, trouble.choice(image.replicas))
    path = trouble.choice(DIRECTORIES)
    trouble.world.trace.event("operator", f"moves {tp} of broker {replica.broker_id} to {path}")
    async with admin_of(trouble) as admin:
        await admin.alter_replica_log_dirs({replica: path})


DIRECTORY_FAULTS = (
    ClusterFault("lose a directory", 10, lose_directory),
    ClusterFault("lose the last directory", 6, lose_the_last_directory, EVERY - LOSSY),
    ClusterFault("replace a directory", 8, replace_directory, LOSSY),
    ClusterFault("move between directories", 20, move_between_directories),
)
