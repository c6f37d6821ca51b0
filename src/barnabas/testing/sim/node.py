"""Shell: a simulated host with a disk, which runs the production `Node` in one process after another.

start ── kill ──────── start     kill -9: the page cache stays, sockets are closed by the kernel
      ├─ lose_power ── start     unsynced data may be gone, connections are silent
      ├─ pause ─────── resume    SIGSTOP, SIGCONT
      └─ stop ──────── start     a clean shutdown
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.core.objects.ports import ObjectStore
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.server.node.config import build_config
from barnabas.server.node.server import Node
from barnabas.testing.embedded import SETTINGS
from barnabas.testing.sim.clock import SimClock
from barnabas.testing.sim.disk import MemoryDisk, never
from barnabas.testing.sim.errors import SimulationError
from barnabas.testing.sim.process import Process, ProcessState

if TYPE_CHECKING:
    from barnabas.testing.sim.world import World

PORT = 9092
CONTROLLER_PORT = 9093
DATA_DIR = "/data"


class SimNode:
    """A host that can run a node. Tests may change `disk`, `clock` and `job_s`, which belong to the host."""

    def __init__(self, world: World, name: str, node_id: int, config: Mapping[str, str]) -> None:
        self.name = name
        self.node_id = node_id
        self.config = dict(config)
        """Settings by Kafka's names, used at the next start. `listeners` defaults to PLAINTEXT at `address`."""
        self.disk = MemoryDisk()
        self.clock = SimClock(world.loop)
        self.disk.wall = self.clock.now_ms
        self.usual_job_s = (0.000_05, 0.002)
        """The usual minimum and maximum of the seconds that an fsync or a read from the device takes."""
        self.job_s = self.usual_job_s
        """The present minimum and maximum; a fault may raise them."""
        self.excused = False
        """Whether the present process may end by itself, because a disk fault was injected."""
        self.open_segments_max: int | None = None
        """The number of log segments that may have an open file; None means as many as on a usual host."""
        self.first_users: tuple[str, ...] = ()
        """The users that a new cluster has from its start, as `--add-scram` takes them."""
        self.objects: ObjectStore | None = None
        """The object store of the cluster, if topics may be in tiered storage."""
        self.takes_time = False
        """Whether the work that the node counts takes simulated time."""
        self.serves_clients = True
        """Whether the node is a broker."""
        self.process: Process | None = None
        self.node: Node | None = None
        self._world = world
        self._rng = world.random_stream(f"node {name}")
        self._starts = 0
        self._ready: asyncio.Future[None] | None = None
        self._ended: asyncio.Future[None] | None = None

    @property
    def address(self) -> str:
        return f"{self.name}:{PORT}"

    @property
    def ready(self) -> bool:
        """Whether the present process has reported that it is ready."""
        return self.process is not None and self._ready is not None and self._ready.done()

    @property
    def alive(self) -> bool:
        return self.process is not None

    @property
    def paused(self) -> bool:
        return self.process is not None and self.process.state is ProcessState.PAUSED

    async def start(self) -> None:
        """Starts the node. Returns when clients may connect, or when the process was killed before that. Raises the
        exception that prevented the start."""
        self.launch()
        await self.wait_ready()

    def launch(self) -> None:
        """Starts the node without waiting. A node of a cluster is not ready before a quorum of controllers runs."""
        if self.process is not None:
            raise SimulationError(f"{self.name} is running already.")
        world, loop = self._world, self._world.loop
        self._starts += 1
        self.excused = self.disk.fail_syncs is not never
        world.network.host_up(self.name)
        process = self.process = Process(f"{self.name}.{self._starts}", self.name, self._job_time)
        process.takes_time = self.takes_time
        world.processes.append(process)
        world.trace.event(self.name, f"starts (run {self._starts})")
        try:
            node = self.node = process.run(self._make_node)
        except BaseException:  # any error: the process is over
            self._over(process)
            raise
        ready = self._ready = loop.create_future()
        ended = self._ended = loop.create_future()

        def is_ready(_: Node) -> None:
            world.trace.event(self.name, "is ready")
            ready.set_result(None)

        async def live() -> None:
            try:
                await node.run(is_ready)
            except BaseException as error:  # any error: the process is over, as a real one would be
                if process.state is ProcessState.DEAD:
                    raise
                if ready.done() and not self.excused:
                    world.on_crash(f"{self.name} ended by itself", error)
                self._over(process)
                if not ended.done():
                    ended.set_exception(error)
                raise
            self._over(process)
            if not ended.done():
                ended.set_result(None)

        task = process.spawn(loop, live(), name=self.name)
        task.add_done_callback(lambda t: t.cancelled() or t.exception())  # marks the exception as retrieved
        ended.add_done_callback(lambda future: future.exception())

    async def wait_ready(self) -> None:
        """Returns when the present process is ready or was stopped. Raises the exception that ended the process before
        it was ready."""
        ready, ended = self._ready, self._ended
        if ready is None or ended is None:
            return
        await asyncio.wait((ready, ended), return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            await ended

    def _make_node(self) -> Node:
        config = build_config(
            {
                "listeners": f"PLAINTEXT://{self.address}",
                "log.dirs": DATA_DIR,
                **SETTINGS,
                **self.config,
                "node.id": str(self.node_id),
            },
            first_users=self.first_users,
        )
        network, name = self._world.network, self.name

        def listen(endpoint: ListenerEndpoint) -> object:
            return network.listen(name, endpoint)

        node = Node(
            config,
            fs=self.disk.mount(),
            clock=self.clock,
            rng=random.Random(self._rng.getrandbits(64)),
            listen=listen,  # type: ignore[arg-type]  # the simulated listener has the port's methods
            objects=self.objects,
        )
        if self.open_segments_max is not None:
            node.open_segments.capacity = self.open_segments_max
        return node

    def _job_time(self) -> float:
        low, high = self.job_s
        return low + self._rng.random() ** 2 * (high - low)

    def _over(self, process: Process) -> None:
        """Called when the process has ended by itself."""
        if self.process is process:
            self.process = self.node = None
            self._world.network.process_died(process)
            self.disk.crash()
            self._world.trace.event(self.name, "has ended")

    async def stop(self) -> None:
        """Shuts the node down cleanly. Returns when the process has ended."""
        if self.process is None or self.node is None or self._ended is None:
            return
        self._world.trace.event(self.name, "is asked to stop")
        self.process.run(self.node.stop)
        await asyncio.wait((self._ended,))

    def kill(self) -> None:
        """Kills the process, as kill -9 does. The page cache survives."""
        process = self._end("is killed")
        if process is not None:
            self._world.network.process_died(process)
            self.disk.crash()

    def lose_power(self) -> None:
        """Cuts the host's power. The seed decides which unsynced data the disk keeps."""
        process = self._end("loses power")
        self._world.network.host_down(self.name, [] if process is None else [process])
        self.disk.lose_power(rng=self._rng)

    def pause(self) -> None:
        if self.process is not None and self.process.state is ProcessState.RUNNING:
            self._world.trace.event(self.name, "is paused")
            self.process.state = ProcessState.PAUSED

    def resume(self) -> None:
        if self.process is not None and self.process.state is ProcessState.PAUSED:
            self._world.trace.event(self.name, "continues")
            self.process.state = ProcessState.RUNNING
            self._world.loop.release(self.process)

    def _end(self, how: str) -> Process | None:
        process = self.process
        if process is None:
            return None
        self._world.trace.event(self.name, how)
        process.state = ProcessState.DEAD
        process.held.clear()
        self.process = self.node = None
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)
        return process
