"""Shell: operations on all nodes of a simulated cluster: start, inspect, heal, wait until the cluster is healthy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from barnabas.core.errors import BarnabasError
from barnabas.core.ids import TopicPartition
from barnabas.testing.sim.cluster.layout import ClusterLayout
from barnabas.testing.sim.cluster.logins import CLIENT, FIRST_USERS, login_of
from barnabas.testing.sim.cluster.view import broker_epoch_of, image_of, partitions_of, raft_of
from barnabas.testing.sim.disk import never
from barnabas.testing.sim.errors import LivenessError
from barnabas.testing.sim.node import SimNode

if TYPE_CHECKING:
    from barnabas.server.metadata.image.cluster import ClusterImage, PartitionImage
    from barnabas.testing.sim.world import World

DISK_CAPACITY: Final = 1 << 40
"""The capacity in bytes of a disk that is not full."""
FIRST_START_S: Final = 30.0
_STOP_S: Final = 15.0
_RETRY_S: Final = 0.5
_LOOK_S: Final = 0.2


class SimCluster:
    """A simulated cluster. `hosts` has all nodes by name; a node may be broker, controller, or both."""

    def __init__(self, world: World, layout: ClusterLayout, config: Mapping[str, str]) -> None:
        self.world = world
        self.layout = layout
        self.hosts: dict[str, SimNode] = {}
        self.brokers: list[SimNode] = []
        self.controllers: list[SimNode] = []
        self._repairs: dict[str, asyncio.Lock] = {}
        if layout.sasl:
            world.login = login_of(CLIENT)
        for host in layout.hosts():
            node = world.node(host.name, {**layout.config(host), **config}, node_id=host.node_id)
            node.serves_clients = host.is_broker
            node.first_users = FIRST_USERS if layout.sasl else ()
            self.hosts[host.name] = node
            self._repairs[host.name] = asyncio.Lock()
            if host.is_broker:
                self.brokers.append(node)
            if host.is_controller:
                self.controllers.append(node)

    # ---- starting and stopping

    async def start(self) -> None:
        """Starts all nodes at once. Returns when all are ready; raises the exception that prevents a start."""
        for node in self.hosts.values():
            node.launch()
        try:
            async with asyncio.timeout(FIRST_START_S):
                for node in self.hosts.values():
                    await node.wait_ready()
        except TimeoutError:
            waiting = [name for name, node in self.hosts.items() if not node.ready]
            raise LivenessError(
                f"Within {FIRST_START_S:g} s of the first start these were not ready: {waiting}"
            ) from None

    async def up(self, node: SimNode) -> None:
        """Starts a node as an operator would, and repeats the start while its disk returns errors. Does not wait until
        the node is ready."""
        async with self._repairs[node.name]:
            while not node.alive:
                node.launch()
                await asyncio.sleep(0)
                if node.alive or disk_is_well(node):
                    return
                await asyncio.sleep(_RETRY_S)

    async def while_down(self, node: SimNode, change: Callable[[], None]) -> None:
        """Kills a node, changes the files on its disk as an operator would, and starts the node again."""
        async with self._repairs[node.name]:
            node.kill()
            change()
        await self.up(node)

    async def stop(self, node: SimNode) -> None:
        """Shuts a node down cleanly, or kills it if it does not end in time."""
        if not node.alive or node.paused:
            return
        stopping = asyncio.ensure_future(node.stop())
        await asyncio.wait((stopping,), timeout=_STOP_S)
        if not stopping.done():
            self.world.trace.event(node.name, "does not stop")
            node.kill()
        await asyncio.wait((stopping,))
        try:
            stopping.result()
        except (BarnabasError, ExceptionGroup):
            if not node.excused:
                raise

    async def heal(self) -> None:
        """Undoes all faults of hosts and links, and starts every node."""
        world = self.world
        world.network.heal()
        for node in self.hosts.values():
            suffered = not disk_is_well(node) or node.excused
            node.disk.capacity = DISK_CAPACITY
            node.disk.cold = False
            node.disk.fail_syncs = node.disk.fail_reads = node.disk.fail_writes = never
            node.job_s = node.usual_job_s
            node.clock.skew_s = node.clock.drift = 0.0
            node.resume()
            if suffered:  # a failed directory is offline until the broker is restarted
                node.kill()
        for node in self.hosts.values():
            await self.up(node)

    # ---- the metadata of its nodes

    def images(self) -> Iterator[tuple[SimNode, ClusterImage]]:
        for node in self.hosts.values():
            image = image_of(node)
            if image is not None:
                yield node, image

    def newest_image(self) -> ClusterImage | None:
        """The committed image with the highest offset of all running nodes."""
        return max((image for _, image in self.images()), key=lambda image: image.offset, default=None)

    def partition(self, tp: TopicPartition) -> PartitionImage | None:
        image = self.newest_image()
        return None if image is None else image.topics.partition(tp.topic, tp.partition)

    def broker(self, broker_id: int) -> SimNode | None:
        return next((node for node in self.brokers if node.node_id == broker_id), None)

    def leader(self, tp: TopicPartition) -> SimNode | None:
        """The leader of a partition in the newest image."""
        found = self.partition(tp)
        return None if found is None else self.broker(found.leader)

    def active_controller(self) -> SimNode | None:
        """The quorum's leader in the highest epoch of all running nodes."""
        found: SimNode | None = None
        newest = -1
        for node in self.controllers:
            machine = raft_of(node)
            if machine is not None and machine.is_leader and machine.epoch > newest:
                found, newest = node, machine.epoch
        return found

    # ---- health

    def problem(self, *, ready: bool = True) -> str:
        """Describes the first difference from a healthy cluster; empty if the cluster is healthy."""
        down = [node.name for node in self.hosts.values() if not (node.ready if ready else node.alive) or node.paused]
        if down:
            return f"down or not ready: {', '.join(down)}"
        active = self.active_controller()
        if active is None:
            return "no controller leads the quorum"
        image = image_of(active)
        assert image is not None
        for broker in self.brokers:
            registered = image.brokers.get(broker.node_id)
            if registered is None or registered.fenced:
                return f"{broker.name} is fenced"
        for topic in image.topics:
            for index, partition in enumerate(topic.partitions):
                if partition.is_reassigning:
                    return f"{topic.name}-{index} is being reassigned"
        if self.isr_problem():
            return self.isr_problem()
        behind = [node.name for node, other in self.images() if other.offset < image.offset]
        if behind:
            return f"{', '.join(behind)} lag behind the controller's metadata"
        return self._replicas_behind()

    def _replicas_behind(self) -> str:
        ends: dict[str, set[tuple[int, int]]] = {}
        for broker in self.brokers:
            for partition in partitions_of(broker):
                if partition.log is None:
                    return f"{broker.name} has no log of {partition.name}"
                found = ends.setdefault(str(partition.name), set())
                found.add((partition.log.log_end_offset, partition.high_watermark))
        for name, found in sorted(ends.items()):
            if len({end for pair in found for end in pair}) > 1:
                return f"replicas of {name} have (log end, high watermark) {sorted(found)}"
        return ""

    def isr_problem(self) -> str:
        """Describes the first partition with a replica out of sync; empty if all replicas are in sync."""
        active = self.active_controller()
        image = None if active is None else image_of(active)
        if image is None:
            return "no controller leads the quorum"
        for topic in image.topics:
            for index, partition in enumerate(topic.partitions):
                if not partition.has_leader or set(partition.isr) != set(partition.replicas):
                    return f"{topic.name}-{index} is led by {partition.leader}, in sync are {partition.isr}"
        return ""

    def is_whole(self) -> bool:
        """Whether every broker runs, is registered with its present process, and all replicas are in sync."""
        active = self.active_controller()
        image = None if active is None else image_of(active)
        if image is None:
            return False
        for broker in self.brokers:
            registered = image.brokers.get(broker.node_id)
            known = registered is not None and registered.epoch == broker_epoch_of(broker) and not registered.fenced
            if not known or not broker.ready:
                return False
        return not self.isr_problem()

    async def until(self, condition: Callable[[], bool], within_s: float) -> bool:
        """Waits until `condition()` is true, but not longer than `within_s`. Returns whether it became true."""
        deadline = self.world.loop.time() + within_s
        while not condition():
            if self.world.loop.time() >= deadline:
                return False
            await asyncio.sleep(_LOOK_S)
        return True

    async def until_well(self, within_s: float, *, quiet: bool = False) -> None:
        """Waits until the cluster is healthy. With `quiet` also until no replica lags, which requires that no client
        writes.

        Raises LivenessError with a description of the problem.
        """
        wrong = ""

        def well() -> bool:
            nonlocal wrong
            wrong = self.problem()
            return not wrong or (not quiet and wrong.startswith("replicas of"))

        try:
            await self.world.until(well, within_s, "the cluster is well")
        except LivenessError:
            raise LivenessError(f"{within_s:g} s after the last fault the cluster is not well: {wrong}") from None


def disk_is_well(node: SimNode) -> bool:
    disk = node.disk
    return disk.fail_syncs is disk.fail_reads is disk.fail_writes is never and disk.capacity == DISK_CAPACITY
