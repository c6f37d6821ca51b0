"""Shell: the faults of the one-node scenario, their times and durations, drawn from the seed.

Faults run one after another, and sometimes two at a time. Each fault is a coroutine that applies the fault, waits, and
undoes the fault. The `NodeFaultMenu` of a run is the set of faults that the run may draw.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final

from barnabas.core.errors import BarnabasError, KafkaError
from barnabas.server.storage import names
from barnabas.testing.sim.disk import never
from barnabas.testing.sim.errors import CorrectnessError
from barnabas.testing.sim.rot import Expected, Flip, draw_flip

_ROOM: Final = 1 << 40
DATA_DIR: Final = "/data"

if TYPE_CHECKING:
    from barnabas.testing.sim.node import SimNode
    from barnabas.testing.sim.workload import Workload
    from barnabas.testing.sim.world import World


class NodeFaultMenu(Enum):
    """The kinds of faults that a run may have. The menu decides which guarantees must hold."""

    KILL = "kill"
    """Processes are killed, paused and partitioned; disks are slow. Every acknowledged record survives."""
    POWER = "power"
    """In addition the power fails. Every record acknowledged under flush.messages=1 survives."""
    DISK = "disk"
    """In addition the disk fills up, and fsync fails. Every record acknowledged under flush.messages=1 survives."""
    DESCRIPTORS = "descriptors"
    """As KILL, and in addition files cannot be opened at times, for want of descriptors. The node must stay online."""
    ROT = "rot"
    """As KILL, and in addition bits flip on the disk while the node is down. The node must notice; the operator then
    restores the file."""

    @property
    def spares_page_cache(self) -> bool:
        """Whether every write survives, because only processes end."""
        return self in (NodeFaultMenu.KILL, NodeFaultMenu.DESCRIPTORS, NodeFaultMenu.ROT)


class FaultRunner:
    """Applies faults: `run` applies them for some time, `heal` undoes those that are still in effect."""

    def __init__(self, world: World, node: SimNode, workload: Workload, menu: NodeFaultMenu) -> None:
        self._world = world
        self._node = node
        self._workload = workload
        self._rng = world.random_stream("faults")
        self._restarts = asyncio.Lock()
        self.count = 0
        self._disk_suffered = False
        self._choices: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (4, self.kill_node), (2, self.stop_node), (3, self.pause_node), (3, self.cut), (2, self.cut_one_way),
            (2, self.reset), (2, self.bad_link), (2, self.slow_disk), (1, self.cold_cache), (1, self.wrong_clock),
            (2, self.kill_client), (2, self.pause_client),
        ]  # fmt: skip
        if not menu.spares_page_cache:
            self._choices.append((6, self.power_cut))
        if menu is NodeFaultMenu.ROT:
            self._choices.append((30, self.bit_rot))
        if menu is NodeFaultMenu.DESCRIPTORS:
            self._choices.append((12, self.few_descriptors))
        if menu is NodeFaultMenu.DISK:
            self._choices += [(4, self.full_disk), (4, self.failing_fsync)]

    async def run(self, seconds: float) -> None:
        """Applies faults for that many simulated seconds."""
        loop = self._world.loop
        end = loop.time() + seconds
        async with asyncio.TaskGroup() as group:
            while loop.time() < end:
                await asyncio.sleep(self._rng.expovariate(1 / 0.6))
                weights = [weight for weight, _ in self._choices]
                fault = self._rng.choices(self._choices, weights)[0][1]
                self.count += 1
                task = group.create_task(self._apply(fault))
                if self._rng.random() < 0.75:
                    await task

    async def _apply(self, fault: Callable[[], Awaitable[None]]) -> None:
        self._world.trace.event("fault", getattr(fault, "__name__", "?").replace("_", " "))
        await fault()

    async def heal(self) -> None:
        """Undoes every fault, and starts the node if it does not run."""
        node, world = self._node, self._world
        world.network.heal()
        world.trace.event("fault", "everything is healed")
        node.disk.capacity = _ROOM
        node.disk.cold = False
        node.disk.fail_syncs = never
        node.disk.lacks_descriptors = never
        node.job_s = node.usual_job_s
        node.clock.skew_s = 0.0
        node.resume()
        if node.excused or self._disk_suffered:  # the metadata log stays failed after a disk error
            node.kill()
        await self._up()

    async def _up(self) -> None:
        """Starts the node as an operator would, and repeats the start while the disk returns errors."""
        async with self._restarts:
            while not self._node.alive:
                well_before = self._disk_is_well
                try:
                    await self._node.start()
                except (KafkaError, ExceptionGroup) as error:
                    if well_before and self._disk_is_well:
                        raise
                    self._world.trace.event(self._node.name, f"does not start: {error}")
                    await asyncio.sleep(0.5)

    @property
    def _disk_is_well(self) -> bool:
        disk = self._node.disk
        return disk.fail_syncs is never and disk.lacks_descriptors is never and disk.capacity == _ROOM

    def _some(self, low: float, high: float) -> float:
        """A random duration in seconds; short durations are more likely."""
        return low + self._rng.random() ** 2 * (high - low)

    def _client(self) -> str:
        return self._rng.choice(sorted(self._workload.hosts))

    # ---- the node

    async def kill_node(self) -> None:
        self._node.kill()
        await asyncio.sleep(self._some(0.01, 3.0))
        await self._up()
        if self._rng.random() < 0.3:  # a second kill, during the recovery or soon after it
            await asyncio.sleep(self._some(0.0, 0.3))
            self._node.kill()
            await asyncio.sleep(self._some(0.01, 1.0))
            await self._up()

    async def power_cut(self) -> None:
        self._node.lose_power()
        await asyncio.sleep(self._some(0.1, 4.0))
        await self._up()

    async def stop_node(self) -> None:
        if self._node.alive and not self._node.paused:
            stopping = asyncio.ensure_future(self._node.stop())
            await asyncio.wait((stopping,), timeout=10)
            if not stopping.done():
                self._node.kill()
                await stopping
        await asyncio.sleep(self._some(0.0, 1.0))
        await self._up()

    async def pause_node(self) -> None:
        self._node.pause()
        await asyncio.sleep(self._some(0.1, 9.0))
        self._node.resume()

    async def wrong_clock(self) -> None:
        """The wall clock jumps in either direction, as when NTP corrects it."""
        self._node.clock.skew_s = self._rng.uniform(-4, 4)

    # ---- its disk

    async def bit_rot(self) -> None:
        """A bit flips while the node is stopped. The node starts, is compared with what `rot.py` expects, and the
        operator restores the file."""
        node = self._node
        async with self._restarts:
            if not node.alive or node.paused:
                return
            stopping = asyncio.ensure_future(node.stop())
            await asyncio.wait((stopping,), timeout=20)
            clean = node.disk.exists(f"{DATA_DIR}/{names.CLEAN_SHUTDOWN}") and not node.alive
            flip = draw_flip(node.disk, self._rng) if clean else None
            if flip is not None:
                await self._start_with(flip)
            node.kill()
        await self._up()

    async def _start_with(self, flip: Flip) -> None:
        node = self._node
        node.disk.flip_bit(flip.path, flip.position, flip.bit)
        self._world.trace.event("fault", f"bit {flip.bit} of byte {flip.position} of {flip.path} flips")
        found = Expected.REFUSED
        try:
            await node.start()
            if node.node is None or node.node.broker is None or not node.ready:
                return  # another fault killed the node
            offline = [p for p in node.node.broker.partitions if p.log is None]
            found = Expected.OFFLINE if offline else Expected.NOTHING
        except (BarnabasError, ExceptionGroup) as error:
            self._world.trace.event(node.name, f"does not start: {error}")
        finally:
            if flip.expected is not Expected.NOTHING:
                if node.alive:
                    node.kill()
                node.disk.flip_bit(flip.path, flip.position, flip.bit)
        if found is not flip.expected:
            raise CorrectnessError(
                f"A flipped bit in {flip.path} (byte {flip.position}): {found.value}, but expected was: "
                f"{flip.expected.value}."
            )

    async def slow_disk(self) -> None:
        self._node.job_s = (0.001, self._some(0.05, 2.0))
        await asyncio.sleep(self._some(0.5, 6.0))
        self._node.job_s = self._node.usual_job_s

    async def cold_cache(self) -> None:
        self._node.disk.cold = True
        await asyncio.sleep(self._some(0.5, 4.0))
        self._node.disk.cold = False

    async def full_disk(self) -> None:
        disk = self._node.disk
        self._disk_suffered = True
        disk.capacity = disk.used + self._rng.randrange(2_000)
        await asyncio.sleep(self._some(0.5, 4.0))
        disk.capacity = _ROOM

    async def few_descriptors(self) -> None:
        """Some files, or all, cannot be opened. What is open can be used."""
        disk, rng = self._node.disk, self._rng
        share = rng.choice([0.2, 0.5, 1.0])
        disk.lacks_descriptors = lambda path: rng.random() < share
        await asyncio.sleep(self._some(0.2, 4.0))
        disk.lacks_descriptors = never

    async def failing_fsync(self) -> None:
        """One fsync fails, the log directory goes offline, and an operator restarts the broker."""
        disk, node = self._node.disk, self._node
        left = [self._rng.randrange(3)]

        def fails(path: str) -> bool:
            left[0] -= 1
            return left[0] == -1

        node.excused = True
        disk.fail_syncs = fails
        await asyncio.sleep(self._some(0.5, 3.0))
        disk.fail_syncs = never
        if self._rng.random() < 0.5:
            node.kill()
        else:
            node.lose_power()
        await asyncio.sleep(self._some(0.01, 1.0))
        await self._up()

    # ---- the network

    async def cut(self) -> None:
        await self._cut(both=True)

    async def cut_one_way(self) -> None:
        await self._cut(both=False)

    async def _cut(self, *, both: bool) -> None:
        network, broker = self._world.network, self._node.name
        hosts = sorted(self._workload.hosts)
        chosen: Sequence[str] = hosts if self._rng.random() < 0.4 else [self._client()]
        outwards = self._rng.random() < 0.5
        pairs = [(host, broker) if outwards else (broker, host) for host in chosen]
        for source, target in pairs:
            network.cut(source, target, both=both)
        await asyncio.sleep(self._some(0.2, 9.0))
        network.heal()

    async def reset(self) -> None:
        self._world.network.reset_connections(self._client(), self._node.name)

    async def bad_link(self) -> None:
        network, rng = self._world.network, self._rng
        host, broker = self._client(), self._node.name
        for link in (network.link(host, broker), network.link(broker, host)):
            link.delay_max = rng.choice([0.02, 0.2, 1.0])
            link.loss = rng.choice([0.0, 0.05, 0.3])
            link.bandwidth = rng.choice([20_000.0, 1_000_000.0])
        await asyncio.sleep(self._some(0.5, 5.0))
        network.heal()

    # ---- the clients

    async def kill_client(self) -> None:
        host = self._client()
        self._workload.kill(host)
        await asyncio.sleep(self._some(0.1, 3.0))
        self._workload.restart(host)

    async def pause_client(self) -> None:
        process = self._workload.hosts[self._client()]
        self._world.pause(process)
        await asyncio.sleep(self._some(0.1, 9.0))
        self._world.resume(process)


ROT_SHARE: Final = 0.06
"""The share of the seeds that draw bit rot. Its own random stream decides, so that the other seeds are unchanged."""


def random_menu(rng: random.Random, rot: random.Random) -> NodeFaultMenu:
    drawn = rng.choice([NodeFaultMenu.KILL, NodeFaultMenu.DESCRIPTORS, NodeFaultMenu.POWER, NodeFaultMenu.DISK])
    return NodeFaultMenu.ROT if rot.random() < ROT_SHARE else drawn
