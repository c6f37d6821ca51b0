"""Shell: bit rot in a cluster, and the operator who repairs it.

    kill a broker ── another replica leads ── a bit flips ── start: the broker reports the replica as lost
                                                               └── the operator repairs the broker

The bit flips only while another replica leads, and the damaged one is neither in the ISR nor in the ELR. Whatever the
operator does then, no acknowledged record may be lost, and at the end all replicas must be whole and in sync.

    create a topic ── kill a broker ── delete the topic, create it again ── partition.metadata is empty ── start

The second topic may have none of the records that the broker has of the first one (ConsistentRead).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from barnabas.client.admin.requests import value_or_raise
from barnabas.client.values import NewTopic
from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.batch import iter_batches
from barnabas.server.metadata.image.topics import LOST_DIRECTORY
from barnabas.server.repair.findings import check_directory
from barnabas.server.repair.steps import apply, plan
from barnabas.server.storage import names
from barnabas.testing.sim.cluster.cluster import disk_is_well
from barnabas.testing.sim.cluster.fault_context import ClusterFault, FaultContext
from barnabas.testing.sim.cluster.layout import DIRECTORIES
from barnabas.testing.sim.cluster.operator_actions import admin_of, reassign
from barnabas.testing.sim.workload.supervisor import PATIENCE

if TYPE_CHECKING:
    from barnabas.testing.sim.node import SimNode

_CRC_START: Final = 16
"""Base offset, length and leader epoch of a batch lie outside the CRC."""
_OTHERS_LEAD_S: Final = 5.0
_NOTICED_S: Final = 8.0
_WRITTEN_MS: Final = 5_000


class Undoable(Protocol):
    """A damage of a file of a broker's replica."""

    node: SimNode
    tp: TopicPartition
    path: str

    def undo(self) -> None: ...


@dataclass(slots=True)
class FlippedBit:
    """A flipped bit in a log, and the bytes that the file had around it."""

    node: SimNode
    tp: TopicPartition
    path: str
    position: int
    bit: int
    damaged: bytes
    """The file's bytes up to the flipped one, and that one."""

    def is_there(self) -> bool:
        disk = self.node.disk
        return disk.exists(self.path) and bytes(disk.data(self.path)[: len(self.damaged)]) == self.damaged

    def undo(self) -> None:
        """What a restore from a copy of the disk does. No effect if the broker or an operator has changed the file."""
        if self.is_there():
            self.node.disk.flip_bit(self.path, self.position, self.bit)


@dataclass(slots=True)
class LostTopicId:
    """A file with a topic id that became empty, and its former content."""

    node: SimNode
    tp: TopicPartition
    path: str
    content: bytes

    def undo(self) -> None:
        if self.node.disk.exists(self.path) and not self.node.disk.data(self.path):
            self.node.disk.put(self.path, self.content)


async def lost_topic_id(context: FaultContext) -> None:
    """A topic is deleted and created again while one of its brokers is down, and the file with the topic id of that
    broker's log becomes empty. When the broker has noticed, an operator deletes the log or restores the file."""
    cluster, tp = context.cluster, TopicPartition(f"again-{context.rng.randrange(1_000)}", 0)
    node = context.any_broker()
    # Another broker leads both topics, so that leader epochs do not tell their records apart.
    ids = [*(broker.node_id for broker in cluster.brokers if broker is not node), node.node_id][-3:]
    topic = NewTopic(tp.topic, replica_assignment={0: ids})
    lost: LostTopicId | None = None
    async with context.unclean(node) as may, admin_of(context) as admin:
        if not may:
            return
        try:
            value_or_raise(await admin.create_topics([topic]), tp.topic)
            await _write(context, tp, "first", context.rng.randint(1, 20))
            if not node.alive:
                return
            node.kill()
            value_or_raise(await admin.delete_topics([tp.topic]), tp.topic)
            value_or_raise(await admin.create_topics([topic]), tp.topic)
            await _write(context, tp, "second", context.rng.randint(10, 40))
            if await cluster.until(lambda: _others_lead(context, tp, node.node_id), _OTHERS_LEAD_S):
                lost = _lose_topic_id(node, tp)
        finally:
            await cluster.up(node)
    if lost is not None:
        context.world.trace.event("fault", f"{lost.path} of {node.name} is empty")
        noticed = await cluster.until(lambda: _is_lost(context, tp, node.node_id), _NOTICED_S)
        act = context.choice((_delete, _restore)) if noticed else _restore
        context.world.trace.event("operator", f"{act.__name__.strip('_')}: {tp} of {node.name}")
        await act(context, lost)


async def _write(context: FaultContext, tp: TopicPartition, text: str, count: int) -> None:
    async with context.world.producer(delivery_timeout_ms=_WRITTEN_MS, **PATIENCE) as producer:
        for number in range(count):
            await producer.send_and_wait(tp.topic, f"{text} {number}".encode(), partition=tp.partition)


def _lose_topic_id(node: SimNode, tp: TopicPartition) -> LostTopicId | None:
    """Empties partition.metadata of a broker that is down, unless its log has never had a record."""
    if node.alive or not disk_is_well(node):
        return None
    for home in DIRECTORIES:
        path = f"{home}/{tp}/{names.PARTITION_METADATA}"
        log = f"{home}/{tp}/{names.offset_file(0, names.LOG)}"
        if node.disk.exists(path) and node.disk.exists(log) and node.disk.data(log):
            lost = LostTopicId(node, tp, path, bytes(node.disk.data(path)))
            node.disk.put(path, b"")
            return lost
    return None


async def bit_rot(context: FaultContext) -> None:
    """A bit flips in a log of a killed broker. When the broker has noticed, an operator repairs the log, deletes it,
    moves the replica away and back, or restores the file."""
    cluster, tp = context.cluster, context.any_partition()
    image = cluster.partition(tp)
    node = None if image is None else cluster.broker(context.choice(image.replicas))
    if node is None:
        return
    async with context.unclean(node) as may:
        if not may or not node.alive:
            return
        node.kill()
        others_lead = await cluster.until(lambda: _others_lead(context, tp, node.node_id), _OTHERS_LEAD_S)
        damage = _flip(context, node, tp) if others_lead else None
        await cluster.up(node)
        if damage is None:
            return
        context.world.trace.event("fault", f"bit {damage.bit} of byte {damage.position} of {damage.path} flips")
        lost = await cluster.until(lambda: _is_lost(context, tp, node.node_id), _NOTICED_S)
        act = context.choice((_repair, _delete, _move_away_and_back, _restore)) if lost else _restore
        context.world.trace.event("operator", f"{act.__name__.strip('_').replace('_', ' ')}: {tp} of {node.name}")
        await act(context, damage)


def _others_lead(context: FaultContext, tp: TopicPartition, node_id: int) -> bool:
    """Whether another broker leads, so that what becomes of this replica cannot matter."""
    image = context.cluster.partition(tp)
    return image is not None and image.has_leader and node_id not in (image.leader, *image.isr, *image.elr)


def _is_lost(context: FaultContext, tp: TopicPartition, node_id: int) -> bool:
    image = context.cluster.partition(tp)
    if image is None or node_id not in image.replicas:
        return False
    return image.directory_of(node_id) == LOST_DIRECTORY and _others_lead(context, tp, node_id)


def _flip(context: FaultContext, node: SimNode, tp: TopicPartition) -> FlippedBit | None:
    """Flips a bit that recovery after kill -9 must find: in the last segment, with a whole batch behind it."""
    disk, rng = node.disk, context.rng
    if node.alive or not disk_is_well(node):
        return None
    logs = [
        path
        for path in disk.paths()
        if path.endswith(names.LOG) and path.rpartition("/")[0] in [f"{home}/{tp}" for home in DIRECTORIES]
    ]
    home = "" if not logs else logs[-1].split("/")[1]
    if not logs or disk.exists(f"/{home}/{names.CLEAN_SHUTDOWN}"):
        return None
    data = disk.data(logs[-1])
    batches = list(iter_batches(data))
    if len(batches) < 2:
        return None
    start, header = rng.choice(batches[:-1])
    position, bit = start + rng.randrange(_CRC_START, header.size), rng.randrange(8)
    disk.flip_bit(logs[-1], position, bit)
    return FlippedBit(node, tp, logs[-1], position, bit, bytes(disk.data(logs[-1])[: position + 1]))


# -- what operators do -------------------------------------------------------------------------------------------------


async def _repair(context: FaultContext, damage: Undoable) -> None:
    """`barnabas logs repair`"""
    disk = damage.node.disk
    directories = [home for home in DIRECTORIES if disk.exists(home)]

    def steps() -> None:
        if not disk_is_well(damage.node):
            damage.undo()
            return
        mounted = disk.mount()
        findings = [one for home in directories for one in check_directory(mounted, home, lambda size: None)]
        apply(mounted, directories, plan(mounted, findings))

    await context.cluster.while_down(damage.node, steps)


async def _delete(context: FaultContext, damage: Undoable) -> None:
    """The directory of the damaged log is deleted, and the replica fetches everything again."""
    directory = damage.path.rpartition("/")[0]
    await context.cluster.while_down(damage.node, lambda: damage.node.disk.rmtree(directory))


async def _move_away_and_back(context: FaultContext, damage: Undoable) -> None:
    """The partition is reassigned without the damaged replica, and then to the same brokers as before."""
    image = context.cluster.partition(damage.tp)
    if image is None:
        return await _restore(context, damage)
    node_id = damage.node.node_id
    present = list(image.replicas)
    free = [broker.node_id for broker in context.cluster.brokers if broker.node_id not in present]
    without = [*(replica for replica in present if replica != node_id), *free[:1]]

    def is_moved() -> bool:
        found = context.cluster.partition(damage.tp)
        return found is not None and node_id not in found.replicas

    async with admin_of(context) as admin:
        await reassign(context, admin, {damage.tp: without})
        if await context.cluster.until(is_moved, _NOTICED_S):
            await reassign(context, admin, {damage.tp: present})
            return None
    return await _restore(context, damage)


async def _restore(context: FaultContext, damage: Undoable) -> None:
    """The file is restored from a copy."""
    await context.cluster.while_down(damage.node, damage.undo)


Act = Callable[[FaultContext, Undoable], Awaitable[None]]
BIT_ROT = ClusterFault("bit rot", 1, bit_rot)
LOST_TOPIC_ID = ClusterFault("lost topic id", 1, lost_topic_id)
